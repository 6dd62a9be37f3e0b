"""What a sweep found: its settings ranked best first, and typed notes. Console, page, MLflow and audit read it."""

import json
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from math import inf
from pathlib import Path
from statistics import median
from typing import Any, Literal

from harness.results.points import (
    BYTES,
    CHOICE,
    FROM_1,
    KL,
    RIGHT,
    SAFE,
    STOPPED,
    Row,
    as_near,
    asks,
    distance,
    full_cache,
    group,
    is_seed,
    quantized,
    varied,
    why,
    word,
)  # fmt: skip
from harness.snapshot import objective
from harness.snapshot.objective import ANSWERS, directions
from harness.snapshot.result import GOOD, ORDER, UNJUDGED, tallied

CONTROL = "random"  # prune=random: never recommended beside a policy
HEADER = 1.001  # two sizes within a thousandth tie: a header is a few digits longer
SMALL_SAMPLE = 8  # prompts

NoteCode = Literal[
    "stopped", "below_requirement", "no_answer_right", "damage", "seed_inert", "quantizer_idle", "control_as_close",
    "all_mutate_cache", "few_prompts", "near_tie", "tied", "limit_not_reached",
]  # fmt: skip


@dataclass(frozen=True)
class Note:
    """One caveat: a code that `present` turns into a sentence, and the values it names."""

    code: NoteCode
    args: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Setting:
    """Points that share every option and differ only in what they were asked (text, seed, ...)."""

    options: dict[str, str]
    points: tuple[Row, ...]
    missing: int = 0  # questions that it was not asked

    @cached_property
    def ran(self) -> list[Row]:
        return [row for row in self.points if row["verdict"] not in STOPPED]

    @cached_property
    def distance(self) -> float:
        return median([distance(row) for row in self.ran] or [inf])

    @cached_property
    def bytes(self) -> float:
        """Of its keys and values too, where memory alone holds them."""
        sizes = [
            (r.get("stored_bytes") or inf) + (r.get("kv_bytes") or 0) * (r.get("save") == "memory")
            for r in self.ran
        ]
        return median(sizes or [inf])

    @cached_property
    def before_distance(self) -> tuple[int, ...]:
        """What ranks before any figure, smallest first."""
        missed = sum(int(row["exit_code"]) != 0 for row in self.points)
        wrong = sum(row.get("answer") == "wrong" for row in self.points)
        worst = max(_rank(row["verdict"]) for row in self.ran or self.points)
        memory = any(row.get("save") == "memory" for row in self.points)
        return (missed + self.missing, wrong, self.mutates, memory, worst)

    @cached_property
    def key(self) -> tuple[Any, ...]:
        changed = any(r["verdict"] == "diverged" and r.get("answer") != "right" for r in self.ran)
        exact = all(row["verdict"] in GOOD for row in self.ran)  # rounding ranks nothing
        near = 0.0 if exact else self.distance
        return (*self.before_distance, near if changed else 0.0, self.bytes, near)

    @property
    def mutates(self) -> bool:
        return any(str(row.get("mutated")) == "True" for row in self.points)

    @property
    def control(self) -> bool:
        return any(row.get("prune") == CONTROL for row in self.points)

    @property
    def meets(self) -> bool:
        return not self.before_distance[0]


def _rank(verdict: Any) -> int:
    return ORDER.index(verdict if verdict in ORDER else UNJUDGED)


def _tied(one: Setting, other: Setting) -> bool:
    """Whether `other`, which ranks behind `one`, is as good in all that ranks."""
    small = other.bytes <= HEADER * one.bytes or one.bytes == inf
    return (
        one.before_distance == other.before_distance
        and as_near(other.key[-1], one.key[-1])
        and small
    )


