"""What the page shows of an evaluation, as HTML: how far it is, and recall against memory, cell by cell,
below the whole state's. No gradio."""

from typing import Any

from harness.report.evaluate import page as evaluate
from harness.report.terminal.console import number
from harness.snapshot.cells import WHOLE
from harness.snapshot.cells import name as called
from harness.task.ui import words
from harness.task.ui.evaluation import Evaluation
from harness.task.ui.picture import outdated, safe, size

NOTHING = '<p class="empty">Choose what to try, then see how many questions each setting still answers.</p>'
SAID = 60  # answers that are shown
FEWER = '<span class="fewer" title="measurably fewer than the whole state">\u25bc</span>'


def shown(made: Evaluation) -> str:
    """How far `made` is, what it found so far, and what it says in one sentence once it is done."""
    if not made.total:
        return NOTHING
    parts = [_progress(made)]
    if made.whose != made.model_name:
        parts.insert(0, outdated(f"asked of another model, {made.whose}: evaluate again"))
    if made.rows:
        parts.append(_table(made.rows))
        parts.append(_otherwise(made))
    if made.place is not None:
        link = f': <a href="{safe(made.report)}" target="_blank">report.html</a> and every answer'
        told = link if made.report else ""
        parts.append(f'<p class="said">Kept in {safe(made.place)}{told}.</p>')
    return "".join(parts)


def _progress(made: Evaluation) -> str:
    asked = f"{made.done} of {made.total} questions asked of {made.cells} settings"
    if made.problem is not None:
        return f'<p class="said" role="status"><span class="problem">{safe(words.said(made.problem))}</span></p>'
    if made.running:
        share = f'max="{made.total}" value="{made.done}"'
        return f'<p class="said">{asked}.</p><progress {share} aria-label="questions asked"></progress>'
    if made.unsound:
        said = f"These figures count for nothing: {made.unsound}"
        return f'<p class="said" role="status"><span class="problem">{safe(said)}</span></p>'
    if made.stopped:
        more = " Evaluate again to go on from here." if made.done else ""
        return f'<p class="said" role="status">Stopped: {asked}.{more}</p>'
    return f'<p class="said" role="status"><b>{safe(evaluate.conclusion(made.rows))}</b></p>'


def _table(rows: list[dict[str, Any]]) -> str:
    cells = evaluate.cells(rows)
    whole = next(iter(cells.values()))["contains"]["kv_bytes"]
    body = "".join(_row(called(cell["contains"]), cell, whole) for cell in cells.values())
    fewer = any(_lost(cell) for cell in cells.values())
    legend = '<span><i class="key interval"></i>95% interval</span>'
    if fewer:
        legend += (
            f"<span>{FEWER} measurably fewer than the whole state, question by question</span>"
        )
    return (
        '<div class="wide"><table class="bars scores"><thead><tr><th scope="col">setting</th>'
        '<th scope="col" colspan="2">right answers</th><th scope="col" class="p">held</th>'
        f'<th scope="col" class="p kl">KL, nats</th></tr></thead><tbody>{body}</tbody></table></div>'
        f'<p class="legend">{legend}</p>'
    )


def _row(name: str, cell: dict[str, Any], whole: float) -> str:
    right = cell["contains"]
    hits = round(right["value"] * right["n"])
    low, high = 100 * right["low"], 100 * right["high"]
    nbytes = size(right["kv_bytes"])
    told = f"{hits} of {right['n']}; 95% interval {low:.0f}% to {high:.0f}%; {right['kv_bytes'] / whole:.0%} of the bytes"
    mark = FEWER if _lost(cell) else ""
    kind = "whole" if name == WHOLE else ""
    return (
        f'<tr class="{kind}" title="{safe(told)}"><th scope="row">{safe(name)}</th>'
        f'<td><div class="track"><div class="fill" style="width:{100 * right["value"]:.1f}%"></div>'
        f'<i style="left:{low:.1f}%;width:{max(high - low, 0.5):.1f}%"></i></div></td>'
        f'<td class="p">{mark}{right["value"]:.0%}</td><td class="p">{nbytes}</td>'
        f'<td class="p kl">{number(cell["kl"]["value"])}</td></tr>'
    )


def _lost(cell: dict[str, Any]) -> bool:
    return cell["contains"].get("delta_high", 0) < 0


def _otherwise(made: Evaluation) -> str:
    rows = [
        f'<tr><th scope="row">{safe(cell)}{_of(many) if not number else ""}</th>'
        f"<td>{safe(said)}</td><td>{safe(whole)}</td></tr>"
        for cell, many, some in made.otherwise
        for number, (said, whole) in enumerate(some)
    ][:SAID]
    if not rows:
        return ""
    body = "".join(rows)
    return (
        "<details><summary>What was said otherwise</summary>"
        '<table class="plain words"><thead><tr><th scope="col">setting</th><th scope="col">said</th>'
        f'<th scope="col">the whole state said</th></tr></thead><tbody>{body}</tbody></table></details>'
    )


def _of(every: int) -> str:
    """That a setting said more otherwise than is shown of it; nothing where all of it is."""
    return f"<br><small>{evaluate.BEST} of {every}</small>" if every > evaluate.BEST else ""
