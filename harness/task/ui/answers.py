"""Answers about branches (verdicts, a comparison, a continuation elsewhere), each with the state it is about."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from harness.snapshot.state import State
from harness.task.ui.continuation import Continued
from harness.task.ui.verdict import Proof


@dataclass(frozen=True)
class Comparison:
    """Next-token logits of two branches. at: tokens of each. parted: first place where their tokens
    differ, or None. stale: the logits are equal though keys and values differ: one branch has not been
    asked since it was pruned or quantized. rows: `(id, text, probability in a, probability in b)`."""

    a: str
    b: str
    at: tuple[int, int]
    parted: int | None
    metrics: dict[str, Any]
    rows: list[tuple[int, str, float, float]]
    stale: bool = False


@dataclass(frozen=True)
class Place:
    """Branch `name` when it was asked."""

    name: str
    state: State

    def current(self, branches: Mapping[str, Any]) -> bool:
        """Whether the branch has not changed since."""
        now = branches[self.name].state if self.name in branches else None
        return (
            now is not None and now.layers is self.state.layers and now.logits is self.state.logits
        )


@dataclass
class Answers:
    """judged: the last verdict by branch. compared: the last comparison, with both places. went: the last
    continuation elsewhere: the branch it made, the branch it began from, and its tokens."""

    judged: dict[str, tuple[Place, Proof]] = field(default_factory=dict)
    compared: tuple[Place, Place, Comparison] | None = None
    went: tuple[Place, str, Continued] | None = None
