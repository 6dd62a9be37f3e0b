"""`task=faults`: every fault, four columns, and what a plain script does with the same damage."""

from pathlib import Path
from typing import Any

from harness.config import Config
from harness.fault.base import Fault
from harness.fault.field import coverage
from harness.fault.registry import every, fault_named
from harness.pipeline import bed as beds
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.session import Session, one_thread
from harness.progress import over
from harness.report.console import Say
from harness.task.faults import accuracy, plain
from harness.task.faults.columns import measure

COLUMNS = ("validation", "digest", "identity", "logits")
CONSOLE = ("fault", "caught by", "plain", "cause")  # what fits a terminal


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """All faults and the control (or `fault=NAME` and the control); `faults.json` and a heat map.

    The verdict is the control's when nothing went undetected, otherwise `failed`.
    """
    session = Session.open(one_thread(cfg), folder, say)
    chosen = {fault.name: fault for fault in _chosen(cfg.fault)}
    measured = [measure_all(session, chosen, name) for name in _beds(chosen)]
    by_name = {row["fault"]: row for rows in measured for row in rows}
    rows = [by_name[name] for name in chosen]
    from harness.report import heatmap

    control, rest = rows[0], rows[1:]
    tried = {fault.field for fault in chosen.values()} - {""}
    missed = [row["fault"] for row in rest if not caught(row)]
    clean = not caught(control) and control["plain"] == plain.NOTHING
    verdict = control["verdict"] if clean and not missed else "failed"
    diagnoses = accuracy.line(rest, *_clean_runs(session)) if len(rest) > 1 else accuracy.line(rest)
    known = [coverage(tried)] if len(rest) > 1 else []
    reason = "; ".join([summary(rest, missed, clean), *known, diagnoses, seconds(rows)])
    sections, children = heatmap.sections(rows), [_child(row) for row in rows]
    return finish_table(
        session, "faults", rows, sections, verdict, reason, list(CONSOLE), children=children,
        shown_rows=[row | {"caught by": " ".join(c for c in COLUMNS if row[c]) or "-"} for row in rows],
    )  # fmt: skip


def measure_all(session: Session, chosen: dict[str, Fault], name: str) -> list[dict[str, Any]]:
    """The rows of the faults among `chosen` that lie on the bed `name`."""
    say = session.say
    faults = [fault for fault in chosen.values() if fault.bed == name]
    say.stage(f"{name}: {len(faults)} rows")
    bed = beds.build(name, session, session.cfg.steps)
    inner = bed.session
    healthy = plain.resume(bed, inner.loaded, bed.state, inner.cfg.sampling, bed.state.rng)
    each = over(faults, f"faults of {name}", len(faults))
    rows = [measure(bed, fault, healthy, beds.scratch(session.folder)) for fault in each]
    for row, fault in zip(rows, faults, strict=True):
        row |= {"bed": name, "what": described(fault), "why": fault.why}
    say.done(f"noise floor {bed.unit:.2g} logits")
    return rows


def caught(row: dict[str, Any]) -> bool:
    """Whether any of the four columns noticed."""
    return any(row[column] for column in COLUMNS)


def described(fault: Fault) -> str:
    """The fault's own first line."""
    from inspect import getmodule

    said = (getmodule(type(fault)).__doc__ or "").strip()
    return "The control: nothing is damaged." if fault.name == "none" else said.splitlines()[0]


def summary(rows: list[dict[str, Any]], missed: list[str], clean: bool) -> str:
    silent = sum(row["plain"] != plain.ERROR for row in rows)
    still = sum(not row["logits"] for row in rows)
    return (
        f"{len(rows)} faults, {len(missed)} undetected{': ' + ', '.join(missed) if missed else ''}; "
        f"the plain script goes on without an error in {silent} of them; {still} move no logit "
        f"beyond the noise; the control is {'clean' if clean else 'NOT clean'}"
    )


def seconds(rows: list[dict[str, Any]]) -> str:
    """One line: what each check took over all rows."""
    names = (*COLUMNS, "plain", "diagnosis")
    return "seconds: " + ", ".join(f"{n} {sum(r[f'{n}_s'] for r in rows):.1f}" for n in names)


def _chosen(settings: Any) -> list[Any]:
    """The control, and every row of every fault, or the one that the settings name."""
    control, *faults = every().values()
    if settings.name != "none":
        return [control, fault_named(settings)]
    return [control, *(row for fault in faults for row in fault.rows())]


def _clean_runs(session: Session) -> tuple[int, list[str]]:
    """How many healthy states were diagnosed, and what was said of those that were not left alone."""
    session.say.stage(f"diagnosis of {accuracy.CLEAN} clean runs")
    said = accuracy.alarms(session, accuracy.CLEAN)
    session.say.done(f"{len(said)} false alarms")
    return accuracy.CLEAN, said


def _beds(chosen: dict[str, Any]) -> list[str]:
    """Those that load a model of their own last."""
    order = ("plain", "sampled", "padded", "quantized", *beds.SEEDED)
    return [name for name in order if any(fault.bed == name for fault in chosen.values())]


def _child(row: dict[str, Any]) -> dict[str, Any]:
    tags = {k: str(row[k]) for k in ("fault", "element", "plain", "verdict", "strict", "bed")}
    numbers = {f"caught/{column}": float(row[column]) for column in COLUMNS}
    if row["shift"] is not None and row["shift"] < float("inf"):
        numbers["logits/shift_in_noise_floors"] = row["shift"]
    return {"name": f"fault {row['fault']}", "tags": tags, "metrics": numbers}
