"""`sweep.html`: what a sweep came to, its pictures, its settings and every point."""

import shlex
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from html import escape
from pathlib import Path
from statistics import median
from typing import Any

from harness.config.launched import of_point
from harness.present import sweep as shown
from harness.present.messages import worded
from harness.present.table import Table
from harness.report.badge import SIGNS, allowed_kind, kind, sign
from harness.report.footer import constant, noted, of_sweep, swept
from harness.report.html import cell, page, section
from harness.report.names import folder as called
from harness.report.picture import plots, scatter
from harness.report.picture.marks import target
from harness.results import answers
from harness.results.points import (
    CELLS,
    PAGE,
    RECORD,
    STOPPED,
    TABLE,
    Row,
    column_fact,
    is_seed,
    why,
    word,
)
from harness.results.points import as_csv as csv_of
from harness.results.sweep import Sweep, sweep_of
from harness.snapshot.cells import name as cell_name
from harness.snapshot.objective import BYTES as BYTE_COUNT
from harness.snapshot.objective import searches
from harness.snapshot.record import AUDITED, read
from harness.snapshot.result import DONE, GOOD, ROWS, write_text

FRONT = "optimization_results.yaml"  # which Optuna's sweeper writes
MANY = 60  # points: a longer table is folded
MOST = 20  # rows of points that came to no end
ACROSS, DOWN = 8, 40  # columns and lines of a grid that can still be read
MARKS = 8  # values that have a marker each
ALLOWED = 2.0  # times rounding's own error
PICTURES = ("kl_mean", "error_ratio", "top1_agreement", "per_token_s")  # over bytes
TITLED = {"top1_agreement": "%"}


def write(folder: Path, points: list[Row], total: int | None) -> Sweep:
    """`sweep.csv`, `sweep.html` and, where points are evaluations, `answers.csv`; columns that are empty in every
    evaluation are left out of the first."""
    kept = points
    if cells := answers.table(folder, points):
        write_text(folder / CELLS, csv_of(cells))
        if {row.get("task") for row in points} == {"evaluate"}:
            keys = [k for k in points[0] if any(row[k] is not None for row in points)]
            kept = [{k: row[k] for k in keys} for row in points]
    said = [{**row, "reason": worded(row["reason"], plain=True)} for row in kept]
    write_text(folder / TABLE, csv_of(said))
    sweep = sweep_of(folder, answers.completed(folder, points), total)
    write_text(folder / PAGE, drawn(sweep, folder.name))
    return sweep


def drawn(sweep: Sweep, name: str) -> str:
    """The page of a sweep that is called `name`."""
    folder, points, axes = sweep.folder, list(sweep.points), list(sweep.axes)
    left = max(sweep.asked - len(points), 0)
    sections = [
        *_missing(sweep, left),
        *_stopped(sweep, left),
        *_grid(sweep),
        *_objectives(sweep),
        *_pictures(sweep),
        *_settings(sweep),
        *_cells(sweep),
        _every(sweep),
        *_left_over(sweep),
    ]
    best = [row for row in points if row["point"] == sweep.best_point]
    sections += of_sweep(folder, best, _audit(points))
    bad = sum(int(row["exit_code"]) != 0 for row in points)
    badge = f"{bad} of {len(points)} not as required" if bad else shown.outcome(sweep)
    lines = [shown.headline(sweep), shown.recommended(sweep), *shown.notes(sweep)]
    return page(
        swept(points, axes, name, searches(folder)),
        sections,
        badge,
        "\n".join(filter(None, lines)),
        "bad" if bad else "soft" if left else _tone(points),
        [(file, file) for file in _files(sweep, left)],
        under=f"{name}{constant(folder, points, axes, name)}",
    )


def tone(row: Row) -> str:
    """The colour of a point: other logits are wrong only where pruning or codes were not to change them."""
    changed = row.get("restore") and not int(row["exit_code"])
    whole = (
        row.get("kept_tokens") == row.get("tokens") and str(row.get("quantize") or "none") == "none"
    )
    return allowed_kind(word(row)) if changed and not whole else kind(word(row))


def _tone(points: list[Row]) -> str:
    tones = set(map(tone, points))
    return next((t for t in ("bad", "fair", "soft", "alike") if t in tones), "good")


def _missing(sweep: Sweep, left: int) -> list[Row]:
    text = (
        f"{left} of {sweep.asked} points have not run. This runs them, and none again that is done:"
    )
    return [section("Missing", text=text, pre=shown.again(sweep.folder))] * bool(left)


