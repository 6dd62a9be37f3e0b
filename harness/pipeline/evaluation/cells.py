"""The cells of an evaluation, and the State that each of them makes of one and the same prefill."""

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.capture import capture
from harness.capture.observe import observing, received
from harness.config import Config, sibling
from harness.errors import ConfigProblem, HarnessError, InputProblem
from harness.pipeline.prune import moves, policy_of, pruned, without_scores
from harness.pipeline.quantize import errors, quantizer_of
from harness.pipeline.session import Session
from harness.pipeline.step import joined
from harness.prune.base import Policy
from harness.prune.positions import reindexed
from harness.quantize.base import Quantizer
from harness.snapshot.codes import coded
from harness.snapshot.state import LayerState, Segment, State

ASKED = ("after", "before")


@dataclass(frozen=True)
class Cell:
    """budget: share of the context's tokens that stays."""

    prune: str = "none"
    quantize: str = "none"
    budget: float = 1.0

    def row(self) -> dict[str, Any]:
        return vars(self)


FULL = Cell()


@dataclass(frozen=True)
class Kept:
    """What a cell holds of one prompt. errors: of its codes, by measure; none where it has none."""

    cell: Cell
    state: State
    errors: dict[str, float]


class Cells:
    """Every combination that was asked for, the full cache first. Raises ConfigProblem for an unknown
    name or a list that is empty."""

    def __init__(self, cfg: Config):
        task = cfg.task
        for key in ("prunes", "quantizers", "budgets", "asked"):
            if not getattr(task, key):
                raise ConfigProblem(f"task.{key}=[] leaves nothing to evaluate. Name one or more.")
        for share in task.budgets:
            if not 0 < share <= 1:
                raise ConfigProblem(f"task.budgets={share} is not possible: give 0 < share <= 1.")
        for when in task.asked:
            if when not in ASKED:
                raise ConfigProblem(f"task.asked={when} is not possible: give after or before.")
        self._policies: dict[tuple[str, float], Policy] = {}
        self._quantizers: dict[str, Quantizer | None] = {"none": None}
        self.every = [FULL, *(cell for cell in dict.fromkeys(self._named(cfg)) if cell != FULL)]
        self._reindexed = cfg.prune.positions == "reindexed"
        self.served: set[str] = set()  # which implementations have answered so far

    def _named(self, cfg: Config) -> Iterator[Cell]:
        for name in cfg.task.quantizers:
            if name != "none":
                settings = sibling("quantize", cfg, name)
                self._quantizers[name] = quantizer_of(settings)
        for prune in cfg.task.prunes:
            for budget in [1.0] if prune == "none" else cfg.task.budgets:
                if prune != "none":
                    settings = sibling("prune", cfg, prune, ratio=budget, tokens=None)
                    policy = policy_of(settings)
                    assert policy is not None
                    self._policies[prune, budget] = policy
                yield from (Cell(prune, name, budget) for name in cfg.task.quantizers)

    def prefill(
        self, session: Session, ids: tuple[int, ...], prefix: int
    ) -> dict[int | None, State]:
        """The State after `ids`, once, with the attention that each kind of policy needs beside it.
        prefix: leading ids that stand before the text."""
        loaded, row = session.loaded, torch.tensor([ids])
        documents = {"prompt_meta": {"prefix_ids": list(ids[:prefix])}}
        with ExitStack() as stack:
            needs = {p.observes for p in self._policies.values()} - {None}
            observations = {need: stack.enter_context(observing(loaded, need)) for need in needs}
            state = capture(loaded, row, torch.ones_like(row), documents).state
        scored = {need: received(state, record) for need, record in observations.items()}
        return {None: state, **scored}

    def kept(self, session: Session, states: dict[int | None, State]) -> Iterator[Kept]:
        """What each cell makes of the prefill, the full cache first. `states` are only read."""
        turns = moves(session.loaded, states[None]) if self._reindexed else None
        smaller: dict[tuple[str, float], State] = {}
        for cell in self.every:
            place = (cell.prune, cell.budget)
            if place not in smaller:
                policy = self._policies.get(place)
                small = states[None]
                if policy is not None:
                    small = without_scores(_pruned(policy, states[policy.observes], cell))
                    small = small if turns is None else reindexed(small, turns)
                    layers = tuple(
                        joined(layer) if layer.segments else layer for layer in small.layers
                    )
                    small = small.with_layers(layers)
                smaller[place] = small
            quantizer = self._quantizers[cell.quantize]
            if quantizer is None:
                yield Kept(cell, smaller[place], {})
            else:
                coded = quantizer.quantize(smaller[place])
                yield Kept(cell, coded, _mean_errors(smaller[place], coded))

    def sources(self) -> list[list[str]]:
        """The text of every module from outside that prunes or quantizes here, by name."""
        makers = [*self._policies.values(), *self._quantizers.values()]
        modules = {sys.modules[type(made).__module__] for made in makers if made is not None}
        outside = [m for m in modules if not m.__name__.startswith("harness.") and m.__file__]
        return sorted([m.__name__, Path(str(m.__file__)).read_text("utf-8")] for m in outside)


def _pruned(policy: Policy, state: State, cell: Cell) -> State:
    """What `policy` leaves of `state`. Raises InputProblem that names the cell."""
    try:
        return pruned(policy, state)
    except HarnessError as problem:
        raise InputProblem(
            f"{cell.prune} at {cell.budget:.0%} of a prompt of {state.tokens} tokens: {problem} Or leave "
            f"it out: task.prunes (without {cell.prune}), task.budgets (without {cell.budget:g})."
        ) from problem


def _mean_errors(plain: State, coded: State) -> dict[str, float]:
    rows = errors(plain, coded)
    return {
        key: sum(row[key] for row in rows) / len(rows)
        for key in ("key_error", "value_error")
        if rows
    }


def together(contents: list[Kept]) -> Iterator[list[Kept]]:
    """The cells whose states have layers alike, so that they are decoded as rows of one batch."""
    groups: dict[Any, list[Kept]] = {}
    for one in contents:
        groups.setdefault(repr([_form(layer) for layer in one.state.layers]), []).append(one)
    for group in groups.values():
        size = max(MOST // max(group[0].state.kv_bytes, 1), 1)
        size = min(size, ROWS)
        yield from (group[at : at + size] for at in range(0, len(group), size))


def _form(layer: LayerState) -> list[Any]:
    """What layers have in common that can be rows of one."""
    return [
        (coded([s]), [(part, t.dtype, t.shape) for part, t in s.tensors() if part != "positions"])
        for s in layer.segments
    ]


ROWS, MOST = 32, 1 << 28  # rows and bytes of K/V that are copied side by side


def stacked(states: list[State]) -> State:
    """States of one row each as the rows of one; the same object where there is one."""
    if len(states) == 1:
        return states[0]
    layers = tuple(
        replace(
            first,
            segments=tuple(
                Segment.stacked(parts)
                for parts in zip(*(s.layers[first.index].segments for s in states), strict=True)
            ),
            recurrent={
                name: torch.cat([s.layers[first.index].recurrent[name] for s in states])
                for name in first.recurrent
            },
        )
        for first in states[0].layers
    )
    names = ("token_ids", "attention_mask", "next_position", "logits")
    rows: dict[str, Any] = {name: torch.cat([getattr(s, name) for s in states]) for name in names}
    return replace(states[0], layers=layers, **rows)
