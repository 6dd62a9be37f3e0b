"""`task=diff`: where do two snapshots begin to differ, and does it matter?"""

from pathlib import Path
from typing import Any

import torch

from harness.compare.identity import Difference
from harness.compare.identity import told as waiver_table
from harness.config import Config
from harness.errors import InputProblem
from harness.machine import many
from harness.pipeline.finish import Outcome, finish_page, shown
from harness.pipeline.origin import chosen
from harness.pipeline.snapshot import needs, text_of
from harness.report import html
from harness.report.terminal.console import Say, number, tabled
from harness.save import store
from harness.snapshot.elements import called, spoken
from harness.snapshot.history import reduced, tokens_held
from harness.snapshot.result import UNJUDGED
from harness.snapshot.state import State
from harness.snapshot.words import on_average
from harness.task.diff import between, consequence, deviation, foreign
from harness.task.diff.deviation import (
    BRIEF,
    TENSORS,
    Deviation,
    continued,
    continues,
    explained,
    read_alike,
)
from harness.task.diff.fold import folded

BEFORE = (
    "The stored logits are those of the last token that was read. Pruning, quantizing or damaging keys and values "
    "since does not change them."
)
OTHER_TOKENS = (
    "Left out: those of a follow its {} tokens, those of b its {}, which are not the same."
)
NEXT = (
    "No continuation was measured. With model=NAME both states are fed the next token (with restore.strict=false "
    "also a state that a restore refuses)."
)
UNHELD = "No continuation can be measured: no one model holds both ({})."
DRAWS = "one difference: the RNG state (different seed, or more draws)"
COUNTED = (
    "Tokens by name are counted from 1, an index from 0: of keys and values [row of the batch, head, kept token, "
    "number], of what two states hold both [head, token, number]. Bits: how many of that one element differ, and the "
    "lowest of them."
)
DERIVED = (
    "Digests cover what differs above, codes are kept by one side alone, and a proof is how near a replay of the "
    "last token came to the stored logits, and to its keys and values (kv)."
)
IDS = "An id is the digest of a snapshot's whole manifest: one state stored twice may have two."
OTHER = "\u2260 differs"
COLUMNS = ["what", "where", "a", "b", "bits", "how much"]