def _stopped(sweep: Sweep, left: int) -> list[Row]:
    """Points that failed or were refused: why, and how each is run again."""
    points = [row for row in sweep.points if row["verdict"] in STOPPED]
    if not points:
        return []
    rows = [
        [
            cell(row["point"], target(row), "bad", SIGNS[row["verdict"]]),
            sweep.named(row),
            cell(worded(why(row)), kind="long"),
            cell(of_point(sweep.folder / row["point"]), kind="code"),
        ]
        for row in points[:MOST]
    ]
    title = "What was refused" if all(r["verdict"] == "refused" for r in points) else "What failed"
    text = f"The first {MOST} of {len(points)}." * (len(points) > MOST)
    columns = ["point", "options", "why", "to run it again"]
    made = [section(title, text=text, columns=columns, rows=rows)]
    if not left and any(row["verdict"] == "failed" for row in points):
        made.append(section("Go on", text="This runs again what failed, once its cause is mended, and nothing that is done:",
                            pre=shown.again(sweep.folder)))  # fmt: skip
    return made


def _marked(sweep: Sweep, row: Row) -> Row:
    best = " best" * (row["point"] in sweep.marked)
    best += " nearest" * bool(
        best and sweep.best and not sweep.evaluated and shown.nearest(sweep.best)
    )
    said = f"{word(row)}, {row['answer']}" if row.get("answer") else word(row)
    return cell(said, target(row), tone(row) + best, sign(word(row)))


def _grid(sweep: Sweep) -> list[Row]:
    """The verdicts over two options or more: that with the fewest values across."""
    axes, points = list(sweep.axes), sweep.points
    if len(axes) < 2 or sweep.searched or set(map(word, points)) == {DONE}:
        return []
    values = {axis: list(dict.fromkeys(str(r[axis]) for r in points)) for axis in axes}
    across = min(axes, key=lambda axis: len(values[axis]))
    down = [axis for axis in axes if axis != across]
    lines: dict[tuple[str, ...], dict[str, Row]] = {}
    for row in points:
        lines.setdefault(tuple(str(row[a]) for a in down), {})[str(row[across])] = _marked(
            sweep, row
        )
    if len(values[across]) > ACROSS or len(lines) > DOWN:
        return []
    rows = [
        [*map(plots.short, key), *(line.get(v, "") for v in values[across])]
        for key, line in lines.items()
    ]
    heads = [*down, *map(plots.short, values[across])]
    return [
        section(
            "Verdicts",
            text=f"{across} across; every verdict links to its run.",
            columns=heads,
            rows=rows,
        )
    ]


def _objectives(sweep: Sweep) -> list[Row]:
    """A search's objectives against each other, or its one objective over the first option."""
    rows = [
        dict(r) for r in sweep.points if all(isinstance(r.get(n), int | float) for n in sweep.ways)
    ]
    if not sweep.ways or len(rows) < 2:
        return []
    front = {row["point"] for row in sweep.front}
    names = sorted(
        sweep.ways, key=lambda name: sweep.ways[name]
    )  # what should be small goes to the right
    across, up = names[:2] if names[1:] else (next(iter(sweep.axes), "point"), names[0])
    text = "Half full: on the Pareto front, which no other point beats." if sweep.front else ""
    picture = scatter.scatter(
        rows, across, up, lambda row: "alike" if row["point"] in front else "fair", None,
        column_fact(up).label, column_fact(across).heading if names[1:] else across, column_fact(up).unit, sweep.axes,
    )  # fmt: skip
    made = [section("Objectives", text=text, panels=[picture])]
    if len(sweep.ways) > 1 and sweep.front:
        made.append(_section("The Pareto front", shown.table(sweep, (), sweep.front), sweep))
    return made


