"""`sweep.csv` and `sweep.html`: one row per point, the verdicts, size, speed, divergence."""

import csv
import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

from harness import machine
from harness.config.literal import decoded
from harness.report import choice, evaluate, panels, plots, search, stopped
from harness.report import verdicts as grid
from harness.report.badge import kind
from harness.report.choice import SECONDS, varied
from harness.report.closing import of_sweep, swept
from harness.report.html import cell, grouped, page, section
from harness.report.names import folder as called
from harness.report.summary import again, counted, counts, pending, searched
from harness.report.verdicts import marked, target, word
from harness.snapshot.objective import ANSWERS, answered, directions, figures, front
from harness.snapshot.result import DONE, METRICS, SIZES, exit_code, outcome, write_text

TABLE = {
    "kl_mean": "mean KL, nats", "kl_max": "largest KL, nats", "max_abs_diff": "largest logit difference", "error_ratio": "error ratio",
    "stored_bytes": "bytes on disk", "save_s": "save, s", "load_s": "load, s", "per_token_s": "token, s",
    "mutated": "your cache was", "bytes_copied_per_token": "bytes copied per token",
}  # fmt: skip
TOUCHED = ("mutated", "bytes_copied_per_token")  # shown where points differ in them
SOUGHT = "Best: by what the search was asked for."
MANY = 60  # more points than that: a table by option stands first, the points are folded
FEW = 12  # values of an option that are told one by one


def rows(points: list[Path]) -> list[dict[str, Any]]:
    """One flat row per finished point folder of one sweep, the same columns in each."""
    told = list(directions(points[0].parent)) if points else []
    told = told or answered(points)
    flat = [{**_row(p), **figures(p, told)} for p in points]
    columns = list(dict.fromkeys(key for row in flat for key in row))
    return [{key: row.get(key) for key in columns} for row in flat]


def _row(folder: Path) -> dict[str, Any]:
    import yaml

    result = json.loads((folder / "result.json").read_text("utf-8"))
    overrides = yaml.safe_load((folder / ".hydra" / "overrides.yaml").read_text("utf-8")) or []
    size = result.get("size") or {}  # all zero: of a task that stores nothing
    typed = dict(decoded(str(o)).lstrip("+~").partition("=")[::2] for o in overrides)
    return {
        "point": folder.name,
        "verdict": result["verdict"],
        "outcome": outcome(result) or DONE,
        "exit_code": exit_code(result),
        "reason": result["reason"],
        **(result.get("options") or {}),
        **{k: v for k, v in typed.items() if k not in (result.get("options") or {})},
        **{k: (result.get("metrics") or {}).get(k) for k in METRICS},
        **_answer(result.get("text") or {}),
        "error_ratio": (result.get("oracle") or {}).get("ratio"),
        "noise_kl_max": (result.get("noise_floor") or {}).get("kl_max"),
        "mutated": (result.get("mutation") or {}).get("mutated"),
        "bytes_copied_per_token": (result.get("mutation") or {}).get("bytes_copied_per_token"),
        **dict.fromkeys(SIZES),
        **{k: size[k] for k in SIZES if k in size and any(size.values())},
        **{k: (result.get("time_s") or {}).get(k.removesuffix("_s")) for k in SECONDS},
        "snapshot_id": (result.get("snapshot") or {}).get("id"),
        "mlflow_run_id": (result.get("mlflow") or {}).get("run_id"),
        "folder": result.get("folder", str(folder)),
    }


def _answer(text: dict[str, Any]) -> dict[str, str]:
    """Whether the restored run gave the expected answer; no column where none was expected."""
    return {"answer": "right" if text["restored_right"] else "wrong"} if "expected" in text else {}


def read_csv(folder: Path) -> list[dict[str, str]]:
    """The rows of a `sweep.csv`, as text. Raises OSError."""
    with (folder / "sweep.csv").open(newline="", encoding="utf-8") as handle:
        return list(csv.DictReader(handle))


