"""`task=quality`: what pruning costs in what matters, against memory, for policies x budgets.

Every probe is captured once; every policy prunes that same State at every budget, at its true
positions, reindexed, and (the fault) with the length taken for the position. The full cache and the
random policy are the two ends.
"""

import time
from collections import defaultdict
from collections.abc import Iterator
from math import log
from pathlib import Path
from statistics import fmean, median
from typing import Any

import torch

from harness import variants
from harness.attention.turns import Turn
from harness.cache.registry import decoder as build_decoder
from harness.config import Config, at_least, sibling
from harness.errors import ConfigProblem, UnsupportedModel
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.prune import moves, observes, policy_of
from harness.pipeline.session import Session
from harness.prune.positions import length_as_position, reindexed
from harness.report.console import Say
from harness.snapshot.result import UNJUDGED
from harness.snapshot.state import State
from harness.task.quality import probes as probing
from harness.task.quality.probes import Probe

FULL = "full cache"
POSITIONS = ("original", "reindexed", "length as position")
NEAR = 0.25  # the budget that the findings speak of
TIMED = 4  # texts on which single steps are timed, one policy after the other


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Writes quality.json (one row per average with its interval), result.json and report.html."""
    task = cfg.task
    if not task.policies or not task.budgets:
        raise ConfigProblem("task=quality needs task.policies=[...] and task.budgets=[...].")
    for key, low in (("samples", 2), ("context", 16), ("follow", 2)):
        at_least(f"task.{key}", getattr(task, key), low)
    for share in task.budgets:
        if not 0 < share <= 1:
            raise ConfigProblem(f"task.budgets={share} is not possible: give 0 < share <= 1.")
    variants.check("task.policies", "prune", task.policies)
    for name in task.policies:
        policy_of(sibling("prune", cfg.prune, name, ratio=0.5))
    session = Session.open(cfg, folder, say)
    probes = [*probing.prose_probes(session)]
    if task.distances:
        probes += probing.recall_probes(session)
    say.stage(f"{len(probes)} probes, {len(task.policies)} policies, {len(task.budgets)} budgets")
    study = Study(session)
    for probe in probes:
        study.add(probe)
    say.done(f"{len(study.seen)} answers" + (f"; {study.refused}" if study.refused else ""))
    rows = study.rows()
    found = findings(rows)
    from harness.report import quality

    reason = f"{len(study.seen)} answers at {len(task.budgets)} budgets, measured"
    return finish_table(
        session, "quality", rows, quality.sections(rows, found, study.refused), UNJUDGED, reason,
        list(quality.COLUMNS), record={"findings": found, "refused": study.refused},
        shown_rows=quality.shown(rows),
    )  # fmt: skip


class Study:
    """All answers of one run, and their averages. seen: one flat mapping per answer."""

    def __init__(self, session: Session):
        self.session = session
        self.seen: list[dict[str, Any]] = []
        self.refused = ""
        self._turns: list[Turn | None] | None = None
        self._timings: dict[tuple[str, float], list[float]] = defaultdict(list)
        self._size: dict[tuple[str, float], tuple[list[int], list[int]]] = defaultdict(
            lambda: ([], [])
        )

    def _observes(self, name: str) -> int | None:
        return observes(sibling("prune", self.session.cfg.prune, name, ratio=0.5))

    def add(self, probe: Probe) -> None:
        """Answer `probe` from the full cache and from every pruned one."""
        needs = {n for n in map(self._observes, self.session.cfg.task.policies) if n is not None}
        states = probing.captured(self.session, probe, needs)
        reference = probing.answered(self.session, states[None], probe)
        timed = probe.where["measure"] == "text" and probe.where["seed"] < TIMED
        for name, budget, positions, state in [(FULL, 1.0, "original", states[None]), *self._pruned(states, probe)]:  # fmt: skip
            found = probing.answered(self.session, state, probe)
            self.seen.append(
                {
                    **probe.where, "policy": name, "budget": budget, "positions": positions,
                    "nll": found.nll, "full_nll": reference.nll, "right": found.right,
                    "kl": probing.divergence(found.logits, reference.logits),
                }
            )  # fmt: skip
            if positions == "original":
                kept, held = self._size[name, budget]
                kept.append(state.kept_tokens)
                held.append(state.kv_bytes)
                if timed:
                    self._timings[name, budget] += self._steps(state, probe)

    def _pruned(self, states: dict[int | None, State], probe: Probe) -> Iterator[tuple[str, float, str, State]]:  # fmt: skip
        cfg = self.session.cfg
        if self._turns is None and not self.refused:
            try:
                self._turns = moves(self.session.loaded, states[None])
            except UnsupportedModel as problem:
                self.refused = f"not reindexed: {problem}"
        for name in cfg.task.policies:
            for budget in cfg.task.budgets:
                keys = {"ratio": budget, "tokens": None, "seed": probe.where["seed"]}
                chosen = policy_of(sibling("prune", cfg.prune, name, **keys))
                assert chosen is not None
                small = chosen.prune(states[chosen.observes])
                yield name, budget, "original", small
                if budget < 1:
                    if self._turns is not None:
                        yield name, budget, "reindexed", reindexed(small, self._turns)
                    yield name, budget, "length as position", length_as_position(small)

    def _steps(self, state: State, probe: Probe) -> list[float]:
        """Seconds of single steps after `state`."""
        runner, seconds = build_decoder(self.session.loaded, state, self.session.cfg.cache), []
        for token in probe.follow[:12]:
            start = time.perf_counter()
            runner.step(torch.tensor([[token]])).cpu()  # waits for the device
            seconds.append(time.perf_counter() - start)
        return seconds[2:]

    def rows(self) -> list[dict[str, Any]]:
        """One row per average: measure, policy, budget, positions and what it is split by."""
        found = []
        for key, seen in _grouped(self.seen, "policy", "budget", "positions").items():
            place = dict(zip(("policy", "budget", "positions"), key, strict=True))
            kept, held = self._size[key[0], key[1]]
            steps = self._timings.get((key[0], key[1]))
            place |= {
                "kept_tokens": fmean(kept), "kv_bytes": fmean(held),
                "per_token_s": median(steps) if steps else None,
            }  # fmt: skip
            found += [{**row, **place} for row in _averages(seen)]
        return found


def _averages(seen: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    blank = {"asked": None, "distance": None, "depth": None}
    texts = [s for s in seen if s["measure"] == "text"]
    if texts:
        yield {"measure": "perplexity", **blank, **probing.geometric([s["nll"] for s in texts])}
        gaps = [s["nll"] - s["full_nll"] for s in texts]
        yield {"measure": "perplexity over full", **blank, **probing.geometric(gaps)}
        yield {"measure": "divergence", **blank, **probing.mean([s["kl"] for s in texts])}
    recall = [s for s in seen if s["measure"] == "recall"]
    for (asked,), some in _grouped(recall, "asked").items():
        named = {**blank, "measure": "recall", "asked": asked}
        yield {**named, **probing.share([s["right"] for s in some])}
        for (distance,), part in _grouped(some, "distance").items():
            yield {**named, "distance": distance, **probing.share([s["right"] for s in part])}
        for quarter in range(4):
            hits = [s["right"] for s in some if min(int(s["depth"] * 4), 3) == quarter]
            if hits:
                yield {**named, "depth": (quarter + 0.5) / 4, **probing.share(hits)}


def _grouped(rows: list[dict[str, Any]], *keys: str) -> dict[tuple, list[dict[str, Any]]]:
    groups: dict[tuple, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        groups[tuple(row[k] for k in keys)].append(row)
    return groups


def findings(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the rows say about the questions that matter, each with its figures, at the budget
    nearest to a quarter."""
    budgets = sorted(
        {r["budget"] for r in rows if r["policy"] != FULL}, key=lambda b: abs(b - NEAR)
    )
    near = budgets[0]

    def value(measure: str, policy: str, positions: str = "original", **where: Any) -> dict[str, Any] | None:  # fmt: skip
        wanted = {"asked": None, "distance": None, "depth": None, **where}
        wanted |= {"measure": measure, "policy": policy, "positions": positions}
        wanted["budget"] = 1.0 if policy == FULL else near
        return next((r for r in rows if all(r[k] == v for k, v in wanted.items())), None)

    found = []
    for name in sorted({r["policy"] for r in rows} - {FULL}):
        entry: dict[str, Any] = {"policy": name, "budget": near}
        for key, measure, where in (
            ("perplexity_over_full", "perplexity over full", {}),
            ("divergence", "divergence", {}),
            ("recall_asked_after", "recall", {"asked": "after pruning"}),
            ("recall_asked_before", "recall", {"asked": "before pruning"}),
        ):
            for positions in POSITIONS:
                if (row := value(measure, name, positions, **where)) is not None:
                    suffix = "" if positions == "original" else "_" + positions.replace(" ", "_")
                    entry[key + suffix] = row["value"]
                    if not suffix:
                        entry[f"{key}_interval"] = [row["low"], row["high"]]
        far = max((r["distance"] for r in rows if r["distance"]), default=None)
        for asked in ("after", "before"):
            row = value("recall", name, distance=far, asked=f"{asked} pruning")
            entry[f"recall_farthest_asked_{asked}"] = row and row["value"]
        if entry.get("perplexity_over_full_length_as_position"):
            fault = log(entry["perplexity_over_full_length_as_position"])
            pruning = log(entry["perplexity_over_full"])
            entry["fault_nats"], entry["pruning_nats"] = fault - pruning, pruning
        found.append(entry)
    return found
