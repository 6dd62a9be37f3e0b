"""How the facts of a sweep look: headline, notes and table, for the console, the page and MLflow."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness import process
from harness.config import launched
from harness.machine import many
from harness.present.messages import NOTES, RANKING, RANKING_CELLS, RANKING_SEARCH, SWEEP, message
from harness.present.table import Column, Table, markdown
from harness.results.fact import Fact
from harness.results.metric import registered
from harness.results.points import (
    CELLS,
    CHOICE,
    FIGURES,
    PAGE,
    STOPPED,
    TABLE,
    Row,
    column_fact,
    word,
)
from harness.results.sweep import Note, Setting, Sweep
from harness.snapshot.record import PENDING, read
from harness.snapshot.result import DONE, GOOD

MOST = 20  # points or reasons that the console shows
NAMED = 10  # points that one line names
LONG = 40  # characters of an option's value
FIGURES_SHOWN = (
    "top1_agreement", "same_draws", "kl_mean", "error_ratio", "kept_mean", "kept_tokens", "kv_bytes", "stored_bytes",
    "per_token_s",
)  # fmt: skip
MORE = (
    "kl_max",
    "max_abs_diff",
    "save_s",
    "load_s",
    "mutated",
    "bytes_copied_per_token",
)  # on the page
MOVED = "  # track.uri=ADDRESS too, where the server has another address by now"


def own_metrics(points: Sequence[Row]) -> list[str]:
    """The columns of metrics that somebody registered."""
    return [name for name in registered() if any(name in row for row in points)]


def figures(sweep: Sweep, keys: Sequence[str]) -> list[str]:
    """The columns of `keys`, of objectives, cells and registered metrics that some point has."""
    wanted = [*sweep.ways, *((CHOICE, *FIGURES) if sweep.evaluated else ()), *own_metrics(sweep.points), *keys]  # fmt: skip
    return [
        key for key in dict.fromkeys(wanted) if any(r.get(key) is not None for r in sweep.points)
    ]


def table(
    sweep: Sweep, keys: Sequence[str], rows: Sequence[Row] = (), keep: Sequence[str] = ()
) -> Table:
    """The points as a table, best setting first: what varies, the verdict, figures. keys: of figures."""
    ordered = list(rows) or [row for setting in sweep.settings for row in setting.points]
    if sweep.ways and not rows:
        ordered = [*sweep.front, *(row for row in ordered if row not in sweep.front)]
    names = figures(sweep, keys)
    restored = any(row.get("restore") and row["restore"] not in GOOD for row in sweep.points)
    columns = [Column("point", Fact("point")), *(Column(axis, Fact(axis)) for axis in sweep.axes)]
    columns += (
        [] if sweep.searched else [Column("outcome", Fact("verdict", meaning="of the comparison"))]
    )
    columns += [Column("restore", column_fact("restore"))] * (restored and not sweep.searched)
    columns += [Column("answer", column_fact("answer"))] * any(r.get("answer") for r in ordered)
    columns += [Column(key, column_fact(key)) for key in names]
    columns += [Column("front", Fact("front"))] * (len(sweep.ways) > 1 and bool(sweep.front))
    shown = [
        {
            **row,
            **{axis: short(row.get(axis)) for axis in sweep.axes},
            "outcome": word(row),
            "front": "\u25c6" if row in sweep.front else "",
            "best": row["point"] in sweep.marked,
        }
        for row in ordered
    ]
    own = own_metrics(sweep.points)
    made = Table("", columns, shown, "best")
    return (
        made.varying("point", *sweep.axes, "outcome", *sweep.ways, *own, *keep)
        if shown[1:]
        else made
    )


def short(value: Any) -> str:
    text = str("-" if value is None else value)
    return text if len(text) <= LONG else f"{text[: LONG - 1]}\u2026"


def settings(options: dict[str, str]) -> str:
    return " ".join(f"{key}={short(value)}" for key, value in options.items()) or "the only setting"


def counted(sweep: Sweep) -> str:
    """What the points came to, in one line: `1 failed, 2 exact`."""
    if sweep.searched:
        return f"{many(len(sweep.points), 'point')} searched"
    if cells := [row for row in sweep.evaluated if row[CHOICE]]:
        safe = f"{sum(row[FIGURES[0]] for row in cells) or 'none'} of {len(cells)} safe"
        stopped = [f"{n} {w}" for w, n in sweep.counts.items() if w != DONE]
        best = f": {sweep.best.points[0][CHOICE]}" if sweep.best else ""
        return ", ".join([*stopped, safe + best])
    return ", ".join(f"{n} {verdict}" for verdict, n in sweep.counts.items())


def outcome(sweep: Sweep) -> str:
    """The same, with how many of the points have run where some have not."""
    part = len(sweep.points) < sweep.asked
    said = counted(sweep)
    return f"{len(sweep.points)} of {many(sweep.asked, 'point')}: {said}" if part else said


def recommended(sweep: Sweep) -> str:
    """Which point or setting to choose, in one sentence; empty where none is."""
    if sweep.ways:
        return _searched(sweep)
    best = sweep.best
    if best is None:
        cells = {row[CHOICE] for row in sweep.evaluated}
        if len(cells) == 1 and all(row.get(FIGURES[0]) for row in sweep.evaluated):
            return message("cell_in_each", {"cell": cells.pop(), "n": len(sweep.evaluated)}, SWEEP)
        return message("no_cell", {}, SWEEP) if any(cells) else ""
    args: dict[str, Any] = {"setting": settings(best.options), "figures": _figures(sweep, best)}
    if sweep.evaluated:
        safe = all(row[FIGURES[0]] for row in best.points)
        args["cell"] = best.points[0][CHOICE]
        return message("best_cell" if safe else "nearest_cell", args, SWEEP)
    code = "nearest" if nearest(best) else "best"
    said = message(code if best.meets else "nearest_below", args, SWEEP)
    beside = sweep.baseline and message(
        "baseline", {"setting": settings(sweep.baseline.options)}, SWEEP
    )
    return f"{said} {beside}" if beside else said


def nearest(setting: Setting) -> bool:
    """Whether a setting is no more than the nearest: below what is required, or with other tokens throughout."""
    changed = (
        row["verdict"] == "diverged" and row.get("answer") != "right" for row in setting.points
    )
    return not setting.meets or all(changed)


def brief(sweep: Sweep) -> list[str]:
    """The figures that the console shows: how far off, how large, how fast."""
    changed = any(row["verdict"] in ("drifted", "diverged") for row in sweep.points)
    sizes = [
        k
        for k in ("kv_bytes", "stored_bytes")
        if len({r.get(k) for r in sweep.points} - {None}) > 1
    ]
    return [
        "kl_mean" if changed else "error_ratio",
        *(sizes[:1] or ["stored_bytes"]),
        "per_token_s",
    ]


def _searched(sweep: Sweep) -> str:
    if not sweep.front:
        return ""
    name = next(iter(sweep.ways))
    ends = sorted(sweep.front, key=lambda row: row[name])

    def shown(row: Row) -> str:
        return ", ".join(
            f"{column_fact(n).heading} {column_fact(n).show(row[n])}" for n in sweep.ways
        )

    parts = []
    if len(sweep.ways) > 1:
        parts = [message("front", {"n": len(sweep.front), "of": len(sweep.points)}, SWEEP)]
        if shown(ends[0]) != shown(ends[-1]):
            parts.append(
                message("front_ends", {"least": shown(ends[0]), "most": shown(ends[-1])}, SWEEP)
            )
    best = sweep.front[0]
    args = {"setting": sweep.named(best), "figures": shown(best)}
    return " ".join([*parts, message("best", args, SWEEP)])


def _figures(sweep: Sweep, best: Setting) -> str:
    """The medians of a setting's figures, and of several points the worst divergence and how many are as required."""
    from statistics import median

    parts = []
    keys = FIGURES[1:] if sweep.evaluated else (*own_metrics(sweep.points), *brief(sweep))
    for key in keys:
        known = [row[key] for row in best.ran if isinstance(row.get(key), int | float)]
        if known and (key != "kl_mean" or best.key[-1]):
            fact = column_fact(key)
            worst = (
                f", worst {fact.show(max(known))}"
                if key == "kl_mean" and max(known) > min(known)
                else ""
            )
            middle = "median " * bool(worst)
            parts.append(f"{fact.heading} {middle}{fact.show(median(known))}{worst}")
    if best.points[1:] and not sweep.evaluated:
        good = sum(int(row["exit_code"]) == 0 for row in best.points)
        parts.append(f"{good} of {len(best.points)} as required")
    words = dict.fromkeys(word(row) for row in best.points if word(row) != DONE)
    return ", ".join([*words, *parts])