def as_text(points: list[dict[str, Any]]) -> list[dict[str, str]]:
    """`rows` as they read back from a CSV file."""
    return [{k: "" if v is None else str(v) for k, v in row.items()} for row in points]


def write(folder: Path, points: list[dict[str, Any]], total: int | None) -> None:
    """Both files, into the sweep's directory."""
    table = io.StringIO(newline="")
    writer = csv.DictWriter(table, list(points[0]))
    writer.writeheader()
    writer.writerows(points)
    write_text(folder / "sweep.csv", table.getvalue())
    write_text(folder / "sweep.html", drawn(folder, points, total, folder.name))


def drawn(folder: Path, points: list[dict[str, Any]], total: int | None, name: str) -> str:
    """The page of the sweep in `folder`, called `name`."""
    ways = search.ways(folder, points)
    axes = varied(points, ways)
    best = search.ranked(points, ways)[:1]  # a search has said what it looks for
    winners = best or choice.chosen(points, axes)
    mark = "best nearest" if choice.short_of(points) and not best else "best"
    first = {row["point"]: mark for row in winners}
    alone = searched(points, ways)
    sections = [
        *stopped.sections(folder, points, axes),
        *search.sections(points, axes, ways),
        *(
            []
            if alone or set(map(word, points)) == {DONE}
            else grid.sections(points, axes, first, SOUGHT if best else grid.BEST)
        ),
        *evaluate.beside(folder, points, axes),
        *panels.sections(points, axes),
        *_options(points, axes),
        _table(points, axes, first, ways, alone),
    ]
    if waiting := pending(folder, points):
        told = f"{', '.join(map(called, waiting))}. Upload them: {again(folder)}"
        sections.append(section("Not yet on the tracking server", text=told))
    mixed = _of_other_code(folder, points)
    if mixed:
        told = f"{', '.join(map(called, mixed))}: run by other code than the rest. Delete what is to run again "
        sections.append(section("Not of one code", text=f"{told}and resume: {again(folder)}"))
    one = len(winners) == 1 or not any(map(choice.asks, axes))
    sections += of_sweep(folder, winners[:1] * one)
    bad = sum(int(r["exit_code"]) != 0 for r in points)
    verdict = _headline(points, bad, total or len(points))
    if alone and not bad:
        verdict = search.headline(points, ways) or verdict
    reason = (
        f"{len(points)} of {machine.many(total, 'point')}."
        if total
        else f"{machine.many(len(points), 'point')}."
    )
    if verdict != (tally := counted(points)) and not alone:
        reason = f"{reason[:-1]}: {tally}."
    if said := search.conclusion(points, ways):
        reason += f" {said}"
    lost = search.hopeless(points, ways) or _answerless(points)
    if lost:
        reason += (
            " No point gives a right answer." if _answerless(points) else " None reaches anything."
        )
    elif winners and not best:
        reason += f" {choice.told(winners, axes, points)}"
    if mixed:
        reason += f" {len(mixed)} of them were run by other code."
    tone = "bad" if bad or len(points) < (total or 0) else _tone(points, lost or bool(mixed))
    return page(
        swept(points, axes, name),
        sections,
        verdict,
        reason,
        tone,
        under=name,
    )


def _answerless(points: list[dict[str, Any]]) -> bool:
    """Whether answers were expected and every one is wrong."""
    said = {row.get("answer") for row in points} - {None}
    return said == {"wrong"}


def _tone(points: list[dict[str, Any]], lost: bool) -> str:
    """The colour of the whole: that of its worst verdict, and no success where every answer is wrong."""
    kinds = {kind(word(row)) for row in points}
    worst = next((k for k in ("bad", "fair", "soft", "alike") if k in kinds), "good")
    return "fair" if lost and worst in ("good", "alike", "soft") else worst