def ranked(settings: Iterable[Setting]) -> list[Setting]:
    """Best first; of those within 5% of the nearest the smallest leads."""
    order = sorted(settings, key=lambda setting: setting.key)
    if not order:
        return []
    first = order[0]

    def near(other: Setting) -> bool:
        return first.before_distance == other.before_distance and as_near(
            other.key[5], first.key[5]
        )

    return sorted(order, key=lambda s: (not near(s), s.key[6:] if near(s) else s.key))


@dataclass(frozen=True)
class Sweep:
    """points: a row each. asked: how many were asked for. ways: objective -> 1 (more is better), -1 or 0. settings: best
    first. tied: settings as good as the best. front: points of a search that no other beats, the best first."""

    folder: Path
    points: tuple[Row, ...]
    asked: int
    ways: dict[str, int]
    axes: tuple[str, ...]
    settings: tuple[Setting, ...]
    baseline: Setting | None
    best: Setting | None
    tied: tuple[Setting, ...]
    front: tuple[Row, ...]
    notes: tuple[Note, ...]

    @cached_property
    def counts(self) -> dict[str, int]:
        """How many points came out how, what is not as required first."""
        return tallied((word(row), not int(row["exit_code"])) for row in self.points)

    @property
    def searched(self) -> bool:
        """Whether objectives say it all: nothing was judged."""
        return bool(self.ways) and all(row["verdict"] == UNJUDGED for row in self.points)

    @property
    def evaluated(self) -> list[Row]:
        """The points that are evaluations."""
        return [row for row in self.points if CHOICE in row]

    @cached_property
    def marked(self) -> tuple[str, ...]:
        """The recommended points, by name."""
        if self.ways:
            return tuple(row["point"] for row in self.front[:1])
        settings = [self.best, *self.tied] if self.best else []
        return tuple(row["point"] for setting in settings for row in setting.ran)

    @property
    def best_point(self) -> str:
        """The one point that stands for the sweep; empty where several questions were asked."""
        return (
            self.marked[0] if len(self.marked) == 1 or (self.marked and not self.questions) else ""
        )

    @property
    def questions(self) -> list[str]:
        return [axis for axis in self.axes if asks(axis)]

    @property
    def alike(self) -> list[str]:
        """The points of the best setting under several seeds, whose medians stand for the sweep."""
        seeds = self.best and len(self.best.points) > 1 and all(map(is_seed, self.questions))
        return [row["point"] for row in self.best.ran] if self.best and seeds else []

    @property
    def sought(self) -> list[str]:
        """The figures that the sweep's own run has of its points beside those of every sweep."""
        return [RIGHT, BYTES, KL] if any(row.get(CHOICE) for row in self.points) else [*self.ways]

    def named(self, row: Row) -> str:
        """A point by what varies; by its number where nothing does."""
        return " ".join(f"{axis}={row.get(axis)}" for axis in self.axes) or str(row["point"])


def sweep_of(folder: Path, points: Sequence[Row], asked: int | None = None) -> Sweep:
    """The facts of the sweep in `folder`. points: as of `rows`, of evaluations with their cells (`answers.completed`)."""
    ways = ways_of(folder, points)
    axes = varied(points, ways)
    questions = [axis for axis in axes if asks(axis)]
    options = [axis for axis in axes if not asks(axis)]
    many = len(group(points, questions))
    settings = ranked(
        Setting(dict(zip(options, values, strict=True)), tuple(some), max(many - len(some), 0))
        for values, some in group(points, options).items()
    )
    reduced = {"prune", "quantize"} & {axis.partition(".")[0] for axis in options}
    full = [s for s in settings if all(map(full_cache, s.points))] if reduced else []
    candidates = [s for s in settings if s not in full] or settings
    best, tied = _best(candidates, axes)
    if any(CHOICE in row for row in points):
        best, tied = _best_cell(candidates, questions), []
    front = _front(points, ways)
    found = Sweep(
        folder, tuple(points), asked or len(points), ways, tuple(axes), tuple(settings),
        full[0] if full and len(full) < len(settings) else None, best, tuple(tied), tuple(front), (),
    )  # fmt: skip
    object.__setattr__(found, "notes", tuple(_notes(found, candidates)))
    return found


