"""`task=architectures`: every family, tiny and random, as a user's: from a folder, saved, resumed and
judged (row `auto`), then through every cache by name.

Each cell is the worst of its cases: pasts below, around and beyond the window, several new tokens at
once and then one by one, a batch of two with left padding. Errors are taken against a float64 run
without a cache. Where the library's own cached path is far from that, the row of `dynamic` says so,
and the others are held against the cached path they continue.
"""

import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness import machine
from harness.cache.registry import check as check_caches
from harness.cache.registry import decoder as build_decoder
from harness.capture import capture, positions_of, prefill, static_cache
from harness.compare.verdict import FACTOR
from harness.config import Config, ModelConfig
from harness.errors import ConfigProblem, HarnessError, UnsupportedModel, suggestion
from harness.model.loaded import Loaded, load
from harness.pipeline import drive, yardstick
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.session import Session
from harness.report.terminal.console import Say
from harness.snapshot.result import GOOD
from harness.snapshot.state import State
from harness.task.architectures.door import FAILED, Passage, first_line, through
from harness.task.architectures.families import COMMON, FAMILIES, WINDOW

# past tokens, batch: below the window, one short of it, at it, far beyond it; padded
CASES = ((5, 1), (WINDOW - 1, 1), (WINDOW, 1), (3 * WINDOW - 3, 1), (2 * WINDOW + 5, 2))
NEW = (3, 1, 1)  # tokens fed at each step
AUTO = "auto"  # what the command line takes where no cache is named
WRONG = ("drifted", "diverged", FAILED)
FAR = 32  # a cached path this many times the noise away from recomputation disagrees with it


@dataclass
class Findings:
    """What one cache did over the cases of one family."""

    exact: bool = True
    error: float = 0.0  # largest distance from the float64 run
    gap: float = 0.0  # largest distance from the library's cached path
    library: float = 0.0  # static only: how far the library's own use of it is from the float64 run
    refused: str | None = None
    failed: str | None = None


@dataclass
class Family:
    """All findings of one family, and how far the plain paths are from the float64 run."""

    name: str
    caches: dict[str, Findings]
    noise: float = 0.0  # of one uncached pass
    plain: float = 0.0  # of the uninterrupted, cached run
    unsupported: str | None = None
    passage: Passage | None = None


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """All families, or those of `task.families`; `architectures.json` and one page. The verdict is
    `diverged` when a cell of a cache of ours is wrong, else the worst of them."""
    check_caches("task.caches", cfg.task.caches)
    chosen = cfg.task.families or list(FAMILIES)
    for name in chosen:
        if name not in FAMILIES:
            near = suggestion(name, list(FAMILIES))
            raise ConfigProblem(f"task.families: '{name}' is not in the table.{near}")
    session = Session.open(cfg, folder, say)
    rows: list[dict[str, Any]] = []
    for name in chosen:
        say.stage(name)
        fresh = rows_of(examine(name, cfg))
        rows += fresh
        say.done(", ".join(f"{r['cache']} {r['outcome']}" for r in fresh))
    from harness.report.architectures import sections

    wrong = [r for r in rows if r["outcome"] in WRONG and r["cache"] != "dynamic"]
    good = Counter(r["cache"] for r in rows if r["outcome"] in GOOD)
    counts = ", ".join(f"{cache} {good[cache]}" for cache in (AUTO, *cfg.task.caches))
    reason = (
        f"{machine.many(len(chosen), 'family')}; exact or equivalent: {counts}; wrong: {len(wrong)}"
    )
    verdict = "diverged" if wrong else "equivalent"
    columns = ["family", "cache", "outcome", "save", "resume", "error_ratio"]
    return finish_table(
        session,
        "architectures",
        rows,
        sections(rows),
        verdict,
        reason,
        columns,
        closing=f"families:     {reason}",
    )


def examine(name: str, cfg: Config) -> Family:
    """Run every case of one family through every cache."""
    kind, values = FAMILIES[name]
    family = Family(name, {cache: Findings() for cache in cfg.task.caches})
    values = {k: v for k, v in {**COMMON, **values}.items() if v is not None}
    with tempfile.TemporaryDirectory(prefix="harness-") as place:
        family.passage = through(kind, values, cfg, Path(place))
        _cells(family, cfg, Path(place) / "model")
    return family


def _cells(family: Family, cfg: Config, model: Path) -> None:
    """Every case through every cache, on the very model that went through the door."""
    try:
        loaded = load(ModelConfig("path", path=str(model)), "float32", cfg.device)
        for number, (tokens, batch) in enumerate(CASES):
            _case(loaded, family, cfg, tokens, batch, cfg.seed + number)
    except UnsupportedModel as problem:  # at capture: no cache could serve it
        family.caches = {c: Findings(refused=first_line(problem)) for c in family.caches}
    except Exception as problem:  # any library error means: not with this model
        family.unsupported = first_line(problem)