def _headline(points: list[dict[str, Any]], bad: int, total: int) -> str:
    """What the points came to, in one line. A sweep that asked for little says what it got, not only
    that it got what it asked for."""
    stopped = Counter(row["verdict"] for row in points if row["verdict"] in grid.STOPPED)
    if stopped:
        (first, count), *others = sorted(stopped.items())
        return ", ".join([f"{count} of {total} {first}", *(f"{n} {said}" for said, n in others)])
    if bad or len(points) < total:
        return f"{len(points) - bad} of {total} as required"
    return counted(points)


def _of_other_code(folder: Path, points: list[dict[str, Any]]) -> list[str]:
    """The points that other code has run than most of them."""
    codes: dict[str, str] = {}
    for point in (row["point"] for row in points):
        try:
            result = json.loads((folder / point / "result.json").read_text("utf-8"))
        except (OSError, ValueError):
            continue
        if code := (result.get("environment") or {}).get("code"):
            codes[point] = code
    most = Counter(codes.values()).most_common(1)
    return [point for point, code in codes.items() if code != most[0][0]]


def _options(points: list[dict[str, Any]], axes: list[str]) -> list[dict[str, Any]]:
    """What each option came to, where there are too many points to look at one by one."""
    if len(points) <= MANY:
        return []
    said = list(counts(points))
    keys = [
        k
        for k in ("kl_max", "stored_bytes", "per_token_s")
        if any(r.get(k) is not None for r in points)
    ]
    table = []
    for axis in axes:
        groups: dict[str, list[dict[str, Any]]] = {}
        for row in points:
            groups.setdefault(str(row[axis]), []).append(row)
        if len(groups) <= FEW:
            for value, some in groups.items():
                middle = [_median([r[k] for r in some if r.get(k) is not None]) for k in keys]
                table.append([f"{axis}={value}", len(some), *(sum(word(r) == v for r in some) for v in said), *middle])  # fmt: skip
    columns = ["option", "points", *said, *(f"{TABLE[k]}, median" for k in keys)]
    return [section("By option", columns=columns, rows=table)] if table else []


def _median(values: list[float]) -> float | None:
    return sorted(values)[len(values) // 2] if values else None


def _written(mutated: bool | None) -> str:
    return "" if mutated is None else "written into" if mutated else "only read"


def _table(
    points: list[dict[str, Any]],
    axes: list[str],
    first: dict[str, str],
    ways: dict[str, int],
    alone: bool,
) -> dict[str, Any]:
    """alone: the figures say it all; no verdict and no reason."""
    keys = [k for k in TABLE if any(r.get(k) is not None for r in points)]
    if not any(r.get("stored_bytes") for r in points):
        keys = [k for k in keys if k != "stored_bytes"]
    keys = [k for k in keys if k not in TOUCHED or len({r.get(k) for r in points}) > 1]
    figured = [*ways, *(n for n in ANSWERS if n in points[0] and n not in ways)]
    asked = ["answer"] if "answer" in points[0] else []
    best = {id(points[place]) for place in front(points, ways)}
    table = []
    for r in points:
        line = [cell(r["point"], target(r)), *(plots.short(r[a]) for a in axes)]
        line += [search.cell(name, r[name]) for name in figured]
        if best:
            line.append(cell("\u25c6 front" if id(r) in best else "", kind="alike"))
        if not alone:
            line.append(marked(r, first))
        line += [cell(r[k], kind="good" if r[k] == "right" else "bad") for k in asked]
        if not alone:
            line.append(cell(r["reason"], kind="long"))
        table.append([*line, *(_written(r[k]) if k == "mutated" else grouped(r[k]) for k in keys)])
    columns = [
        "folder",
        *axes,
        *(search.heading(name) for name in figured),
        *(["front"] if best else []),
    ]
    columns += [*([] if alone else ["verdict"]), *asked, *([] if alone else ["reason"])]
    columns += [TABLE[k] for k in keys]
    return section("Every point", columns=columns, rows=table, fold=len(points) > MANY)