def _best(candidates: list[Setting], axes: Sequence[str]) -> tuple[Setting | None, list[Setting]]:
    """The setting to choose and those that tie with it; none where all tie, or where damage was varied."""
    policies = [s for s in candidates if not s.control] or candidates
    usable = [s for s in policies if not s.mutates and s.ran and s.distance < inf]
    if "fault" in axes or not usable or len([s for s in candidates if s.ran]) < 2:
        return None, []
    best, *others = usable
    tied = [s for s in others if _tied(best, s)]
    everyone = len(tied) == len(candidates) - 1
    return (None, []) if everyone else (best, tied)


def _best_cell(settings: list[Setting], questions: Sequence[str]) -> Setting | None:
    """Of evaluations: the smallest that is safe, else the nearest; the same cell under every seed."""

    def key(setting: Setting) -> tuple[Any, ...]:
        points = setting.points
        if all(row[SAFE] for row in points):
            return (0, median(r[BYTES] for r in points), -median(r[RIGHT] for r in points))
        return (1, -median(r[RIGHT] for r in points), median(r[BYTES] for r in points))

    known = [s for s in settings if all(row.get(CHOICE) for row in s.points)]
    known = [s for s in known if not s.missing and len({row[CHOICE] for row in s.points}) == 1]
    return min(known, key=key) if known and all(map(is_seed, questions)) else None


def ways_of(folder: Path, points: Sequence[Row]) -> dict[str, int]:
    """What a search looks for; of evaluations with one cell each the first two figures that are not all alike."""
    wanted = directions(folder)
    if wanted or not points or any(map(asks, varied(points))):
        return wanted
    names = [n for n in ANSWERS if len({row[n] for row in points if n in row}) > 1]
    return {name: ANSWERS[name] for name in names[:2]}


def _front(points: Sequence[Row], ways: dict[str, int]) -> list[Row]:
    """The points that no other beats, the best by the first objective first; nearest points within 5% by the next."""
    best = [points[place] for place in objective.front(points, ways)]

    def key(row: Row) -> tuple[float, ...]:
        return tuple(-way * row[name] for name, way in ways.items())

    best.sort(key=key)
    if best and next(iter(ways.items())) == ("metrics.kl_mean", -1):
        least = best[0]["metrics.kl_mean"]
        best.sort(key=lambda r: (not as_near(r["metrics.kl_mean"], least), key(r)[1:], key(r)))
    return best


# --- the notes


def _notes(sweep: Sweep, candidates: list[Setting]) -> Iterator[Note]:
    points, axes = sweep.points, sweep.axes
    yield from _stopped(sweep)
    if "fault" in axes:
        yield from _damage(sweep)
    elif short := [
        sweep.named(r) for r in points if int(r["exit_code"]) and r["verdict"] not in STOPPED
    ]:
        yield Note("below_requirement", {"n": len(short), "of": len(points), "points": short})
    if any(r.get("answer") for r in points) and not any(r.get("answer") == "right" for r in points):
        yield Note("no_answer_right")
    if "seed" in axes and all(r.get("sampling") == "greedy" for r in points) and _inert(sweep):
        yield Note("seed_inert")
    if idle := sorted(_idle_quantizers(points, axes)):
        yield Note("quantizer_idle", {"quantizers": idle})
    near = [
        sweep.named(r) for r in points if r["verdict"] == "equivalent" and r.get(FROM_1) is not None
    ]
    if near:
        yield Note("near_tie", {"points": near})
    if len(candidates) > 1 and all(s.mutates for s in candidates):
        yield Note("all_mutate_cache")
    yield from _of_best(sweep, candidates)
    yield from _limit(sweep)