def _pictures(sweep: Sweep) -> list[Row]:
    """How far the logits went and how fast it goes on, by bytes; coloured by the option with the fewest values."""
    rows = [dict(r) for r in sweep.points if r["verdict"] not in STOPPED and r.get("stored_bytes")]
    if len(rows) < 2 or not sweep.axes:
        return []
    held = any(axis.partition(".")[0] in ("prune", "quantize") for axis in sweep.axes)
    x = next(
        (
            k
            for k in ("kv_bytes", "stored_bytes")
            if (held or k != "kv_bytes") and _several(rows, k)
        ),
        "",
    )
    x = x or next((a for a in sweep.axes if not is_seed(a)), sweep.axes[0])
    free = [
        a
        for a in sweep.axes
        if a != x and not is_seed(a) and len({str(r[a]) for r in rows}) <= MARKS
    ]
    by = min(free, key=lambda a: len({str(r[a]) for r in rows}), default=None)
    under = x
    if x.endswith(BYTE_COUNT):
        rows, under = [{**r, x: r[x] / 1024} for r in rows], f"{column_fact(x).label}, KiB"
    panels = []
    for key in dict.fromkeys((*shown.own_metrics(rows), *PICTURES)):
        if _several(rows, key):
            some = (
                [{**r, key: 100 * r[key]} for r in rows if r.get(key) is not None]
                if key in TITLED
                else rows
            )
            fact = column_fact(key)
            limit = (
                ALLOWED
                if key == "error_ratio" and all(r["verdict"] in GOOD for r in rows)
                else None
            )
            panels.append(
                scatter.scatter(
                    some,
                    x,
                    key,
                    partial(_full_by, by=by),
                    by,
                    fact.label,
                    under,
                    TITLED.get(key, fact.unit),
                    sweep.axes,
                    limit,
                )
            )
    text = f"By {under}; every mark links to its run. Dashed: the error that is allowed. Times are of one measurement."
    legend = _legend(rows, by)
    return [section("Error, bytes and speed", text=text, panels=panels, legend=legend)] * bool(
        panels
    )


def _several(rows: Sequence[Row], key: str) -> bool:
    return len({r.get(key) for r in rows} - {None}) > 1


def _full_by(row: Row, by: str | None) -> str:
    """How full a mark is: by its verdict where its colour tells an option, else as the table tells it."""
    return kind(row["verdict"]) if by else tone(row)


def _legend(rows: list[Row], by: str | None) -> str:
    tones = {_full_by(r, by): word(r) for r in rows}
    said = "".join(
        f'<span><b class="{"" if by else t}">{scatter.FULLNESS[t]}</b> {escape(w)}</span>'
        for t, w in tones.items()
    )
    if by:
        said += f"<span>{escape(by)}:</span>" + "".join(
            f'<span><b style="color:{scatter.colour(n)}">{plots.SHAPES[mark]}</b> {escape(plots.short(value))}</span>'
            for n, (value, mark) in enumerate(scatter.markers(rows, by).items())
        )
    return said


def _settings(sweep: Sweep) -> list[Row]:
    """Where several questions were asked: a line per setting, best first, with the median and the worst of its points."""
    if not any(s.points[1:] for s in sweep.settings) or not sweep.questions:
        return []
    options = list(sweep.settings[0].options)
    keys = [k for k in (*shown.own_metrics(sweep.points), "kl_mean", "error_ratio", "stored_bytes") if _several(sweep.points, k)]  # fmt: skip
    rows = []
    for setting in sweep.settings:
        best = setting is sweep.best or setting in sweep.tied
        tally = ", ".join(f"{n} {w}" for w, n in Counter(map(word, setting.points)).items())
        good = sum(not int(r["exit_code"]) for r in setting.points)
        line: list[Any] = [*(plots.short(setting.options[o]) for o in options)]
        line.append(cell(tally, kind=f"{_tone(list(setting.points))}{' best' * best}"))
        line.append(f"{good} of {len(setting.points)}")
        if any(r.get("answer") for r in sweep.points):
            line.append(
                f"{sum(r.get('answer') == 'right' for r in setting.points)} of {len(setting.points)}"
            )
        for key in keys:
            known = [r[key] for r in setting.ran if isinstance(r.get(key), int | float)]
            line += [median(known), max(known)] if known else ["", ""]
        rows.append(line)
    heads = [
        *options,
        "verdicts",
        "as required",
        *["right"] * any(r.get("answer") for r in sweep.points),
    ]
    heads += [f"{column_fact(k).heading}, {end}" for k in keys for end in ("median", "largest")]
    seeds = " and ".join(sweep.questions)
    title = "Over the seeds" if all(map(is_seed, sweep.questions)) else "Settings"
    return [
        section(
            title,
            text=f"Points that differ only in {seeds}, pooled; best first.",
            columns=heads,
            rows=rows,
        )
    ]


