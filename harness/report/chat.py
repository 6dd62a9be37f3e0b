"""The chat as a page: time per turn, what was said, what was recalled, what was resumed."""

from typing import Any

from harness import machine
from harness.report.html import cell, section
from harness.report.names import plain
from harness.report.picture import plots
from harness.report.run import page as run
from harness.report.run import yardstick
from harness.snapshot.result import GOOD, MOMENT

Row = dict[str, Any]


COLUMNS = {
    "turn": "turn", "ask": "asked", "answer": "answered", "sent_tokens": "tokens sent",
    "total_tokens": "tokens in all", "cached_s": "cached, ms", "naive_s": "naive, ms",
    "naive_equal": "naive says the same", "restored_equal": "restored says the same",
    "stored_bytes": "KiB on disk", "mismatch": "written otherwise",
}  # fmt: skip

SAID = {
    "naive_equal": "the naive chat says the same",
    "restored_equal": "the chat restored from the pause before it says the same, token for token",
}

TOLD = {key: COLUMNS[key] for key in ("turn", "cached_s", "naive_s", "restored_equal")} | {
    "recalled": "recalled"
}
JUDGED = ("metrics", "noise_floor", "oracle", "soundness", "curves", "pruned", "options", "itself")
WHOLE = "Whole: what the pauses before it hold is written anew, in one piece, so that a chat stays in few files"

TIE = "but for a near tie"
WORDLESS = "A number in angle brackets, as <63425>, is a token that this tokenizer has no text for"


def sections(rows: list[Row], figures: Row, judged: Row | None = None) -> list[Row]:
    """Timing plot, the turns, what was counted, and what the verdict rests on. Columns that no turn has a value for
    are left out, and what is so in every turn is said. judged: the run's record, where it was compared."""
    rows = _asked(rows)
    known = {c: {row.get(c) for row in rows} - {None} for c in COLUMNS}
    same = [c for c in SAID if known[c] == {True}]
    columns = [c for c in COLUMNS if known[c] and c not in same]
    told = " ".join(f"{_often(rows, c)} {SAID[c]}." for c in same)
    told = told or "Restored: the chat that was paused after the turn before is asked this."
    if whole := any(row.get("stored_whole") for row in rows):
        told += f" {WHOLE}."
    told = told * bool(known["restored_equal"] or whole)
    if any(row.get("without_text") for row in rows):
        told += f" {WORDLESS}."
    counted = {k: v for k, v in figures.items() if v is not None and k != "judged_turn"}
    return [
        section(
            "Time per turn",
            text="Measured side by side, turn by turn, from the question to the last token of the "
            "answer. Cached: only new ids are sent. Naive: the whole chat is processed again."
            + _apart(rows)
            + _short(rows),
            legend=plots.colours(("naive", "cached")),
            panels=[timing(rows)],
        ),
        section(
            "Turns",
            text=told.strip(),
            columns=[COLUMNS[c] for c in columns],
            rows=[[_shown(c, row) for c in columns] for row in rows],
        ),
        section(
            "Counted",
            columns=["what", "value"],
            rows=[[plain(k), v] for k, v in counted.items()],
        ),
        *_judged(rows, figures, judged or {}),
    ]


def told(rows: list[Row]) -> tuple[list[str], list[Row]]:
    """The columns and rows of the console's table, whose words were shown as they were said."""
    keys = [key for key in TOLD if any(row.get(key) is not None for row in rows)]
    return [TOLD[key] for key in keys], [
        {TOLD[key]: _digits(_plain(key, row)) for key in keys} for row in _asked(rows)
    ]


def _asked(rows: list[Row]) -> list[Row]:
    """`rows`, each with what was checked of its own question: `chat.json` keeps that beside the pause before it."""
    none = {"restored_equal": None, "restored_verdict": None}
    before = [none, *rows[:-1]]
    return [
        row | {key: one.get(key) for key in none} for one, row in zip(before, rows, strict=True)
    ]


def _digits(value: Any) -> Any:
    return round(value) if isinstance(value, float) and value >= 100 else value


def _plain(column: str, row: Row) -> Any:
    value = row.get(column)
    if column == "restored_equal" and row.get("restored_verdict") in GOOD:
        return TIE
    return round(value * 1e3, 1) if column.endswith("_s") and value is not None else value


def _judged(rows: list[Row], figures: Row, result: Row) -> list[Row]:
    """The figures of the turn that the chat is judged by, and their errors against float64; none of another chat."""
    if not result.get("curves") or len(rows) < 2:
        return []
    result = {key: result[key] for key in JUDGED if key in result}
    last: int = figures.get("judged_turn") or rows[-1]["turn"]  # an older record judges the last
    steps = machine.many(len(result["curves"]["restored"]["kl"]), "step")
    own, *more = run.figures(result)
    said = f"Of turn {last}, restored from the pause after turn {last - 1}, beside a run that was never interrupted: {steps}."
    return [
        own | {"text": f"{said} {own.get('text') or ''}".strip()},
        *more,
        *yardstick.sections(result),
    ]


def _often(rows: list[Row], column: str) -> str:
    """In how many turns something was asked, which is so in all of them."""
    asked = sum(row.get(column) is not None for row in rows)
    return f"In {asked} of {machine.many(asked, 'turn')}"


def _apart(rows: list[Row]) -> str:
    """What the first turn took that is in none of the times; empty where nobody measured it."""
    took = next((row["apart_s"] for row in rows if row.get("apart_s")), None)
    if took is None:
        return ""
    return f" Turn 1 leaves out {machine.seconds(took)}, in which what every pause carries is made once."


def _short(rows: list[Row]) -> str:
    """That times this short say little about what grows; empty of longer ones."""
    known = [row["cached_s"] for row in rows if row.get("cached_s") is not None]
    if not known or max(known) >= MOMENT:
        return ""
    return f" No cached turn took {MOMENT:g} s: times this short vary with what else the machine does, so a ratio of two of them says little."


def _shown(column: str, row: Row) -> Any:
    """Times in milliseconds, bytes in KiB, an answer with whether it is right, where one was expected."""
    value = _plain(column, row)
    if value is None or column.endswith("_s"):
        return value
    if column == "stored_bytes":
        kib = f"{value / 1024:.0f} (whole)"
        return cell(kib, kind="n") if row.get("stored_whole") else round(value / 1024)
    if column == "answer":
        value = row.get("shown", value)
    if column == "answer" and row.get("recalled") is not None:
        right = row["recalled"]
        said = "right" if right else f"wrong, expected {row['expect']}"
        return cell(f"{value} ({said})", kind="good long" if right else "bad long")
    if column in ("naive_equal", "restored_equal") and not value:
        return cell("no", kind="bad")
    return value


def timing(rows: list[Row]) -> str:
    """Milliseconds per turn, cached beside naive."""
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    for number, (key, name) in enumerate((("naive_s", "naive"), ("cached_s", "cached"))):
        known = [(r["turn"], r[key] * 1e3) for r in rows if r.get(key) is not None]
        if known:
            axis.plot(
                *zip(*known, strict=True),
                color=plots.COLOURS[number],
                marker=plots.mark(number),
                markersize=4,
                linewidth=1.8,
                label=name,
            )
    axis.set_ylim(bottom=0)
    plots.whole(axis.xaxis)
    plots.label(axis, "Time per turn", "turn", "ms")
    return plots.svg(made)
