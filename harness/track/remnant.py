"""A sweep whose process is gone before its end: what is there of it, from its folder, and how it goes on."""

import shlex
import textwrap
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from harness import machine
from harness.present.messages import worded
from harness.process import shown
from harness.snapshot.record import read
from harness.snapshot.result import DONE, METRICS, SIZES, exit_code, outcome, tallied
from harness.track import description, inputs, links, names, parent
from harness.track.totals import totals

NOTE = "mlflow.note.content"
CUT = "cut"  # in what a sweep's folder keeps of its run: it was told so
SUDDEN = "its process ended before the sweep did (`kill -9`, Ctrl-C, want of memory, a power cut)"


class Left(NamedTuple):
    """What is there of a sweep. rows: as `totals` takes them. runs: folder as tagged -> run id. table: its points, in
    lines of markdown."""

    words: str
    sentence: str
    reason: str
    rows: list[dict[str, Any]]
    runs: dict[str, str]
    table: list[str]


def going(folder: Path) -> dict[str, str]:
    """The tags of a sweep that runs: from its beginning on it says how it goes on where nobody is left to say it."""
    why = f"begun and not at its end; if its process is gone: `{again(folder)}`"
    return {"reason": why, NOTE: f"**running**: {why}\n\nFolder: `{shown(folder)}`"}


def again(folder: Path) -> str:
    """The command that runs what is missing in a sweep."""
    return f"python -m harness -m {shlex.quote(f'resume={shown(folder)}')}"


def left(folder: Path, asked: int | None) -> Left:
    """What is there in `folder`. asked: how many points were asked for, where that is known."""
    results = _results(folder)
    rows = [_row(result) for result in results.values()]
    tally = tallied((str(row["outcome"]), row["exit_code"] == 0) for row in rows)
    some = (
        f"{len(rows)} of {machine.many(asked, 'point')}"
        if asked
        else machine.many(len(rows), "point")
    )
    told = ", ".join(f"{count} {word}" for word, count in tally.items())
    words = f"{some}: {told}" if told else some
    reason = f"stopped after {some}: {SUDDEN}; go on with `{again(folder)}`"
    if not folder.is_dir():
        reason = f"stopped: {SUDDEN}, and its folder {shown(folder)} is not there any more"
    runs = {
        str(result.get("folder")): run_id
        for result in results.values()
        if (run_id := (result.get("mlflow") or {}).get("run_id"))
    }
    return Left(words, f"Stopped after {some}: {SUDDEN}.", reason, rows, runs, _table(results))


def complete(client: Any, experiment: str, run: Any, folder: Path) -> None:
    """Say on a sweep's run what is there and how it goes on, put its points below it and mark it as killed. The
    folder keeps that it was told so."""
    from mlflow.entities import Metric, RunTag

    run_id, block = run.info.run_id, parent.known(folder)
    there = left(folder, block.get("asked"))
    worked = parent.worked(folder)
    points, _ = parent.adopt(client, run_id, there.runs)
    compared = links.comparison(experiment, run_id, list(points.values()))
    head = f"**{there.words}**\n\n{there.reason[:1].upper()}{there.reason[1:]}\n\n{compared}"
    tail = f"{description.lasted(worked)}\n\nFolder: `{shown(folder)}`"
    note = description.fitted(head, there.table, f"\n\n{tail}" if there.table else tail)
    said = {
        **parent.commit(folder),
        **parent.told(there.words, there.sentence),
        "reason": there.reason,
        NOTE: note,
    }
    _, ends = parent.spans(folder)
    when = max(ends, default=run.info.start_time)
    figures = [*totals(there.rows, (), run.data.metrics)] if there.rows else []
    figures += [(parent.WORKED, worked, 0)] * bool(ends)
    client.update_run(run_id, name=names.ended(run.info.run_name, there.words))
    client.log_batch(
        run_id,
        [Metric(key, value, when, step) for key, value, step in figures],
        tags=[RunTag(key, value) for key, value in said.items()],
    )
    if block:
        with suppress(OSError):  # it can only be read
            parent.keep(folder, {**block, CUT: True})
    mine = {*points.values()}
    below = [r for r in parent.below(client, experiment, run_id) if r.info.run_id in mine]
    inputs.share(client, run_id, below)
    client.set_terminated(run_id, "KILLED", max(ends, default=None))


def _results(folder: Path) -> dict[Path, dict[str, Any]]:
    """The results of the finished points by their folders, in their order."""
    there = sorted(folder.glob("*/result.json"), key=lambda p: (len(p.parent.name), p.parent.name))
    made = {}
    for path in there:
        with suppress(OSError, ValueError):  # cut in the middle
            made[path.parent] = read(path)
    return made


def _table(results: dict[Path, dict[str, Any]]) -> list[str]:
    """One line for each point: its folder, what it alone was asked, what it came to and why."""
    lines = []
    for folder, result in results.items():
        asked = ""
        with suppress(OSError):
            asked = names.point(folder)
        why = textwrap.shorten(worded(result.get("reason")), description.WIDE, placeholder=" ...")
        lines.append(description.lined((folder.name, asked, outcome(result) or DONE, why)))
    return ["| folder | point | outcome | reason |", "|---|---|---|---|", *lines] if lines else []


def _row(result: dict[str, Any]) -> dict[str, Any]:
    size, time = result.get("size") or {}, result.get("time_s") or {}
    return {
        "verdict": result.get("verdict"),
        "outcome": outcome(result) or DONE,
        "exit_code": exit_code(result),
        **{key: (result.get("metrics") or {}).get(key) for key in METRICS},
        **{key: size[key] for key in SIZES if any(size.values()) and key in size},
        **{f"{key}_s": value for key, value in time.items()},
    }
