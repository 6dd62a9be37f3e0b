"""`task=diff` of what other programs saved, with each other and with a snapshot: tokens, layers, and how far
keys and values lie apart, in whatever numbers each of them keeps them."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch

from harness import machine
from harness.config import Config
from harness.engine import saved
from harness.errors import InputProblem
from harness.pipeline.finish import Outcome, finish_page, shown
from harness.pipeline.foreign import fitted, kinds, orders, pairs
from harness.report import html
from harness.report.terminal.console import Say, number, tabled
from harness.save import store
from harness.snapshot.digest import digest_stream
from harness.snapshot.result import UNJUDGED

Read = TypeVar("Read")
COLUMNS = ["what", "where", "a", "b", "largest difference", "of at most"]


@dataclass(frozen=True)
class Past:
    """Keys and values of one side, `[batch, kv_heads, tokens, head_dim]` each (kv_heads 1 where a file
    does not say how many), and the ids they are of, where it says those. identity: the snapshot's id, or the digest
    of the file."""

    kind: str
    identity: str
    tokens: list[int]
    layers: list[tuple[torch.Tensor, torch.Tensor]]
    forms: str


def is_file(place: str) -> bool:
    return "://" not in place and Path(place).expanduser().is_file()


def named(key: str, read: Callable[[str], Read], place: str) -> Read:
    """What `read` makes of the place that `key` names. Raises InputProblem that says the key as typed."""
    try:
        return read(place)
    except InputProblem as problem:
        said = str(problem)
        if not said.startswith("snapshot="):
            raise
        said = said.removeprefix("snapshot=").replace(" is snapshot=", f" is {key}=")
        raise InputProblem(f"{key}={said}") from None


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Exit 0 when both hold the same numbers, 1 when they differ. What a difference of keys and values
    does to a continuation is not said: there are no logits in such a file."""
    say.stage("read both")
    one, two = named("a", opened, str(cfg.a)), named("b", opened, str(cfg.b))
    say.done(f"{one.kind}; {two.kind}")
    rows = differences(one, two)
    largest = max((r[4] for r in rows if isinstance(r[4], float)), default=None)
    far = "" if largest is None else f"; keys and values lie up to {number(largest)} apart"
    reason = (
        f"{machine.many(len(rows), 'difference')}{far}"
        if rows
        else "the same tokens, keys and values, bit for bit"
    )
    record = {
        "differences": [dict(zip(COLUMNS, r)) for r in rows],
        "kinds": {"a": one.kind, "b": two.kind},
        "verdict": UNJUDGED if rows else "exact",
        "reason": reason,
        "sides": {
            key: {"path": shown(place), "id": past.identity, "tokens": len(past.tokens)}
            for key, place, past in (("a", str(cfg.a), one), ("b", str(cfg.b), two))
        },
        "diff": {
            "differences": len(rows),
            "tensors": sum(str(row[0]).startswith("layer.") for row in rows),
            "largest_kv_difference": largest,
        },
    }
    sections = [html.section("Differences", columns=COLUMNS, rows=rows)]

    def show(result: dict[str, Any]) -> None:
        say.line(f"{'differs' if rows else 'same'}: {reason}")
        say.line()
        if rows:
            tabled(say, f"a = {cfg.a}, b = {cfg.b}", COLUMNS, rows)
            say.line()
        say.fact("report", f"{shown(folder)}/report.html")

    code = 1 if rows else 0
    return finish_page(cfg, folder, say, record, sections, code, tracked=True, show=show)


def opened(place: str) -> Past:
    """A file of another program, or a snapshot. Raises InputProblem, SnapshotInvalid."""
    if is_file(place):
        file = Path(place).expanduser()
        there = saved.read(file)
        with file.open("rb") as held:
            digest = digest_stream(held, file.stat().st_size)
        return Past(there.kind, digest, there.tokens, pairs(there, place), kinds(there))
    state, manifest = store.load(place)
    layers = [(la.key, la.value) for la in state.layers if la.segments]
    dtype = str(state.dtype).removeprefix("torch.")
    return Past("snapshot", manifest["id"], state.token_ids[0].tolist(), layers, dtype)


def differences(one: Past, two: Past) -> list[list[Any]]:
    """Rows: what, where, a, b, largest difference, and the largest number it is a difference of."""
    rows: list[list[Any]] = []
    if one.tokens and two.tokens and one.tokens != two.tokens:
        pairs = enumerate(zip(one.tokens, two.tokens))
        shorter = min(len(one.tokens), len(two.tokens))
        first = next((i for i, (x, y) in pairs if x != y), shorter)
        ends = [p.tokens[first] if first < len(p.tokens) else "none" for p in (one, two)]
        rows.append(["tokens", f"token {first + 1}", *ends, None, None])
    if one.forms != two.forms:
        rows.append(["kept as", "all", one.forms, two.forms, None, None])
    if len(one.layers) != len(two.layers):
        return [*rows, ["layers", "count", len(one.layers), len(two.layers), None, None]]
    for index, (a, b) in enumerate(zip(one.layers, two.layers)):
        for part, x, y in zip(("key", "value"), a, b):
            if (row := _apart(f"layer.{index}.{part}", x, y)) is not None:
                rows.append(row)
    return rows


def _apart(name: str, a: torch.Tensor, b: torch.Tensor) -> list[Any] | None:
    """The row of one pair of tensors; None where every number is the same. A file that does not say how
    many heads there are takes the other side's, and of keys the order of RoPE that lies nearer."""
    a, b = fitted(a, b), fitted(b, a)
    if a.shape != b.shape:
        return [name, "shape", str(list(a.shape)), str(list(b.shape)), None, None]
    x, y = a.double(), b.double()
    choices = orders(x) if name.endswith("key") else {"": x}
    order, x = min(choices.items(), key=lambda item: float((item[1] - y).abs().max()))
    gap = (x - y).abs()
    if not bool(gap.any()):
        return None
    at = [int(i) for i in torch.unravel_index(gap.argmax(), gap.shape)]
    turned = f", {order}" if order else ""
    scale = float(torch.maximum(x.abs(), y.abs()).max())
    place = tuple(at)
    return [name, f"{at}{turned}", float(x[place]), float(y[place]), float(gap.max()), scale]
