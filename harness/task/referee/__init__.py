"""`task=referee`: another engine judged. Does its cache give what it gives without one?"""

from pathlib import Path
from typing import Any

from harness.engine import Engine
from harness.engine.base import Prompt
from harness.engine.registry import engine as build_engine
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.outside import Outside
from harness.pipeline.prompt import prompt_text
from harness.task.referee import cases, verdict, yardstick
from harness.task.referee.cases import Case
from harness.task.referee.yardstick import Yardstick


def run(cfg: Any, folder: Path, say: Any) -> Outcome:
    """Leaves `referee.json` (one row per case), `referee.html` and `referee.md`.

    The verdict is the worst of the cases; without a control that fails it is `unsound`.
    """
    from harness.report import referee as report

    say.stage(f"engine {cfg.engine.name}")
    with build_engine(cfg.engine) as engine:
        prompt = prompt_of(cfg, engine)
        engine.probe(prompt)
        say.done(", ".join(f"{k} {v}" for k, v in engine.versions().items()))
        say.stage("noise floor: cold runs, alone and otherwise")
        yard = yardstick.measure(engine, prompt, cfg.steps)
        say.done("there is none" if isinstance(yard, str) else f"{yard.floor['max_abs_diff']:.3g} nats")  # fmt: skip
        judged = unjudged(engine, yard) if isinstance(yard, str) else judge(engine, yard, cfg, say)
        known = engine.versions()
    rows = [case.row(cfg.engine.name) for case in judged]
    said, reason = overall(rows)
    outside = Outside(cfg, folder, say, {"engine": cfg.engine.name, **known})
    floors = {} if isinstance(yard, str) else yard.others
    sections = report.sections(rows, floors, known, outside.environment())
    report.write(folder, f"Cache of {cfg.engine.name}", sections, said, reason)
    return finish_table(
        outside, "referee", rows, sections, said, reason, report.COLUMNS,
        record={"referee": {"versions": known, "floors": report.floor_rows(floors)}},
        code=1 if said == "unjudged" else None,  # nothing reused, nothing proven
    )  # fmt: skip


def prompt_of(cfg: Any, engine: Engine) -> Prompt:
    """`prompt.ids` as they are, else the prompt's text as the engine encodes it."""
    return list(cfg.prompt.ids) or engine.encode(prompt_text(cfg)[0])


def judge(engine: Engine, yard: Yardstick, cfg: Any, say: Any) -> list[Case]:
    """Every case `task.repeats` times, then the controls."""
    found = [] if yardstick.FROM_HITS in yard.others else [cases.cold_again(yard)]
    for name in engine.cases:
        say.stage(name)
        case = Case(name)
        for turn in range(cfg.task.repeats):
            own = yard
            if turn and not engine.repeatable:
                again = yardstick.measure(engine, yardstick.bare(yard.prompt), cfg.steps)
                own = yard if isinstance(again, str) else again
            cases.brought_back(engine, case, own)
        found.append(case)
        say.done(case.row("")["verdict"])
    say.stage("controls: other states, which must fail")
    found += [cases.control(engine, name, yard) for name in cases.CONTROLS]
    say.done(", ".join(f"{c.name} {c.row('')['verdict']}" for c in found if c.control))
    return found


def unjudged(engine: Engine, reason: str) -> list[Case]:
    """Every case without a verdict, for want of a yardstick."""
    names = ["cold_again", *engine.cases]
    return [Case(n, evidence=reason) for n in names] + [Case(n, control=True, evidence=reason) for n in cases.CONTROLS]  # fmt: skip


def overall(rows: list[dict[str, Any]]) -> tuple[str, str]:
    """The verdict of all cases, and the reason in one sentence."""
    real = [r for r in rows if not r["control"]]
    worst = max(real, key=lambda r: verdict.ORDER.index(r["verdict"]))
    if worst["verdict"] in ("unjudged", "unsound"):
        return worst["verdict"], f"{worst['case']}: {worst['reason']}"
    cold = next((r for r in real if r["case"] == "cold_again"), None)
    if cold and cold["verdict"] not in verdict.GOOD:
        return "unsound", f"the engine's own cold runs disagree: {cold['reason']}"
    blind = [r["case"] for r in rows if r["control"] and r["verdict"] in verdict.GOOD]
    if blind:
        return "unsound", (
            f"the control {', '.join(blind)} passed: with this prompt a wrong state cannot be told "
            "from noise; give a longer or more varied one"
        )
    bad = f", in {worst['bad']} of {worst['repeats']} runs" if worst["bad"] else ""
    return worst["verdict"], f"{worst['case']}: {worst['reason']}{bad}"
