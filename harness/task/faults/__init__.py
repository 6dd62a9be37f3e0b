"""`task=faults`: every fault, four columns, and what a plain script does with the same damage."""

from pathlib import Path
from typing import Any

from harness import machine
from harness.config import Config
from harness.errors import ConfigProblem, suggestion
from harness.fault.base import Fault, Target
from harness.fault.field import coverage
from harness.fault.registry import every, fault_named
from harness.pipeline import testbed as beds
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.session import Session, one_thread
from harness.progress import over
from harness.report.terminal.console import Say
from harness.snapshot.digest import digest_document
from harness.snapshot.manifest import model_rows
from harness.task.faults import accuracy, plain
from harness.task.faults.columns import measure

COLUMNS = ("validation", "digest", "identity", "logits")
SCORES = {"logits": "logits (the next token's scores)"}  # a check whose name does not say it
CONSOLE = ("fault", "caught by", "plain", "cause")  # what fits a terminal


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """The control and all faults, or those of `task.only`, or `fault=NAME`; `faults.json` and a heat map.

    The verdict is the control's when nothing went undetected, otherwise `failed`.
    """
    chosen = {fault.name: fault for fault in _chosen(cfg)}  # a wrong name is told at once
    session = Session.open(one_thread(cfg), folder, say)
    measured = {name: measure_all(session, chosen, name) for name in _beds(chosen)}
    by_name = {row["fault"]: row for rows, _ in measured.values() for row in rows}
    rows = [by_name[name] for name in chosen]
    from harness.report import faults as heatmap

    control, rest = rows[0], rows[1:]
    tried = {fault.field for fault in chosen.values()} - {""}
    missed = [row["fault"] for row in rest if not caught(row)]
    alarmed = [name for name, (_, copied) in measured.items() if not quiet(copied)]
    clean = quiet(control) and not alarmed
    verdict = control["verdict"] if clean and not missed else "failed"
    whole = not cfg.task.only and len(rest) > 1
    runs, alarms = _clean_runs(session) if whole else (0, [])
    diagnoses = accuracy.line(rest, runs, alarms)
    known = [coverage(tried)] if whole else []
    first = noticed(rest, missed, clean) + (f" ({', '.join(alarmed)})" if alarmed else "")
    others = [summary(rest), *known, diagnoses, seconds(rows)]
    reason = "\n".join(f"{sentence}." for sentence in (first, *others))
    sections, children = heatmap.sections(rows), [_child(row) for row in rows]
    detection = {  # false alarms: of controls and of clean runs
        "total": len(rest), "caught": len(rest) - len(missed), "missed": len(missed),
        "false_alarms": len(alarms) + len(alarmed) + (not quiet(control)), "diagnosed": accuracy.top1(rest)[0],
    }  # fmt: skip
    record = {
        "detection": detection,
        "conversation": _read(session),
        "elements": model_rows(session.documents),
        **({"tried": len(rest)} if clean else {}),
    }
    return finish_table(
        session, "faults", rows, sections, verdict, reason, list(CONSOLE), children=children, record=record,
        closing=f"faults:       {first}",
        shown_rows=[row | {"caught by": " ".join(c for c in COLUMNS if row[c]) or "-"} for row in rows],
    )  # fmt: skip


class Copied(Fault):
    """A control of every bed: what a fault may write into is copied, and nothing is written."""

    name = "none"

    def live(self, live: Target) -> None: ...