def _of_best(sweep: Sweep, candidates: list[Setting]) -> Iterator[Note]:
    best = sweep.best
    if not best or sweep.evaluated or sweep.ways:
        return
    control = [s for s in candidates if s.control and s.ran]
    lossy = best.key[4] > _rank(GOOD[-1])
    if (
        control
        and not best.control
        and lossy
        and as_near(min(s.distance for s in control), best.distance)
    ):
        yield Note("control_as_close", {"nats": min(s.distance for s in control)})
    if sweep.tied:
        yield Note("tied", {"settings": [s.options for s in sweep.tied]})
    prompts = len(best.points)
    if prompts <= SMALL_SAMPLE and any(
        r["verdict"] in ("drifted", "diverged") for r in best.points
    ):
        yield Note("few_prompts", {"n": prompts})


def _stopped(sweep: Sweep) -> Iterator[Note]:
    """Points that came to no end, those with the same reason in one note."""
    alike: dict[tuple[str, str], tuple[dict[str, Any], list[str]]] = {}
    for row in sweep.points:
        if row["verdict"] in STOPPED:
            reason = why(row)
            key = row["verdict"], json.dumps(reason, sort_keys=True, default=str)
            alike.setdefault(key, (reason, []))[1].append(row["point"])
    for (verdict, _), (reason, names) in alike.items():
        yield Note("stopped", {"points": names, "verdict": verdict, "reason": reason})


def _damage(sweep: Sweep) -> Iterator[Note]:
    """Whether points that were damaged on purpose were noticed."""
    harmed = [r for r in sweep.points if str(r.get("fault") or "none") != "none" and r["verdict"] != "failed"]  # fmt: skip
    missed = [
        sweep.named(r) for r in harmed
        if r["verdict"] != "refused" and str(r.get("restore") or r["verdict"]) in GOOD
    ]  # fmt: skip
    if harmed:
        yield Note(
            "damage", {"noticed": len(harmed) - len(missed), "of": len(harmed), "missed": missed}
        )


def _inert(sweep: Sweep) -> bool:
    """Whether every figure is the same for each seed."""
    groups = group(sweep.points, [axis for axis in sweep.axes if axis != "seed"]).values()
    keys = ("verdict", "kl_mean", "max_abs_diff", "top1_agreement")
    return all(len({tuple(r.get(k) for k in keys) for r in some}) == 1 for some in groups)


def _idle_quantizers(points: Sequence[Row], axes: Sequence[str]) -> set[str]:
    """Quantizers whose every figure is that of `quantize=none`."""
    keys = ("kv_bytes", "kl_mean", "max_abs_diff", "top1_agreement")
    others = [axis for axis in axes if axis.partition(".")[0] != "quantize"]
    found = set()
    for some in group(points, others).values() if "quantize" in axes else ():
        plain = {tuple(r.get(k) for k in keys) for r in some if r["quantize"] == "none"}
        judged = [r for r in some if r["verdict"] not in STOPPED and r.get("kl_mean") is not None]
        found |= {
            str(r["quantize"])
            for r in judged
            if quantized(r) and tuple(r.get(k) for k in keys) in plain
        }
    return found


def _limit(sweep: Sweep) -> Iterator[Note]:
    """A search for as much as possible in as little as possible whose best point is the end of its range."""
    ways, axes, points = sweep.ways, sweep.axes, sweep.points
    if (
        sorted(ways.values()) != [-1, 1]
        or len(sweep.front) != 1
        or len(axes) != 1
        or len(points) < 3
    ):
        return
    good = max(ways, key=lambda name: ways[name])
    with suppress(TypeError, ValueError):
        tried, chosen = [float(r[axes[0]]) for r in points], float(sweep.front[0][axes[0]])
        if len({row.get(good) for row in points}) == 1 and chosen in (min(tried), max(tried)):
            side = "below" if chosen == min(tried) else "above"
            yield Note("limit_not_reached", {"option": axes[0], "side": side, "value": chosen})
