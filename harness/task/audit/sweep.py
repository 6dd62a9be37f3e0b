"""A sweep beside its points: its tables say what their results say, and none of the points that it ended with is missing."""

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.snapshot import record as records
from harness.snapshot.digest import digest_bytes
from harness.snapshot.result import CELL, METRICS, ROWS, SIZES, TIMES, exit_code
from harness.task.audit.finding import Finding
from harness.task.audit.source import read

TABLE, ANSWERS, RECORD = "sweep.csv", "answers.csv", "sweep.json"
NAMED = 8  # points that are named
SAYS = "the table does not say what the point's result says"
COLUMNS = {
    "verdict": "verdict",
    "task": "task",
    "error_ratio": "oracle.ratio",
    "noise_kl_max": "noise_floor.kl_max",
    "mutated": "mutation.mutated",
    "bytes_copied_per_token": "mutation.bytes_copied_per_token",
    "snapshot_id": "snapshot.id",
    **{key: f"metrics.{key}" for key in METRICS},
    **{key: f"size.{key}" for key in SIZES},
    **{f"{key}_s": f"time_s.{key}" for key in TIMES},
}


def is_sweep(folder: Path) -> bool:
    return any((folder / name).is_file() for name in ("multirun.yaml", RECORD))


def folders(sweep: Path) -> list[Path]:
    """The point folders of a sweep, those too whose result is gone."""
    found = [p.parent for p in sweep.glob("*/.hydra")]
    return sorted(found, key=lambda p: (len(p.name), p.name))


def points(sweep: Path, left: dict[str, str]) -> list[Path]:
    """The points that claim a result, all that the sweep was sealed with among them; the others go into `left`."""
    document, every = read(sweep / RECORD), {p.name: p for p in folders(sweep)}
    sealed = _sealed(document).get("records") or {}
    every |= {
        name: sweep / name for name in sealed if name not in every and Path(name).name == name
    }
    asked = document.get("points")
    if isinstance(asked, int) and len(every) < asked:
        left[f"{asked - len(every)} of {asked} points"] = "they never ran"
    kept = ("result.json", records.NAME)
    ended = [p for p in every.values() if p.name in sealed or any((p / n).exists() for n in kept)]
    if gone := [name for name, p in every.items() if p not in ended]:
        more = "..." * bool(gone[NAMED:])
        left[f"{len(gone)} points without a result: {', '.join(gone[:NAMED])}{more}"] = (
            "stopped before"
        )
    if not (sweep / RECORD).is_file():
        left["its tables"] = "the sweep was stopped before it wrote them"
    return ended


def summary(sweep: Path, ended: list[Path]) -> Iterator[Finding]:
    """The sweep's tables and its seal beside its points; nothing of a sweep that was stopped before it had them."""
    document = read(sweep / RECORD)
    if not (sweep / RECORD).is_file() and not (sweep / TABLE).is_file():
        return
    seal, done = _sealed(document), [p for p in ended if (p / "result.json").is_file()]
    if document.get("finished") not in (None, len(done)):
        known = sorted({*(seal.get("records") or ())} - {p.name for p in done})
        yield Finding(
            f"{RECORD}: finished", document["finished"], len(done), f"missing: {known[:NAMED]}"
        )
    now = {p.name: read(p / records.NAME).get("id") for p in done}
    if seal and seal.get("records") != now:
        why = "these are not the records that the sweep ended with"
        yield Finding(f"{RECORD}: records", seal.get("records"), now, why)
    for name, digest in seal.items():
        place = sweep / Path(name).name
        found = digest_bytes(place.read_bytes()) if place.is_file() else "missing"
        if name != "records" and found != digest:
            yield Finding(name, found, digest, "edited after the sweep; found: the sealed digest")
    rows = {row.get("point"): row for row in _table(sweep / TABLE)}
    if not rows:
        yield Finding(TABLE, "one row per point", "none", "the table is missing")
        return
    for point in done:
        result, row = read(point / "result.json"), rows.get(point.name)
        if row is None:
            yield Finding(TABLE, "a row", "none", "the table lacks the point", point.name)
            continue
        for key, path in _columns(result).items():
            if key in row and not _equal(row[key], records.value_at(result, path)):
                found = records.value_at(result, path)
                yield Finding(f"{TABLE}: {key}", row[key], found, SAYS, point.name)
        if not _equal(row.get("exit_code"), exit_code(result)):
            yield Finding(
                f"{TABLE}: exit_code", row.get("exit_code"), exit_code(result), SAYS, point.name
            )
    yield from _cells(sweep, done)


def _columns(result: Mapping[str, Any]) -> dict[str, str]:
    return COLUMNS | {key: f"options.{key}" for key in result.get("options") or {}}


def _cells(sweep: Path, done: list[Path]) -> Iterator[Finding]:
    """The table of cells beside the evaluations of the points; a sweep of other tasks has none."""
    table = _table(sweep / ANSWERS)
    if not table:
        return
    said: dict[tuple[Any, ...], dict[str, Any]] = {}  # (point, cell) -> value by column
    for point in done:
        for row in read(point / ROWS, list):
            cell = said.setdefault((point.name, *(str(row[key]) for key in CELL)), {})
            measure = row["measure"]
            cell |= {
                measure: row["value"],
                f"{measure}_low": row["low"],
                f"{measure}_high": row["high"],
            }
            cell |= {key: row[key] for key in ("n", "kv_bytes", "per_token_s") if key not in cell}
    if len(table) != len(said):
        yield Finding(f"{ANSWERS}: rows", len(table), len(said), "not a row per point and cell")
    for row in table:
        found = said.get((row.get("point"), *(row.get(key) for key in CELL)))
        if found is None:
            yield Finding(f"{ANSWERS}: cell", str(row)[:80], None, SAYS, row.get("point"))
            continue
        for key in [k for k, value in row.items() if k in found and not _equal(value, found[k])]:
            yield Finding(f"{ANSWERS}: {key}", row[key], found[key], SAYS, row.get("point"))


def _table(path: Path) -> list[dict[str, str]]:
    if not path.is_file() or path.is_symlink():
        return []
    with path.open(newline="", encoding="utf-8", errors="replace") as handle:
        return list(csv.DictReader(handle))


def _sealed(document: Mapping[str, Any]) -> dict[str, Any]:
    seal = document.get("sealed")
    return seal if isinstance(seal, dict) else {}  # a sweep from before there was a seal has none


def _equal(cell: str | None, value: Any) -> bool:
    """Whether a cell of text holds the value."""
    text = "" if value is None else str(value)
    if cell in (text, None) or (not cell and not value):
        return True
    try:
        return float(cell) == float(text)
    except ValueError:
        return False
