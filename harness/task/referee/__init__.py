"""`task=referee`: another engine judged. Does its cache give what it gives without one?"""

import math
from functools import cache
from pathlib import Path
from typing import Any

from harness.config import Config, one_of
from harness.engine import Engine
from harness.engine.base import Prompt
from harness.engine.registry import engine as build_engine
from harness.errors import ConfigProblem
from harness.pipeline.engine_session import Outside
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.own_engine import Ours
from harness.pipeline.prompt import prompt_text
from harness.pipeline.session import Session
from harness.report.terminal.console import Say
from harness.task.referee import cases, oracle, scan, verdict, yardstick
from harness.task.referee.cases import Case
from harness.task.referee.reasons import Reason
from harness.task.referee.yardstick import Yardstick

ALL = "all"  # of `task.cases`
HIT, RESTORED = "hit", "restored"
BAD = ("drifted", "diverged")


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Leaves `referee.json` (one row per case) and, to paste into an issue, `referee.md`.

    The verdict is the worst of the cases; where a control does not fail, each is `unjudged`.
    """
    from harness.report.referee import page as report
    from harness.report.referee import unasked

    ours = cache(lambda: Ours(Session.open(cfg, folder, say)))
    with build_engine(cfg.engine, ours) as engine:
        say.stage(f"engine {cfg.engine.name}")
        prompt = prompt_of(cfg, engine)
        engine.probe(prompt)
        say.done(", ".join(f"{k} {v}" for k, v in engine.versions().items()))
        say.stage("noise floor: cold runs, alone and otherwise")
        mine = ours if engine.declared else None
        exact, where = oracle.oracle(cfg, engine, len(prompt) + cfg.steps, mine)
        yard = yardstick.measure(engine, prompt, cfg.steps, exact)
        if isinstance(yard, Reason):
            say.done("there is none")
            judged = unjudged(engine, yard)
        else:
            say.done(f"{yard.floor['max_abs_diff']:.3g} nats")
            judged = judge(engine, yard, cfg, say, exact)
        rows = [case.row(cfg.engine.name) for case in judged]
        wrong = [r["max_abs_diff"] for r in rows if r["control"] and r["max_abs_diff"] is not None]
        blinded(rows)
        kept = oracle.numbers(cfg, engine) if exact is not None else ()
        float64 = oracle.described(
            where, yard, exact is not None, min(wrong, default=math.inf), kept
        )
        say.note(f"float64 oracle: {float64}")
        known = {**engine.versions(), "float64 oracle": str(float64)}
        if list(cfg.task.cases) == [ALL]:
            known |= {f"{unasked.BEFORE}{name}": why for name, why in engine.absent.items()}
        scanned = attributed(engine, yard, rows, say)
        bad = [r["case"] for r in rows if not r["control"] and r["verdict"] not in verdict.GOOD]
        scripts = {name: text for name in bad if (text := engine.reproduction(name))}
    said, reason, worst = overall(rows)
    outside = Outside(cfg, folder, say, {"engine": cfg.engine.name, **known})
    floors = {} if isinstance(yard, Reason) else yard.others
    made = outside.environment()
    sections = report.sections(rows, floors, known, made)
    sections += report.scan_sections(scanned, scan.conclusion(scanned))
    sections += report.script_sections(scripts)
    report.write(folder, f"Cache of {cfg.engine.name}", sections, said, reason, made["command"])
    block = {
        "versions": known,
        "floors": report.floor_rows(floors),
        "scan": scanned,
        "float64": float64.fields,
        "worst": {key: worst[key] for key in ("case", "code", "args")},
    }
    code = 1 if said == "unjudged" else None  # nothing reused, nothing proven
    columns, record = report.CONSOLE, {"referee": block}
    return finish_table(
        outside, "referee", rows, sections, said, reason, columns, record=record, code=code
    )


def prompt_of(cfg: Config, engine: Engine) -> Prompt:
    """`prompt.ids` as they are, else the prompt's text as the engine encodes it, or the tokenizer beside
    the weights that float64 is asked of."""
    prompt = list(cfg.prompt.ids) or engine.encode(prompt_text(cfg)[0])
    return oracle.encoded(cfg, engine, prompt) if isinstance(prompt, str) else prompt


def judge(
    engine: Engine, yard: Yardstick, cfg: Config, say: Say, exact: yardstick.Exact | None = None
) -> list[Case]:
    """Every case `task.repeats` times, then the controls."""
    judged = [] if yardstick.FROM_HITS in yard.others else [cases.cold_again(yard)]
    hit = None
    for name in chosen(cfg, engine):
        say.stage(name)
        case = Case(name, about=engine.further.get(name, "") if cfg.task.cases else "")
        held = hit if brings_back(engine, name) else None
        prompt, first = engine.prompt_of(name, yard.prompt), yard
        if prompt != yard.prompt:
            other = yardstick.measure(engine, prompt, cfg.steps, exact)
            if isinstance(other, Reason):
                judged.append(Case(name, why=other))
                continue
            first = other
        for turn in range(cfg.task.repeats):
            ruler = first
            if turn and not engine.repeatable:
                again = yardstick.measure(engine, yardstick.bare(yard.prompt), cfg.steps, exact)
                ruler = yard if isinstance(again, Reason) else again
            cases.brought_back(engine, case, ruler, held)
        judged.append(case)
        hit = case if name == HIT else hit
        say.done(case.row("")["verdict"])
    after = RESTORED if any(case.name == RESTORED for case in judged) else HIT
    if (part := cases.part(engine, after, yard, exact)) is not None:
        judged.append(part)
    say.stage("controls: other states, which must fail")
    judged += [cases.control(engine, name, yard) for name in yardstick.CONTROLS]
    say.done(", ".join(f"{c.name} {c.row('')['verdict']}" for c in judged if c.control))
    return judged


def chosen(cfg: Config, engine: Engine) -> list[str]:
    """The names in `task.cases`, or the engine's own cases; before what brings a state back the hit that it is held
    against. Raises ConfigProblem for one that it has not."""
    asked = list(cfg.task.cases)
    known = [*engine.cases, *engine.further]
    if not asked:
        return [*engine.cases]
    if asked == [ALL]:
        return known
    for name in asked:
        if name in engine.absent:
            raise ConfigProblem(f"task.cases: {name} cannot be had here: {engine.absent[name]}.")
        one_of("task.cases", name, tuple(known))
    if any(brings_back(engine, name) for name in asked):
        return [HIT, *(name for name in asked if name != HIT)]
    return asked


def brings_back(engine: Engine, name: str) -> bool:
    """Whether `name` is the hit's own state brought back another way, not one that is read by other code."""
    return name in engine.cases and not name.startswith(HIT)


