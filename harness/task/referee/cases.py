"""The cases of one engine: what is brought back, how often, and what is said about it."""

from dataclasses import dataclass, field, replace
from typing import Any

from harness.engine import Answer, Engine
from harness.engine.base import forced
from harness.task.referee import clock, verdict, yardstick
from harness.task.referee.yardstick import Yardstick

NOTHING = "nothing was reused: the engine evaluated every token again, so this says nothing about its cache"

NARROW = (
    " (no prompt was cold twice, so the floor has not seen how a call of few tokens rounds: if the difference "
    "may be that, engine.flush=COMMAND or engine.weights=DIR tells)"
)


@dataclass
class Case:
    """Repeats of one case. runs: one comparison each, with `verdict`, `reason`, `floor`, `reused`."""

    name: str
    control: bool = False
    evidence: str = ""
    about: str = ""  # what is known of it beforehand
    timed: bool = False  # reuse was told by time, for want of a count
    runs: list[dict[str, Any]] = field(default_factory=list)

    def add(self, answer: Answer, yard: Yardstick, must_reuse: bool) -> None:
        """Judge one run against the cold one."""
        self.judge(yard.compare(answer), answer, yard, yard.floor["max_abs_diff"], yard.plain)
        if yard.narrow and must_reuse and self.runs[-1]["verdict"] == "drifted":
            self.runs[-1]["reason"] += NARROW
        if must_reuse and not answer.reused and not (answer.reused is None and self.timed):
            reason = yardstick.UNSAID if answer.reused is None else NOTHING
            self.runs[-1] |= {"verdict": "unjudged", "reason": reason}

    def judge(
        self,
        metrics: dict[str, Any],
        answer: Answer,
        yard: Yardstick,
        floor: float,
        plain: float | None,
    ) -> None:
        """Keep one run's metrics with its verdict. floor, plain: see `verdict.decide`."""
        said, reason = verdict.decide(metrics, floor, plain)
        self.runs.append(metrics | {
            "verdict": said, "reason": reason, "floor": floor, "reused": answer.reused,
            "seconds": answer.seconds, "cold_seconds": yard.reference.seconds,
            "prompt_tokens": len(yard.prompt), "plain": plain,
            "first_beyond": verdict.first_beyond(metrics, floor, plain),
        })  # fmt: skip

    def row(self, engine: str) -> dict[str, Any]:
        """The case as a row of `referee.json`: its worst run, and how often it was that bad."""
        if not self.runs:
            figures = ("max_abs_diff", "kl_max", "top1_agreement", "noise_floor")
            row = {"engine": engine, "case": self.name, "reused_tokens": None}
            row |= {"verdict": "unjudged", **dict.fromkeys(figures)}
            return row | {"reason": self.evidence, "control": self.control}
        worst = max(self.runs, key=lambda r: (verdict.ORDER.index(r["verdict"]), r["max_abs_diff"]))
        bad = sum(r["verdict"] in ("drifted", "diverged") for r in self.runs)
        low, high = verdict.interval(bad, len(self.runs))
        return {
            "engine": engine, "case": self.name, "reused_tokens": worst["reused"],
            "prompt_tokens": worst["prompt_tokens"], "verdict": worst["verdict"],
            "max_abs_diff": worst["max_abs_diff"], "kl_max": worst["kl_max"],
            "top1_agreement": worst["top1_agreement"], "noise_floor": worst["floor"],
            "first_beyond": worst["first_beyond"], "steps": worst["steps"], "seen": worst["seen"],
            "repeats": len(self.runs), "bad": bad, "rate_low": low, "rate_high": high,
            "seconds": worst["seconds"], "cold_seconds": worst["cold_seconds"],
            "oracle_error": max(worst.get("errors", ()), default=None),
            "plain_error": worst["plain"],
            "control": self.control, "evidence": self.evidence or self.about,
            "reason": worst["reason"],
        }  # fmt: skip


def cold_again(yard: Yardstick) -> Case:
    """The cold run against itself, by a floor that the others set."""
    case = Case("cold_again", evidence="evaluated without a cache")
    name, metrics = next(iter(yard.others.items()))
    cold = replace(yard.reference, reused=0)
    case.judge(metrics, cold, yard, yard.without(name), yard.plain_without(name))
    return case


def brought_back(engine: Engine, case: Case, yard: Yardstick) -> None:
    """Save the state after the prompt, bring it back the way the case says, go on from it."""
    engine.save(yard.prompt)
    engine.restore(case.name)
    answer = forced(engine.resume, yard.prompt, yard.reference)
    if answer.reused is None and not case.evidence:
        case.evidence = _told(engine, case, yard)
    case.add(answer, yard, must_reuse=True)


def _told(engine: Engine, case: Case, yard: Yardstick) -> str:
    """Ask time whether the engine reused; says what it told."""
    if why := clock.unable(engine, case.name):
        return f"reuse not reported; {why}"
    ratio = clock.reuse(engine, case.name, yard.prompt)
    case.timed = ratio.told
    if ratio.told:
        return f"reuse told by time alone: {ratio}"
    return f"reuse not reported, and time does not tell: {ratio}{clock.REMEDY}"


def control(engine: Engine, name: str, yard: Yardstick) -> Case:
    """What must fail: the state of another prompt, forged where the engine's files allow it, else
    evaluated: the very tokens that such a state consists of."""
    other = yardstick.CONTROLS[name](yard.prompt)
    forged = engine.forge(yard.prompt, other)
    case = Case(
        name, control=True, evidence="a forged state" if forged else "its tokens, evaluated"
    )
    if forged:
        answer = forced(engine.resume, yard.prompt, yard.reference)
    else:
        answer = yardstick.wrong(engine, yard.prompt, other, yard.reference)
    case.add(answer, yard, must_reuse=False)
    return case
