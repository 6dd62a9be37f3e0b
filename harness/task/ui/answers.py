"""What was asked of branches and what was answered: verdicts, a comparison, how a branch went on elsewhere.
Each knows the place it is of, and goes into the autosave with it. No model in here."""

import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from harness.report.badge import SIGNS
from harness.snapshot.state import State
from harness.task.ui.continuation import Continued
from harness.task.ui.verdict import Proof

# shown of a proof
FIGURES = ("bitwise_equal", "max_abs_diff", "kl_max", "top1_agreement", "first_divergence")
log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Comparison:
    """Two branches' next-token logits. at: how many tokens each had when they were compared.
    parted: first place where their tokens differ, or None. stale: the logits are one and the same though
    the branches hold other keys and values: one of them has not been asked since.
    rows: `(id, text, probability in a, probability in b)`, of the most probable tokens of either."""

    a: str
    b: str
    at: tuple[int, int]
    parted: int | None
    metrics: dict[str, Any]
    rows: list[tuple[int, str, float, float]]
    stale: bool = False


@dataclass(frozen=True)
class Place:
    """Branch `name` as it stood when it was asked. state: None where it had gone on since when the server
    was started again."""

    name: str
    tokens: int
    state: State | None

    @classmethod
    def of(cls, name: str, state: State) -> "Place":
        """Where branch `name` stands, which is in `state`."""
        return cls(name, state.tokens, state)

    def stands(self, branches: Mapping[str, Any]) -> bool:
        """Whether the branch is still as it was."""
        now, then = branches[self.name].state if self.name in branches else None, self.state
        return (
            now is not None
            and then is not None
            and now.layers is then.layers
            and now.logits is then.logits
        )


@dataclass
class Answers:
    """judged: by branch, the last verdict on it. compared: the last comparison, and both its places. went:
    where the last branch from elsewhere came to, whose branch it was, and how it went on."""

    judged: dict[str, tuple[Place, Proof]] = field(default_factory=dict)
    compared: tuple[Place, Place, Comparison] | None = None
    went: tuple[Place, str, Continued] | None = None

    def document(self, branches: Mapping[str, Any]) -> dict[str, Any]:
        """All of it as JSON, with how each place stands among `branches`."""

        def noted(place: Place) -> dict[str, Any]:
            stands = place.stands(branches)
            return {"name": place.name, "tokens": place.tokens, "stands": stands}

        made: dict[str, Any] = {
            "judged": {
                name: {"place": noted(place), "made": asdict(proof)}
                for name, (place, proof) in self.judged.items()
                if name in branches
            }
        }
        if self.compared is not None:
            one, two, pair = self.compared
            made["compared"] = {"places": [noted(one), noted(two)], "made": asdict(pair)}
        if self.went is not None:
            end, here, went = self.went
            made["went"] = {"place": noted(end), "here": here, "made": asdict(went)}
        return made


def answers(document: Mapping[str, Any], branches: Mapping[str, Any]) -> Answers:
    """What `document` kept, of those of `branches` that came back. An answer that cannot be read is left out."""

    def place(told: Mapping[str, Any]) -> Place:
        name = str(told["name"])
        here = branches[name].state if name in branches and told["stands"] else None
        return Place(name, int(told["tokens"]), here)

    made = Answers()
    for name, told in dict(document.get("judged") or {}).items():
        with _Readable():
            if name in branches:
                proof = Proof(**told["made"])
                if proof.verdict not in SIGNS or not proof.metrics.keys() >= set(FIGURES):
                    raise ValueError(proof.verdict)
                made.judged[name] = place(told["place"]), proof
    if told := document.get("compared"):
        with _Readable():
            one, two = map(place, told["places"])
            rows = [
                (int(i), str(text), float(p), float(q)) for i, text, p, q in told["made"]["rows"]
            ]
            pair = Comparison(**{**told["made"], "rows": rows})
            if one.name in branches and two.name in branches:
                made.compared = one, two, pair
    if told := document.get("went"):
        with _Readable():
            ids = {key: tuple(map(int, told["made"][key])) for key in ("tokens", "here")}
            made.went = (
                place(told["place"]),
                str(told["here"]),
                Continued(**{**told["made"], **ids}),
            )
    return made


class _Readable:
    """What was kept by another version, or edited, is left out and noted in the log."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, problem: BaseException | None, trace: Any) -> bool:
        if isinstance(problem, KeyError | TypeError | ValueError | AttributeError):
            log.warning("an answer in the autosave cannot be read: %r", problem)
            return True
        return False