def attributed(
    engine: Engine, yard: Yardstick | Reason, rows: list[dict[str, Any]], say: Say
) -> list[dict[str, Any]]:
    """Where `hit` is wrong and cold runs can be repeated: a scan over reused lengths, else nothing."""
    hit = next((r for r in rows if r["case"] == HIT), {})
    bad = hit.get("verdict") in BAD
    if isinstance(yard, Reason) or not engine.repeatable or not bad:
        return []
    say.stage("scan over reused lengths")
    scanned = scan.scan(engine, yard.prompt, yard.floor["max_abs_diff"])
    say.done(scan.conclusion(scanned))
    return scanned


def unjudged(engine: Engine, reason: Reason) -> list[Case]:
    """Every case without a verdict, for want of a yardstick."""
    controls = [Case(name, control=True, why=reason) for name in yardstick.CONTROLS]
    return [Case(name, why=reason) for name in ("cold_again", *engine.cases)] + controls


def blinded(rows: list[dict[str, Any]]) -> None:
    """Where a wrong state is not told from the right one, nothing is: each row becomes `unjudged`. `was`: its
    verdict without that."""
    passed = [r for r in rows if r["control"] and r["verdict"] not in (*BAD, "unjudged")]
    for row in rows if passed else ():
        first = passed[0]
        args = {"control": first["case"], "verdict": first.get("was", first["verdict"])}
        args |= {"gap": first["max_abs_diff"], "floor": first["noise_floor"]}
        row |= {
            "was": row["verdict"],
            "verdict": "unjudged",
            **Reason("control_passed", args).fields,
        }


def overall(rows: list[dict[str, Any]]) -> tuple[str, str, dict[str, Any]]:
    """The verdict of all cases, the reason in one sentence, and the row that they are of."""
    real = [r for r in rows if not r["control"]]
    worst = max(real, key=lambda r: verdict.ORDER.index(r["verdict"]))
    if worst["verdict"] in ("unjudged", "unsound"):
        return worst["verdict"], f"{worst['case']}: {worst['reason']}", worst
    cold = next((r for r in real if r["case"] == "cold_again"), None)
    if cold and cold["verdict"] not in verdict.GOOD:
        return "unsound", f"the engine's own cold runs disagree: {cold['reason']}", cold
    bad = f", in {worst['bad']} of {worst['repeats']} runs" if worst["bad"] else ""
    return worst["verdict"], f"{worst['case']}: {worst['reason']}{bad}", worst
