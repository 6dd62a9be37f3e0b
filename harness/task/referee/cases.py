"""The cases of one engine: what is brought back, how often, and what is said about it."""

from dataclasses import dataclass, field, replace
from typing import Any

from harness.engine import Answer, Engine
from harness.engine.base import forced
from harness.task.referee import clock, tops, verdict, yardstick
from harness.task.referee.reasons import Reason, impossible
from harness.task.referee.yardstick import Yardstick

PART = "part"


@dataclass
class Case:
    """Repeats of one case. runs: one comparison each, with `verdict`, `reason`, `floor`, `reused`. answers: of
    each run, beside what it was measured by. why: where there is no run."""

    name: str
    control: bool = False
    evidence: str = ""
    about: str = ""  # what is known of it beforehand
    timed: bool = False  # reuse was told by time, for want of a count
    runs: list[dict[str, Any]] = field(default_factory=list)
    answers: list[tuple[Yardstick, Answer]] = field(default_factory=list)
    why: Reason | None = None

    def add(self, answer: Answer, yard: Yardstick, must_reuse: bool) -> None:
        """Judge one run against the cold one."""
        self.judge(yard.compare(answer), answer, yard, yard.floor["max_abs_diff"], yard.plain)
        run = self.runs[-1]
        if yard.narrow and must_reuse and run["verdict"] == "drifted":
            run["reason"].args["narrow"] = True
        if not must_reuse:
            return
        reason = impossible([answer], yard.prompt) if run["verdict"] in verdict.GOOD else None
        if not answer.reused and not (answer.reused is None and self.timed):
            reason = Reason("reuse_unsaid" if answer.reused is None else "nothing_reused")
        if reason:
            run |= {"verdict": "unjudged", "reason": reason}

    def hold(self, hit: "Case", alike: bool) -> None:
        """Judge the latest run against right hits of the same prompt as well: what was brought back is what was
        there. alike: it computes as they do; where it reused as much, only what repeats differ by is allowed."""
        run, (yard, answer) = self.runs[-1], self.answers[-1]
        hits = [
            a
            for (y, a), r in zip(hit.answers, hit.runs)
            if y is yard and r["verdict"] in verdict.GOOD
        ]
        if not hits:
            return
        first, *again = hits
        gaps = [tops.compare(a, first)["max_abs_diff"] for a in (answer, *again)]
        sharp = alike and again and answer.reused == first.reused
        floor = max(yard.repeats, *gaps[1:]) if sharp else yard.floor["max_abs_diff"]
        run |= {"hit_diff": gaps[0], "hit_floor": floor}
        if run["verdict"] not in verdict.GOOD:
            return
        if answer.reused is not None and answer.reused < (first.reused or 0):
            counts = {"reused": answer.reused, "hit": first.reused}
            run |= {"verdict": "unjudged", "reason": Reason("reused_less", counts)}
        elif run["verdict"] == "equivalent" and gaps[0] > verdict.FACTOR * floor:
            args = run["reason"].args | {"gap": gaps[0], "floor": floor}
            run |= {"verdict": "drifted", "reason": Reason("apart_from_hit", args)}

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
        self.answers.append((yard, answer))
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
            return row | {
                "control": self.control,
                "evidence": self.evidence,
                **(self.why or Reason("no_token")).fields,
            }
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
            "plain_error": worst["plain"], "hit_diff": worst.get("hit_diff"), "hit_floor": worst.get("hit_floor"),
            "control": self.control, "evidence": self.evidence or self.about,
            **worst["reason"].fields,
        }  # fmt: skip


def cold_again(yard: Yardstick) -> Case:
    """The cold run against itself, by a floor that the others set."""
    case = Case("cold_again", evidence="evaluated without a cache")
    name, metrics = next(iter(yard.others.items()))
    cold = replace(yard.reference, reused=0)
    case.judge(metrics, cold, yard, yard.without(name), yard.plain_without(name))
    return case


def brought_back(engine: Engine, case: Case, yard: Yardstick, hit: Case | None = None) -> None:
    """Save the state after the prompt, bring it back the way the case says, go on from it. hit: what it is held
    against, where it is to be the same as that."""
    engine.save(yard.prompt)
    engine.restore(case.name)
    answer = forced(engine.resume, yard.prompt, yard.reference)
    if answer.reused is None and not case.evidence:
        case.evidence = _told(engine, case, yard)
    case.add(answer, yard, must_reuse=True)
    if hit is not None:
        case.hold(hit, case.name in engine.alike)


def part(engine: Engine, name: str, yard: Yardstick, exact: yardstick.Exact | None) -> Case | None:
    """After the state is brought back as `name` says, a prompt that shares half of it: attention over a whole past
    does not see that its rows were exchanged. None where the engine does not go on from there."""
    if isinstance(yard.prompt, str) or not engine.shares or not engine.repeatable:
        return None
    prompt, shared = yardstick.half_shared(yard.prompt)
    ruler = yardstick.measure(engine, prompt, len(yard.reference.tokens), exact)
    if shared == len(prompt) or isinstance(ruler, Reason):
        return None
    case = Case(PART, evidence=f"another prompt that begins as this one does, after {name}")
    engine.save(yard.prompt)
    engine.restore(name)
    answer = forced(engine.resume, prompt, ruler.reference)
    if not answer.reused or answer.reused > shared:
        return None
    case.add(answer, ruler, must_reuse=True)
    return case


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
