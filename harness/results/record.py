"""How an audit holds each value of `result.json` to a second run: the facts of a judged run, and of the blocks beside them.

Where nothing that decides the bits has changed, every value is repeated but `time` and `skip`. Elsewhere `noise` lies within what
rounding explains (a word or a count that hangs on rounding is not compared), and so does any float that has no field here;
everything else is the same.
"""

import re
from dataclasses import dataclass
from typing import Any

from harness.results.fact import Compare, block, fact, facts
from harness.results.metric import registered
from harness.results.run import Run

TIMED = ("_s", "_s_per_token", "seconds", "_growth", "time_ratio", "resident_bytes")  # ends of keys
INDEX = re.compile(r"\[\d+\]")


@dataclass(frozen=True)
class Scale:
    error: float | None = fact("error of the uncached run", compare="noise")
    against: str | None = fact(compare="skip")


@dataclass(frozen=True)
class PlainPath:
    path: str | None = fact("plain cached run", compare="skip")
    error: float | None = fact("difference", compare="noise")
    bound: float | None = fact("explained", compare="noise")


@dataclass(frozen=True)
class Soundness:
    sound: bool | None = fact("yardstick sound")
    scale: Scale | None = block(Scale)
    paths: PlainPath | None = block(PlainPath)


@dataclass(frozen=True)
class Check:
    name: str | None = fact("check")
    outcome: str | None = fact("outcome")
    code: str | None = fact("code")
    figures: dict[str, Any] | None = fact("figures", compare="noise")


@dataclass(frozen=True)
class Arguments:
    """Of a reason: those that are not compared as a figure."""

    takes_s: float | None = fact("estimate of what judging takes", unit="s", compare="time")


@dataclass(frozen=True)
class Reason:
    """A sentence in older records, which says nothing that is no fact elsewhere."""

    code: str | None = fact("reason")
    args: dict[str, Any] | None = fact(compare="noise")


@dataclass(frozen=True)
class Diagnosis:
    cause: str | None = fact("cause")
    element: str | None = fact("element")
    layer: int | None = fact("first layer beyond the noise")
    head: int | None = fact("first head beyond the noise")
    token: int | None = fact("first token beyond the noise")
    evidence: str | None = fact("evidence", compare="skip")
    picture: list[Any] | None = fact("errors by layer and token, in noise floors", compare="noise")


@dataclass(frozen=True)
class Itself:
    """A pruned or quantized state beside itself, before it was saved or under another cache."""

    cache: str | None = fact("beside itself under cache")
    verdict: str | None = fact("verdict on the restore alone", compare="noise")
    reason: str | None = fact(compare="skip")
    max_abs_diff: float | None = fact("largest logit difference to itself", compare="noise")
    kl_max: float | None = fact("KL to itself, largest", compare="noise")
    top1_agreement: float | None = fact("same top token as itself", compare="noise")
    noise: float | None = fact("noise floor of itself", compare="noise")


@dataclass(frozen=True)
class Difference:
    """What of a snapshot a restore refused: `element` and `field` are exact."""

    saved: str | None = fact(compare="noise")
    found: str | None = fact(compare="noise")
    consequence: str | None = fact(compare="skip")


@dataclass(frozen=True)
class Snapshot:
    id: str | None = fact("snapshot", compare="noise")
    path: str | None = fact(compare="skip")


@dataclass(frozen=True)
class Environment:
    """What of it follows from the configuration; the rest says whether the bits may differ."""

    seed: int | None = fact("seed")
    sampling_seed: int | None = fact("sampling seed")
    model_seed: int | None = fact("model seed")
    dtype: str | None = fact("dtype")
    attention_implementation: str | None = fact("attention implementation")


@dataclass(frozen=True)
class Written:
    """What a resume wrote (`next`); nothing where it is run again."""

    digest: str | None = fact(compare="noise")


@dataclass(frozen=True)
class Account:
    why: str | None = fact(compare="skip")


@dataclass(frozen=True)
class Text:
    account: Account | None = block(Account)


@dataclass(frozen=True)
class Known:
    """What a refusal had read by then."""

    environment: dict[str, Any] | None = fact(compare="skip")
    snapshot_id: str | None = fact("snapshot", compare="noise")


@dataclass(frozen=True)
class Served:
    passed_over: Any = fact(compare="noise", meaning="what a machine cannot serve")


@dataclass(frozen=True)
class Options:
    track: str | None = fact(compare="skip")


@dataclass(frozen=True)
class Evaluated:
    resumed: Any = fact(compare="skip")


@dataclass(frozen=True)
class Turn:
    """Of chat.json."""

    snapshot: str | None = fact(compare="skip")
    stored_bytes: int | None = fact(compare="skip")
    stored_whole: int | None = fact(compare="skip")


@dataclass(frozen=True)
class Step:
    """Of trace.json."""

    probability: float | None = fact(compare="noise")
    top: list[Any] | None = fact(compare="noise")


@dataclass(frozen=True)
class Record(Run):
    """The same, and every other block of which some value is not simply the same in a second run."""

    environment: Any = fact(compare="skip")
    reason: Any = fact(compare="skip")
    conclusion: str | None = fact(compare="skip")
    remedy: str | None = fact(compare="skip")
    stage: str | None = fact(compare="skip")
    stages: Any = fact(compare="skip")
    faults: list[str] | None = fact(compare="noise")
    date: str | None = fact(compare="skip")
    code: str | None = fact(compare="skip")
    git: Any = fact(compare="skip")
    folder: str | None = fact(compare="skip")
    mlflow: Any = fact(compare="skip")
    curves: Any = fact("figures per step", compare="noise")
    soundness: Soundness | None = block(Soundness)
    checks: Check | None = block(Check)
    diagnosis: Diagnosis | None = block(Diagnosis)
    itself: Itself | None = block(Itself)
    differences: Difference | None = block(Difference)
    snapshot: Snapshot | None = block(Snapshot)
    text: Text | None = block(Text)
    known: Known | None = block(Known)
    cache: Served | None = block(Served)
    options: Options | None = block(Options)
    evaluation: Evaluated | None = block(Evaluated)
    turns: Turn | None = block(Turn)
    trace: Step | None = block(Step)


COMPARED: dict[str, Compare] = {
    **{path: known.compare for path, known in facts(Record)},
    **{path: known.compare for path, known in facts(Environment, "environment.")},
    **{path: known.compare for path, known in facts(Reason, "reason.")},
    **{path: known.compare for path, known in facts(Arguments, "reason.args.")},
    **{path: known.compare for path, known in facts(Written, "next.")},
    "next": "skip",
    "checks.figures.path": "skip",
    "checks.figures.against": "skip",
}


def compare_of(path: str) -> Compare | None:
    """How the value at `path` of a result is compared: by its own field, or the nearest that holds it. None: nothing says so."""
    place = INDEX.sub("", path)
    owner, _, key = place.partition(".")
    if owner in ("metrics", "noise_floor") and key in registered():
        return registered()[key].compare
    while place:
        if place in COMPARED:
            return COMPARED[place]
        place = place.rpartition(".")[0]
    return "time" if path.endswith(TIMED) else None