def _case(loaded: Loaded, family: Family, cfg: Config, tokens: int, batch: int, seed: int) -> None:
    draw = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, COMMON["vocab_size"], (batch, tokens), generator=draw)
    mask = torch.ones_like(ids)
    for row in range(1, batch):
        mask[row, : 4 * row] = 0
        ids[row, : 4 * row] = 0
    fed = torch.randint(3, COMMON["vocab_size"], (batch, sum(NEW)), generator=draw)
    captured = capture(loaded, ids, mask, {})
    live = drive.Uninterrupted(loaded, captured.live, captured.state)
    plain = _drive(live, fed)
    oracle = yardstick.alone(loaded.oracle, captured.state, fed)
    recomputed = yardstick.alone(loaded, captured.state, fed)
    family.noise = max(family.noise, _distance(recomputed, oracle))
    family.plain = max(family.plain, _distance(plain, oracle))
    for name, findings in family.caches.items():
        if findings.refused or findings.failed:
            continue
        try:
            decoder = build_decoder(loaded, captured.state, replace(cfg.cache, name=name))
            before = decoder.fingerprint(True)
            logits = _drive(decoder, fed)
        except HarnessError as problem:
            findings.refused = first_line(problem)
            continue
        except Exception as problem:
            findings.failed = first_line(problem)
            continue
        if name != "dynamic" and decoder.fingerprint(True) != before:
            findings.failed = "it changed what the caller handed in"
        findings.exact = findings.exact and torch.equal(logits, plain)
        findings.error = max(findings.error, _distance(logits, oracle))
        findings.gap = max(findings.gap, _distance(logits, plain))
        if name == "static":
            with suppress(Exception):  # the library cannot do it alone: ours is judged for itself
                distance = _library_static(loaded, captured.state, fed, oracle)
                findings.library = max(findings.library, distance)


def _library_static(loaded: Loaded, state: State, fed: torch.Tensor, oracle: torch.Tensor) -> float:
    """Distance from `oracle` of the library's own static cache, filled by its own prefill."""
    mask = state.attention_mask
    cache = static_cache(loaded, state.tokens + fed.shape[1])
    logits = prefill(loaded, state.token_ids, mask, positions_of(mask), cache)
    live = drive.Uninterrupted(loaded, cache, state.unpruned(logits[:, -1]))
    return _distance(_drive(live, fed), oracle)


def rows_of(family: Family) -> list[dict[str, Any]]:
    """A row for the front door and one per cache: family, cache, outcome, reason, error_ratio, and how
    far the family came at the door: save, resume, verdict."""
    apart = family.plain > FAR * family.noise
    door = family.passage
    assert door is not None
    fate = {"save": door.save, "resume": door.resume, "verdict": door.verdict}
    first = {"family": family.name, "cache": AUTO, "outcome": door.verdict, "reason": door.reason}
    rows: list[dict[str, Any]] = [{**first, "error_ratio": door.ratio, **fate}]
    for name, findings in family.caches.items():
        outcome, reason, ratio = _judged(name, findings, family, apart)
        row = {"family": family.name, "cache": name, "outcome": outcome, "reason": reason}
        rows.append({**row, "error_ratio": ratio, **fate})
    return rows


def _judged(
    name: str, findings: Findings, family: Family, apart: bool
) -> tuple[str, str, float | None]:
    if family.unsupported:
        return "unsupported", f"the library cannot run it here: {family.unsupported}", None
    if findings.refused:
        return "refused", findings.refused, None
    if findings.failed:
        library = name in ("static", "deepcopy")
        return ("unsupported" if library else "diverged"), findings.failed, None
    base = max(family.plain, family.noise)  # two plain float32 paths; neither is favoured
    ratio = findings.error / base if base else 1.0
    far = f"{family.plain:.2g} from recomputation (noise {family.noise:.2g})"
    says = f"the library's own cached path is {far}"
    if apart and name == "dynamic":
        return "drifted", says, ratio
    if findings.exact:
        return "exact", says if apart else "bit-equal to the uninterrupted run", ratio
    if apart:  # held against the path it continues; the noise of two float32 runs is the scale
        near = min(findings.gap, findings.error) <= 2 * FACTOR * family.noise
        return ("equivalent" if near else "diverged"), f"{findings.gap:.2g} from it; {says}", ratio
    if name == "static" and findings.library > FACTOR * base:
        far = f"{findings.library:.2g} from recomputation"
        return "unsupported", f"the library's own static path is {far}", ratio
    ratio = findings.error / max(base, findings.library) if base else ratio
    rule = f"error against float64 {findings.error:.2g}, plain path {family.plain:.2g}"
    return ("equivalent" if ratio <= FACTOR else "diverged"), rule, ratio


def _drive(runner: Any, fed: torch.Tensor) -> torch.Tensor:
    return torch.cat([runner.step(part) for part in fed.split(NEW, dim=1)], dim=1)


def _distance(logits: torch.Tensor, oracle: torch.Tensor) -> float:
    return float((logits.double() - oracle.double()).abs().max())
