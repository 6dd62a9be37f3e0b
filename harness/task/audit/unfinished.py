"""What was stopped before its end claims nothing: a run without a result, a sweep without its table. Neither its folder
nor the tracking store may say that it had one, since anyone may have taken that from either."""

from pathlib import Path
from typing import Any

from harness import machine
from harness.config import Config
from harness.pipeline.finish import shown
from harness.report.audit.figures import listed
from harness.results.points import RECORD, TABLE
from harness.snapshot import record as records
from harness.task.audit.source import Run, ask, lookup, read, search
from harness.track import parent, reader

KEPT = ("result.json", records.NAME, "multirun.yaml", RECORD)  # once there is a result
CONCLUDED = (TABLE, RECORD, "sweep.html")  # of a sweep that came to its end, or was told to
NOTHING = "was stopped before it had a result: there is nothing to audit."
NAMED = 8  # points that are told by name
WHY = "stopped before there was one"


def claims(run: Run) -> bool:
    """Whether a store says of a run that it is sealed, or a sweep's own."""
    return bool({"record", "kind"} & run["tags"].keys())


def kept(folder: Path) -> bool:
    """Whether a folder holds anything of a result."""
    return any((folder / name).exists() for name in KEPT)


def copied(cfg: Config, run: Run, names: tuple[str, ...] = KEPT) -> bool:
    """Whether the store has a copy of anything of a result."""
    there = ask(cfg, lambda client: [*reader.files(client, run["id"])]) or ()
    return any(name in names for name in there)


def claimed(cfg: Config, folder: Path) -> bool:
    """Whether the store has a run that was recorded in a folder and says so."""
    runs = (run for name in {shown(folder), str(folder)} for run in search(cfg, "folder", name))
    return any(map(claims, runs))


def points(cfg: Config, sweep: Path, every: list[Path], left: dict[str, str]) -> list[Path]:
    """Those of the points of a sweep that had a result, all that its table was sealed with among them; the others, those
    too that never ran, are put into `left` as not compared."""
    document = read(sweep / RECORD)
    sealed = (document.get("sealed") or {}).get("records") or {}
    asked = document.get("points") if document else parent.known(sweep).get("asked")
    absent = _absent(sweep, every, asked)
    taken = [p for p in absent if p.name in sealed or claimed(cfg, p)]
    every = [*every, *(p for p in taken if p.name not in sealed)]  # the table names those
    if names := [p.name for p in absent if p not in taken]:
        what = f"{len(names)} of {asked} points ({_named(names)} never ran)"
        left[what] = "the sweep was stopped before"
    mine = [p for p in every if kept(p) or p.name in sealed or claimed(cfg, p)]
    if gone := [p.name for p in every if p not in mine]:
        left[f"{machine.many(len(gone), 'point')} without a result ({_named(gone)})"] = WHY
    return mine


def _named(points: list[str]) -> str:
    """Points by name, of many the first."""
    more = [f"{len(points) - NAMED} more"] * (len(points) > NAMED)
    return listed([*points[:NAMED], *more])


def _absent(sweep: Path, every: list[Path], asked: Any) -> list[Path]:
    """The folders of the points of a sweep, of which `asked` were asked for, that are not there: Hydra numbers them."""
    there = {p.name for p in every}
    if not isinstance(asked, int) or not all(name.isdigit() for name in there):
        return []
    return [sweep / str(n) for n in range(asked) if str(n) not in there]


def concluded(cfg: Config, sweep: Path, left: dict[str, str]) -> bool:
    """Whether a sweep came so far as to write its table and page; one that did not is named in `left`."""
    run: Any = lookup(cfg, parent.known(sweep).get("run_id"))
    there = any((sweep / name).exists() for name in CONCLUDED)
    if there or (run and copied(cfg, run, CONCLUDED)):
        return True
    left["its table and page"] = WHY
    return False