def _cells(sweep: Sweep) -> list[Row]:
    """What every cell of every evaluation answered."""
    table = answers.table(sweep.folder, sweep.points)
    if not table:
        return []
    points = {row["point"]: row for row in sweep.points}
    rows = []
    for line in table:
        point = points[line["point"]]
        name = cell_name(line)
        best = " best" * (name == point.get("cell"))
        rows.append([
            cell(name, kind=f"good{best}" if best else ""), line["asked"], cell(point["point"], target(point)),
            *(plots.short(point[a]) for a in sweep.axes), *(_percent(line.get(k)) for k in ("contains", "contains_low", "contains_high")),
            line.get("kl"), round((line["kv_bytes"] or 0) / 1024, 1),
        ])  # fmt: skip
    rows.sort(key=lambda row: str(row[0]["text"]))
    heads = [
        "cell",
        "asked",
        "point",
        *sweep.axes,
        "right, %",
        "95% from",
        "to",
        "KL (nats)",
        "K/V, KiB",
    ]
    text = (
        "Each cell under every option. Best: the smallest safe cell of its point, else the nearest."
    )
    return [
        section(
            "What each point answered", text=text, columns=heads, rows=rows, fold=len(rows) > 200
        )
    ]


def _percent(share: float | None) -> float | None:
    return None if share is None else float(f"{100 * share:.3g}")


def _every(sweep: Sweep) -> Row:
    """A line per point, best first, with the rule by which they are ranked."""
    made = shown.table(sweep, (*shown.FIGURES_SHOWN, *shown.MORE))
    block = _section("Every point", made, sweep)
    text = f"{block['text']} {shown.ranking(sweep)} Every figure: {TABLE}."
    return block | {
        "text": text.strip(),
        "fold": len(sweep.points) > MANY,
        "lines": noted(sweep.folder),
    }


def _section(title: str, table: Table, sweep: Sweep) -> Row:
    """A table as a block of the page: links, colours, meanings."""
    rows = []
    for row, shown_cells in zip(table.rows, table.cells(), strict=True):
        line: list[Any] = []
        for column, text in zip(table.columns, shown_cells, strict=True):
            value = row.get(column.key)
            if column.key == "point":
                line.append(cell(text, target(dict(row))))
            elif column.key == "outcome":
                line.append(_marked(sweep, dict(row)))
            elif column.key in ("restore", "answer"):
                good = {"right": "good", "wrong": "bad"}.get(str(value)) or (
                    kind(value) if value else ""
                )
                line.append(cell(value or "", kind=good, sign=sign(value) if value else ""))
            else:
                line.append(cell(text, kind="n" if isinstance(value, int | float) else ""))
        rows.append(line)
    meant = [f"{c.heading}: {c.fact.meaning}" for c in table.columns if c.fact.meaning]
    text = f"{'; '.join(meant)}." if meant else ""
    return section(title, text=text, columns=[c.heading for c in table.columns], rows=rows)


def _left_over(sweep: Sweep) -> list[Row]:
    """Points that the tracking server lacks, and points that other code has run than the rest."""
    folder, again = sweep.folder, shown.again(sweep.folder)
    made = []
    if waiting := shown.pending(folder, sweep.points):
        made.append(
            section(
                "Not yet on the tracking server",
                text=f"{', '.join(map(called, waiting))}. Upload them: {again}",
            )
        )
    if other := _of_other_code(sweep):
        text = f"{', '.join(map(called, other))}: run by other code than the rest. Delete what is to run again and resume: {again}"
        made.append(section("Not of one code", text=text))
    return made


def _of_other_code(sweep: Sweep) -> list[str]:
    codes: dict[str, str] = {}
    for point in (row["point"] for row in sweep.points):
        with suppress(OSError, ValueError):
            if code := (read(sweep.folder / point / "result.json").get("environment") or {}).get(
                "code"
            ):
                codes[point] = code
    most = Counter(codes.values()).most_common(1)
    return [point for point, code in codes.items() if code != most[0][0]]


def _files(sweep: Sweep, left: int) -> list[str]:
    """What lies beside the page: its tables, its record, and of a search that is complete the front in full."""
    folder = sweep.folder
    answered = [CELLS] * any((folder / row["point"] / ROWS).is_file() for row in sweep.points)
    return [TABLE, *answered, RECORD, *[FRONT] * bool(not left and searches(folder))]


def _audit(points: list[Row]) -> list[str]:
    """The command that audits the sweep, where all of its points are of tasks that can be."""
    folders = {str(Path(str(row["folder"])).parent) for row in points if row.get("folder")}
    if len(folders) != 1 or not all(row.get("task") in AUDITED for row in points):
        return []
    return [f"python -m harness task=audit {shlex.quote(f'run={folders.pop()}')}"]