def ranking(sweep: Sweep) -> str:
    """The rule by which points are recommended; empty where none is."""
    if not sweep.marked:
        return ""
    return RANKING_SEARCH if sweep.ways else RANKING_CELLS if sweep.evaluated else RANKING


def note(item: Note) -> str:
    """The sentence of a note; of many points it names the first."""
    args = {
        key: _few(value) if isinstance(value, list) else value for key, value in item.args.items()
    }
    code = "damage_missed" if item.code == "damage" and item.args["missed"] else item.code
    return message(code, args, NOTES)


def notes(sweep: Sweep) -> list[str]:
    return [note(item) for item in sweep.notes]


def _few(items: Sequence[Any]) -> list[Any]:
    more = [f"{len(items) - NAMED} more"] * (len(items) > NAMED)
    return [settings(item) if isinstance(item, dict) else item for item in items[:NAMED]] + more


def sentence(sweep: Sweep) -> str:
    """What the sweep's run on a server is told: what is recommended, and the notes."""
    done, asked = len(sweep.points), sweep.asked
    first = [message("incomplete", {"done": done, "asked": asked}, SWEEP)] * (done < asked)
    return " ".join(filter(None, [*first, recommended(sweep), *notes(sweep)]))


def described(sweep: Sweep) -> tuple[str, str, str, str]:
    """`(outcome, sentence, table, best point)` of the sweep's run on a server."""
    return outcome(sweep), sentence(sweep), markdown(table(sweep, FIGURES_SHOWN)), sweep.best_point


