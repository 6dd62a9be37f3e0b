"""`task=repeat`: does the same past give the same bits? Every cache again and again, in batches, with
and without a recorded step."""

from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from harness import machine
from harness.cache.registry import check as check_caches
from harness.cache.registry import decoder as build_decoder
from harness.capture import capture
from harness.config import CacheConfig, Config, at_least, option
from harness.errors import UnsupportedModel
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.session import Session
from harness.report.html import section
from harness.report.terminal.console import Say
from harness.snapshot.codes import dense
from harness.snapshot.result import UNJUDGED
from harness.snapshot.state import Segment, State

COLUMNS = ["cache", "recorded", "batch", "runs", "bitwise_equal", "same_as_alone", "max_abs_diff"]
TEXT = (
    "recorded: the decode step is recorded once and played back. bitwise equal: all runs of this batch gave the same "
    "bits. same as alone: every row of the batch gave the bits that this cache gives for that row alone; max abs diff: "
    "how far its logits are from those at most, which other products of a batch may round otherwise."
)


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Leaves `repeat.json`, one row per cache, recording and batch size. Nothing is judged."""
    check_caches("task.caches", cfg.task.caches)
    at_least("task.runs", cfg.task.runs, 2)
    at_least("task.tokens", cfg.task.tokens, 1)
    for size in cfg.task.batches:
        at_least("task.batches", size, 1)
    session = Session.open(cfg, folder, say)
    states = {size: batch(session, size) for size in sorted({1, *cfg.task.batches})}
    follow = drawn(session, 1, cfg.steps)
    rows: list[dict[str, Any]] = []
    for settings in chosen(cfg.task.caches):
        say.stage(
            f"{settings.name}{'' if getattr(settings, 'capture', True) else ', not recorded'}"
        )
        alone = None
        for size in sorted({1, *cfg.task.batches}):
            row, logits = repeated(session, states[size], settings, follow, cfg.task.runs)
            if logits is not None:
                alone = logits if alone is None else alone
                gap = (logits.double() - alone.double()).abs().max()
                row |= {"same_as_alone": bool(gap == 0), "max_abs_diff": float(gap)}
            rows.append(row)
        say.done()
    steady = sum(bool(row["bitwise_equal"]) for row in rows)
    reason = f"{steady} of {machine.many(len(rows), 'combination')} repeat bit for bit; nothing was judged"
    page = [
        section(
            "Repeated",
            text=TEXT,
            columns=[c.replace("_", " ") for c in COLUMNS],
            rows=[[r[c] for c in COLUMNS] for r in rows],
        )
    ]
    word = f"{steady} of {len(rows)} bit for bit"
    by = COLUMNS[:4]
    return finish_table(session, "repeat", rows, page, UNJUDGED, reason, COLUMNS, by=by, word=word)


def chosen(caches: list[str]) -> list[CacheConfig]:
    """The options to compare; a cache that can record its step comes with and without."""
    every = [option("cache", name) for name in caches]
    bare = [replace(s, capture=False) for s in every if getattr(s, "capture", False)]
    return [*every, *bare]


def drawn(session: Session, salt: int, count: int) -> torch.Tensor:
    """`[1, count]` random ids."""
    draw = torch.Generator().manual_seed(session.cfg.seed + salt)
    return torch.randint(0, int(session.loaded.text_config.vocab_size), (1, count), generator=draw)


def batch(session: Session, size: int) -> State:
    """The State of `size` rows that are all the same, from the prefill of one row: what differs
    later is the step's doing."""
    ids = drawn(session, 0, session.cfg.task.tokens)
    documents = {**session.documents, "generation": {"sampler": None, "steps": 0}}
    one = capture(session.loaded, ids, torch.ones_like(ids), documents).state
    layers = tuple(
        replace(
            layer,
            segments=tuple(
                Segment(
                    _rows(dense(part.key), size),
                    _rows(dense(part.value), size),
                    _rows(part.positions, size),
                )
                for part in layer.segments
            ),
            recurrent=MappingProxyType({k: _rows(t, size) for k, t in layer.recurrent.items()}),
        )
        for layer in one.layers
    )
    return replace(
        one,
        layers=layers,
        token_ids=_rows(one.token_ids, size),
        attention_mask=_rows(one.attention_mask, size),
        next_position=_rows(one.next_position, size),
        logits=_rows(one.logits, size),
    )


def _rows(one: torch.Tensor, size: int) -> torch.Tensor:
    return one.repeat(size, *[1] * (one.dim() - 1))


def repeated(
    session: Session, state: State, settings: CacheConfig, follow: torch.Tensor, runs: int
) -> tuple[dict[str, Any], torch.Tensor | None]:
    """The row of one cache and batch size, and the logits `[batch, n, vocab]` of its first run."""
    row = {"cache": settings.name, "recorded": bool(getattr(settings, "capture", False))}
    row |= {"batch": state.batch, "runs": runs}
    row |= dict.fromkeys(("bitwise_equal", "same_as_alone", "max_abs_diff", "reason"))
    try:
        first = continued(session, state, settings, follow)
        same = all(
            torch.equal(first, continued(session, state, settings, follow)) for _ in range(runs - 1)
        )
    except UnsupportedModel as refused:
        return row | {"reason": str(refused)}, None
    return row | {"bitwise_equal": same}, first


def continued(
    session: Session, state: State, settings: CacheConfig, follow: torch.Tensor
) -> torch.Tensor:
    """Logits `[batch, n, vocab]` of the ids `follow` `[1, n]`, fed one by one to every row."""
    decoder = build_decoder(session.loaded, state, settings)
    return torch.cat(
        [decoder.step(i.expand(state.batch, 1)) for i in follow.split(1, dim=1)], dim=1
    )