def _saved(place: str) -> str:
    """The snapshot that the folder of a run holds; `place` itself where it is none."""
    inner = Path(place).expanduser() / "snapshot"
    there = [(where / "manifest.json").is_file() for where in (inner.parent, inner)]
    return f"{place.rstrip('/')}/snapshot" if there == [False, True] else place


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Needs `a=DIR b=DIR`, both sound. Exit 0 when they hold the same state (whatever the format),
    1 when they differ. With `model=...` the next step is taken from both, where they have read the same tokens;
    without, what a difference does to a continuation is not judged."""
    if not (cfg.a and cfg.b):
        raise InputProblem("task=diff needs a=DIR and b=DIR, two snapshots.")
    cfg.a, cfg.b = map(_saved, (str(cfg.a), str(cfg.b)))
    if foreign.is_file(cfg.a) or foreign.is_file(cfg.b):
        return foreign.run(cfg, folder, say)
    say.stage("load both")
    (one, first), (two, second) = (
        foreign.named(key, store.load, place) for key, place in (("a", cfg.a), ("b", cfg.b))
    )
    say.done("verified")
    deviations = consequence.marked(explained(one, two), one, two)
    record: dict[str, Any] = {"differences": [vars(d) for d in deviations]}
    record["snapshot"] = {"a": first["id"], "b": second["id"]}
    alike = read_alike(one, two)
    logits = {"stored": (one.logits, two.logits)} if alike else {}
    waived: list[Difference] = []
    none = between.unheld(one, two)
    if none and chosen("model") and cfg.restore.strict:
        raise InputProblem(f"{UNHELD.format(none)} Leave out model=.")
    if deviations and alike and chosen("model"):
        logits["next step"], waived = _step(cfg, folder, say, one, two)
    measured = {name: compared(*pair) for name, pair in logits.items()} if deviations else {}
    record["logits"], record["diff"] = measured, figured(deviations, measured)
    pairs = (("a", cfg.a, first, one), ("b", cfg.b, second, two))
    record["sides"] = {
        key: {"path": shown(place), "id": manifest["id"], "tokens": state.tokens}
        for key, place, manifest, state in pairs
    }
    record["verdict"] = judged(deviations, measured)
    if waived:
        record["waived"] = [difference.row() for difference in waived]
    grown = continues(one, two, (_called("a", shown(cfg.a)), _called("b", shown(cfg.b))))
    if went_on := continued(one, two):
        record["continues"] = went_on
    held = record["compared"] = deviation.compared(one)
    listed = [d for d in deviations if not (grown and d.where == "form")]  # it says as much
    own, figures = independent(listed), record["diff"]
    whole = between.models(one, two) + between.exchanged(one, two)
    reason = str(grown) if grown else between.retyped(own, one, two, figures)
    reason = reason or whole + _reason(deviations, held, _lossy(one, two), figures)
    record["reason"] = reason = reason + between.stepped(figures)
    these, those = dict(needs(one, first)), dict(needs(two, second))
    names = list(these | those)
    what = [
        [n, *(html.digest(side.get(n)) for side in (these, those)), OTHER]
        for n in names
        if these.get(n) != those.get(n)
    ]
    both = [[n, these[n]] for n in names if these.get(n) == those.get(n) and these[n] is not None]
    sections = [
        _table("Differences", folded(own), COUNTED * bool(own)),
        *[html.section("What they are", text=IDS, columns=["what", "a", "b", ""], rows=what)]
        * bool(what),
        html.section("What both are", columns=["what", "a and b"], rows=both, fold=True),
    ]
    if derived := [d for d in listed if d not in own]:
        sections.insert(1, _table("What follows from them", folded(derived), DERIVED, fold=True))
    if not deviations:
        counts = [[name.replace("_", " "), html.grouped(count)] for name, count in held.items()]
        sections[0] = html.section("What was compared, and is the same", columns=["what", "how many"], rows=counts)  # fmt: skip
        every = html.section(
            "Each of them", columns=["what", "form"], rows=deviation.held(one), fold=True
        )
        sections.insert(1, every)
    if texts := read(one, two):
        sections.insert(1, html.section("What was read", columns=["of", "text"], rows=texts))
    layers = any(d.what.startswith("layer.") for d in deviations)
    measures, note = in_logits(measured, layers, none)
    columns = ["logits", "largest difference", "KL (nats)", "same token"]
    if not alike:
        note = OTHER_TOKENS.format(one.tokens, two.tokens)
        measures = []
    if waived:
        rows = [[spoken(d.element), called(d.element, d.field), d.saved, d.found] for d in waived]
        sections.insert(1, html.section("Waived differences", columns=["element", "field", "saved", "found"], rows=rows))  # fmt: skip
    if measures or not alike:
        sections.insert(1, html.section("In logits", text=note, columns=columns, rows=measures))

    def show(result: dict[str, Any]) -> None:
        head = "" if went_on else "differs: " if deviations else "same: "
        say.line(f"{head}{reason}" if head else f"{reason[0].upper()}{reason[1:]}")
        say.line()
        if deviations:
            tabled(say, f"a = {cfg.a}, b = {cfg.b}", BRIEF, [d.brief() for d in folded(own)])
            say.line()
            if measures:
                tabled(say, "In logits", columns, measures)
                say.line()
            if note:
                say.fact("stored" if measures else "logits", note)
        if waived:
            say.fact("waived", waiver_table(waived))
        say.fact("report", f"{shown(folder)}/report.html")

    code = 1 if deviations else 0
    return finish_page(cfg, folder, say, record, sections, code, tracked=True, show=show)


def _called(side: str, place: str) -> str:
    return side if place == side else f"{side} ({place})"


def read(one: State, two: State) -> list[list[str]]:
    """The text of each of two states, where it is not the same."""
    if read_alike(one, two):
        return []
    return [[name, text_of(state)] for name, state in (("a", one), ("b", two))]


def figured(deviations: list[Deviation], measured: dict[str, Any]) -> dict[str, float | None]:
    """What of it is a number: how many fields and tensors differ, by how much keys and values do at most, and what
    was `compared` of logits."""
    gaps = [d.gap for d in deviations if d.what.endswith((".key", ".value")) and d.gap is not None]
    tensors = [d for d in deviations if d.what.startswith("layer.") or d.what in TENSORS]
    counts = {"differences": len(deviations), "tensors": len(tensors)}
    logits = {
        f"{name.replace(' ', '_')}_{key}": value
        for name, values in measured.items()
        for key, value in values.items()
        if key != "same_token"
    }
    return {**counts, "largest_kv_difference": max(gaps, default=None), **logits}


def judged(deviations: list[Deviation], measured: dict[str, Any]) -> str:
    """The verdict: of two states that differ it takes a next step of both, after the same tokens."""
    if not deviations:
        return "exact"
    if "next step" not in measured:
        return UNJUDGED
    return "drifted" if all(m["same_token"] for m in measured.values()) else "diverged"


def in_logits(
    measured: dict[str, Any], other: bool, unheld: str = ""
) -> tuple[list[list[Any]], str]:
    """The rows of what was `compared`, and what is to be known of them where layers differ (`other`): logits
    are stored at capture, and nothing that is done to a state later changes them. unheld: why no one model holds both."""
    called = {"stored": "stored at capture"} if other else {}
    rows = [[called.get(name, name), *figures.values()] for name, figures in measured.items()]
    if unheld and "next step" not in measured:
        return rows, f"{BEFORE} {UNHELD.format(unheld)}" * other
    return rows, (BEFORE if "next step" in measured else f"{BEFORE} {NEXT}") * other


def compared(a: torch.Tensor, b: torch.Tensor) -> dict[str, Any]:
    """Largest difference, KL of b from a (nats) and whether the most probable token is the same."""
    a, b = a.double(), b.double()
    if a.shape != b.shape:
        return {"max_abs_diff": None, "kl": None, "same_token": False}
    p, q = a.log_softmax(-1), b.log_softmax(-1)
    return {
        "max_abs_diff": float((a - b).abs().max()),
        "kl": float((p.exp() * (p - q)).sum(-1).max()),
        "same_token": bool((a.argmax(-1) == b.argmax(-1)).all()),
    }


def _step(
    cfg: Config, folder: Path, say: Say, one: State, two: State
) -> tuple[tuple[torch.Tensor, torch.Tensor], list[Difference]]:
    """Logits `[batch, vocab]` after feeding both states the token that `one` would choose, and what was waived of them."""
    from harness.cache.registry import decoder
    from harness.pipeline.restore import identity_check
    from harness.pipeline.session import Session

    session = Session.open(cfg, folder, say)
    token = one.logits.argmax(-1, keepdim=True)
    results, waived = [], []
    for state, where in ((one, str(cfg.a)), (two, str(cfg.b))):
        waived += identity_check(session, state, where)[1]
        state = state.to(session.loaded.device)
        results.append(decoder(session.loaded, state, cfg.cache).step(token)[:, -1].cpu())
    return (results[0], results[1]), waived


def _filled(rows: list[list[str]]) -> tuple[list[str], list[list[str]]]:
    """The columns that any row has something in."""
    places = [place for place in range(len(COLUMNS)) if any(row[place] for row in rows)]
    return [COLUMNS[p] for p in places] or COLUMNS, [[row[p] for p in places] for row in rows]


def independent(deviations: list[Deviation]) -> list[Deviation]:
    """Those that do not follow from others; all, where nothing else differs."""
    return [d for d in deviations if not d.follows] or deviations


def _table(
    title: str, deviations: list[Deviation], text: str, fold: bool = False
) -> dict[str, Any]:
    heads, table = _filled([d.row() for d in deviations])
    rows = [[*map(html.digest, row)] for row in table]
    return html.section(title, text=text, columns=heads, rows=rows, fold=fold)


def _lossy(one: State, two: State) -> str:
    """How one of two states of the same tokens is pruned or quantized and the other is not, or otherwise; empty
    where it is not that by which they differ."""
    if not read_alike(one, two):
        return ""
    formats = [state.documents["kv_format"] for state in (one, two)]
    pruned = tokens_held(one) != tokens_held(two)
    coded = formats[0].get("quantized") != formats[1].get("quantized")
    parts = []
    for name, state, stored in zip("ab", (one, two), formats, strict=True):
        by = [str(stage["policy"]) for stage in stored.get("pruned") or ()]
        if pruned and by and reduced(state):
            some = on_average(*tokens_held(state), f" of {state.tokens} tokens")
            parts.append(f"snapshot {name} is pruned by {' and '.join(by)}: it holds {some}")
        by = [str(stage["quantizer"]) for stage in stored.get("quantized") or ()]
        if coded and by:
            parts.append(f"snapshot {name} is quantized by {' and '.join(by)}")
    clauses = [*between.dtypes(one, two), *parts] if parts else []
    return "".join(f"{clause}; " for clause in clauses)


def _reason(
    deviations: list[Deviation], held: dict[str, int], lossy: str, figures: dict[str, float | None]
) -> str:
    """What came out. held: how much of each was `compared`; lossy: what was done to one of them on purpose;
    figures: `figured`."""
    if not deviations:
        much = f"{many(held['tensors'], 'tensor')} of {held['numbers']:,} numbers"
        more = f"{many(held['documents'], 'document')} and {many(held['tokenizer_files'], 'tokenizer file')}"
        return f"the same state, bit for bit: {much} ({held['bytes']:,} bytes), {more}"
    gap = figures["largest_kv_difference"]
    if lossy and gap is not None:
        logits = next((d.gap for d in deviations if d.what == "logits"), 0.0)
        off = (
            f", which that does not change, differ by at most {number(logits)}"
            if logits
            else " are the same"
        )
        return f"{lossy}keys and values differ by at most {number(gap)}, the stored logits{off}"
    if lossy and consequence.only_pruned(deviations):
        return f"{lossy}the keys and values of these are the same in both, bit for bit, and nothing else differs"
    if {d.what for d in deviations} == {"rng"} and deviations[0].where != "form":
        return DRAWS
    own = independent(deviations)
    first, *others = own
    count = f"{len(own)} differences" if others else "one difference"
    if rest := len(deviations) - len(own):
        count += f", and {rest} that follow{'s' * (rest == 1)} from {'them' if others else 'it'}"
    count = f"{lossy}{count}{'; the first' * bool(others or rest)}"
    if first.what == "token_ids" and first.where != "form":
        texts = f"other texts, which part at {first.place} of what was read: {first.a} against {first.b}"
        if not others:
            return (
                texts
                + f"; {many(rest, 'difference')} follow{'s' * (rest == 1)} from that" * bool(rest)
            )
        return f"{texts}; {count.removesuffix('; the first')}"
    bits = f", by {first.bits}" if first.bits else ""
    raw = first.place == called(first.what, first.where)
    at = " at " if raw else " " if (first.what, first.where) in deviation.PLACES else ", "
    return f"{count} in {first.what}{at}{first.place}{bits}"