def headline(sweep: Sweep) -> str:
    """How many points there are, over what, and what they came to."""
    args = {
        "points": many(sweep.asked, "point"),
        "axes": list(sweep.axes),
        "counts": counted(sweep),
    }
    return message("counts" if sweep.axes else "counts_alone", args, SWEEP)


# --- the console


@dataclass(frozen=True)
class Closing:
    """What the console says at the end: labelled lines, the table between them, commands and files."""

    lines: list[tuple[str, str]]
    table: Table | None
    after: list[tuple[str, str]]


def closing(sweep: Sweep, aged: Sequence[str] = (), stopped: bool = False) -> Closing:
    """aged: points that other code has run. stopped: how to go on is said elsewhere."""
    points, folder = sweep.points, sweep.folder
    lines = []
    if not sweep.searched and set(sweep.counts) != {DONE}:
        lines.append(("verdicts", counted(sweep)))
    so_far = " so far" * (len(points) < sweep.asked)
    if best := recommended(sweep):
        lines.append((f"best{so_far}", best.removeprefix("Best: ")))
    lines += [("note", said) for said in notes(sweep)[:MOST]]
    lines += [("ranking", ranking(sweep))] * bool(best and ranking(sweep))
    shown = table(sweep, brief(sweep), sweep.front if sweep.ways else ())
    rows = [row for row in shown.rows if row["verdict"] not in STOPPED][:MOST]
    after, left = [], ""
    if len(points) < sweep.asked:
        args = {"n": sweep.asked - len(points), "of": sweep.asked}
        after.append(("missing", message("missing", args, SWEEP)))
        left = typed(folder)
    if waiting := pending(folder, points):
        reasons = (read(folder / name / PENDING).get("reason", "") for name in waiting)
        why = next((str(reason) for reason in reasons if str(reason).startswith("cannot")), "")
        after.append(
            (
                "not uploaded",
                message("not_uploaded", {"points": _few(waiting)}, SWEEP) + f": {why}" * bool(why),
            )
        )
        left = f"{typed(folder)}{MOVED}"
    after += [("exit code", said) for said in exits(sweep)]
    if left and not stopped:
        after.append(("go on with", left))
    elif not stopped and any(row["verdict"] == "failed" for row in points):
        after.append(("run again", f"{typed(folder)}  # what failed, once its cause is mended"))
    if aged:
        after.append(("other code", message("other_code", {"points": list(aged)}, SWEEP)))
    if (
        sweep.ways
        and sweep.best_point
        and (command := launched.of_point(folder / sweep.best_point))
    ):
        after.append(("best again", command.replace("python -m harness", process.spelled(), 1)))
    place = here(folder)
    after.append(("table", f"{place}/{TABLE}"))
    after += [("cells", f"{place}/{CELLS}")] * (folder / CELLS).is_file()
    after.append(("page", f"{place}/{PAGE}"))
    made = Table(shown.title, shown.columns, rows, shown.mark) if rows[1:] else None
    return Closing(lines, made, after)


def exits(sweep: Sweep) -> list[str]:
    """Why a sweep ends with another exit code than 0; empty where it does not."""
    codes = [int(row["exit_code"]) for row in sweep.points]
    worst = max(codes, default=0)
    if not worst:
        return []
    code = "exit_stopped" if worst > 1 else "exit_below"
    return [message(code, {"code": worst, "n": codes.count(worst), "of": len(codes)}, SWEEP)]


def pending(folder: Path, points: Sequence[Row]) -> list[str]:
    """The points that the tracking server does not have yet."""
    return [row["point"] for row in points if (folder / row["point"] / PENDING).exists()]


def again(folder: Path) -> str:
    """The command that runs what is missing in a sweep and uploads what is pending."""
    return f"python -m harness -m {shlex.quote(f'resume={here(folder)}')}"


def typed(folder: Path) -> str:
    """The same as it is typed from where the person stands."""
    return again(folder).replace("python -m harness", process.spelled(), 1)


def here(path: Path) -> Path:
    """Relative to the working directory where it lies below it."""
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