def measure_all(
    session: Session, chosen: dict[str, Fault], name: str
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """The rows of the faults among `chosen` that lie on the bed `name`, and that of its `Copied`: a
    check that cries on this bed whatever happens would count as having noticed them all."""
    say = session.say
    faults = [fault for fault in chosen.values() if fault.bed == name]
    say.stage(f"{name}: {machine.many(len(faults), 'row')}")
    bed = beds.build(name, session, session.cfg.steps)
    inner = bed.session
    healthy = plain.resume(bed, inner.loaded, bed.state, inner.cfg.sampling, bed.state.rng)
    each = over(faults, f"faults of {name}", len(faults))
    rows = [measure(bed, fault, healthy, beds.scratch(session.folder)) for fault in each]
    for row, fault in zip(rows, faults, strict=True):
        row |= {"bed": name, "what": described(fault), "why": fault.why}
    say.done(f"noise floor {bed.unit:.2g} logits")
    return rows, measure(bed, Copied(), healthy, beds.scratch(session.folder))


def quiet(row: dict[str, Any]) -> bool:
    """Whether nothing was noticed, and nothing is to be seen."""
    return not caught(row) and row["plain"] == plain.NOTHING


def caught(row: dict[str, Any]) -> bool:
    """Whether any of the four columns noticed."""
    return any(row[column] for column in COLUMNS)


def described(fault: Fault) -> str:
    """The fault's own first line."""
    from inspect import getmodule

    said = (getmodule(type(fault)).__doc__ or "").strip()
    return "The control: nothing is damaged." if fault.name == "none" else said.splitlines()[0]


def noticed(rows: list[dict[str, Any]], missed: list[str], clean: bool) -> str:
    """What was found, in one sentence. missed: the faults that no check noticed."""
    count, seen = machine.many(len(rows), "fault"), len(rows) - len(missed)
    late = sum(caught(row) and row["strict"] != "refused" for row in rows)
    where = f", {seen - late} by a restore that refuses them, {late} only by what is said after it"
    said = f"{count}: all noticed{where * bool(late)}"
    if len(rows) == 1:
        by = " and ".join(SCORES.get(column, column) for column in COLUMNS if rows[0][column])
        said = f"{count}, {rows[0]['fault']}: {f'noticed by {by}' if by else 'not noticed'}"
    elif missed:
        said = (
            f"{count}: {seen} noticed{where * bool(late)}; {len(missed)} not: {', '.join(missed)}"
        )
    return said if clean else f"{said}, but the control, which has none, is NOT clean"


def summary(rows: list[dict[str, Any]]) -> str:
    """What is not seen without the checks, in a sentence."""
    silent = sum(row["plain"] != plain.ERROR for row in rows)
    from harness.report import faults as heatmap

    still = sum(map(heatmap.still, rows))
    if len(rows) == 1:
        return f"A plain script with the same damage: {rows[0]['plain']}"
    return (
        f"A plain script goes on without an error in {silent} of them, and {still} move{'s' * (still == 1)} no logit "
        "beyond the noise"
    )


def seconds(rows: list[dict[str, Any]]) -> str:
    """One line: what each check took over all rows, if it took a tenth of a second."""
    took = {n: sum(r[f"{n}_s"] for r in rows) for n in (*COLUMNS, "plain", "diagnosis")}
    told = ", ".join(f"{n} {s:.1f} s" for n, s in took.items() if s >= 0.05)
    return f"Time: {told or 'less than a tenth of a second'}"


def _chosen(cfg: Config) -> list[Fault]:
    """The control, and every row of every fault, or of those that the settings name."""
    control, *faults = every().values()
    if cfg.task.only and cfg.fault.name != "none":
        raise ConfigProblem(f"task.only and fault={cfg.fault.name} both choose: give one of them.")
    if cfg.fault.name != "none":
        return [control, fault_named(cfg.fault, cfg.called.get("fault"))]
    rows = {fault.name: fault.rows() for fault in faults}
    names = [fault.name for fault in faults]
    for name in cfg.task.only:
        if name not in rows:
            raise ConfigProblem(f"task.only: '{name}' is not a fault.{suggestion(name, names)}")
    return [control, *(row for name in cfg.task.only or names for row in rows[name])]


def _read(session: Session) -> dict[str, Any]:
    """The text that every bed reads."""
    ids = beds.conversation(session.loaded.tokenizer).ids
    return {"tokens": len(ids), "digest": digest_document(list(ids))}


def _clean_runs(session: Session) -> tuple[int, list[str]]:
    """How many healthy states were diagnosed, and what was said of those that were not left alone."""
    session.say.stage(f"diagnosis of {accuracy.CLEAN} clean runs")
    said = accuracy.alarms(session, accuracy.CLEAN)
    session.say.done(machine.many(len(said), "false alarm"))
    return accuracy.CLEAN, said


def _beds(chosen: dict[str, Any]) -> list[str]:
    """Those that load a model of their own last."""
    order = ("plain", "sampled", "padded", "quantized", *beds.SEEDED)
    return [name for name in order if any(fault.bed == name for fault in chosen.values())]


def _child(row: dict[str, Any]) -> dict[str, Any]:
    tags = {k: str(row[k]) for k in ("fault", "element", "plain", "strict", "bed")}
    numbers = {f"caught/{column}": float(row[column]) for column in COLUMNS}
    if row["shift"] is not None and row["shift"] < float("inf"):
        numbers["logits/shift_in_noise_floors"] = row["shift"]
    word = "control" if row["fault"] == "none" else "caught" if caught(row) else "not caught"
    name, params = f"{row['fault']}: {word}", {"fault": row["fault"]}
    return {"name": name, "tags": tags, "metrics": numbers, "params": params}
