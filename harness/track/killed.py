"""A single run that was stopped before it had a result: on the server as `KILLED`.

The process beside a job outlives it, also after `kill -9`. It is told which job begins and that one came to
an end by itself; of what is left when nobody is there to tell it anything, nobody kept a result. So nothing
is ever `RUNNING` there that nobody would end.
"""

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.config import launched
from harness.errors import Unreachable
from harness.process import shown
from harness.snapshot.elements import MODEL
from harness.snapshot.record import NAME
from harness.track import contents, description, links, models, names, provenance

WORD = "stopped"  # what came out
SUDDEN = "its process ended without a word: `kill -9`, or the system took it for want of memory"
MANIFEST = "manifest.json"  # says that a snapshot is whole
ROWS = "bench.json"  # what a measurement leaves as it goes
KEPT = {
    links.GOES_ON: "; what was answered by then is kept, and the same command goes on from there"
}  # by task

_open: dict[str, dict[str, Any]] = {}  # folder -> what is known of the job that runs there


def known(config: dict[str, Any], folder: Path, options: dict[str, str]) -> dict[str, Any]:
    """What is known of a job that begins in `folder`, as JSON takes it; the folder may be gone when it is
    asked for."""
    return {
        "config": config,
        "options": options,
        "typed": contents.overrides(folder),
        "again": launched.of_point(folder),
        "began": int(time.time() * 1000),
        "reason": SUDDEN + KEPT.get(options["task"], ""),
    }


def begin(folder: str, **job: Any) -> None:
    """A job begins in `folder`."""
    _open[folder] = {"commit": provenance.commit(), **job}


def reads(folder: str, known: dict[str, Any]) -> None:
    """What the job in `folder` has read, beside what it had read before."""
    if folder in _open:
        _open[folder]["read"] = {**_open[folder].get("read", {}), **known}


def told(folder: str, reason: str) -> None:
    """The job in `folder` was told to end, and what it left."""
    if folder in _open:
        _open[folder]["reason"] = reason


def end(folder: str) -> None:
    """The job in `folder` came to an end by itself, or keeps its result."""
    _open.pop(folder, None)


def settle(store: Callable[[dict[str, Any]], Any], watch: Any) -> None:
    """Nobody is left: what has not come to its end was stopped. A result that was sealed before waits in its
    folder to be uploaded. store: the tracker of a configuration. watch: what was sampled meanwhile."""
    while _open:
        folder, job = _open.popitem()
        if (Path(folder) / NAME).is_file():
            continue
        config, typed = job["config"], job["typed"]
        if job["reason"].startswith(SUDDEN) and (kept := finished(Path(folder))):
            job["reason"] += f"; {kept}"
        name = names.ended(names.asked(config["name"], typed, job["options"]), WORD)
        params = list(contents.chosen(config, typed))
        read = {**_clear(job.get("read", {}), config), "options": job["options"], "config": config}
        read["task"] = job["options"]["task"]
        tags = _tags(folder, job, read)
        with suppress(Unreachable):
            store(config).killed(Path(folder), name, tags, job["began"], params, watch, read)


def finished(folder: Path) -> str:
    """Which snapshots a job has finished in its folder, or rows of a measurement, as a part of a sentence;
    empty for none."""
    if (rows := folder / ROWS).is_file():
        return f"kept: what was measured by then, in {shown(rows)}"
    whole = sorted(folder.glob(f"**/{MANIFEST}"), key=lambda p: p.stat().st_mtime_ns)
    many = f"{len(whole)} finished snapshots, the last of them" if whole[1:] else "the finished snapshot"  # fmt: skip
    return f"kept: {many} {shown(whole[-1].parent)}" if whole else ""


def _clear(read: dict[str, Any], config: dict[str, Any]) -> dict[str, Any]:
    """What a run had read, of an encrypted one its model alone: the digest of a text that nothing salts yet tells whoever
    guesses it."""
    if not contents.hidden(config):
        return read
    mine = [row for row in read.get("elements", []) if row["name"] in MODEL]
    return {**read, "elements": mine, "text": {}}


def _tags(folder: str, job: dict[str, Any], read: dict[str, Any]) -> dict[str, str]:
    again = description.commanded(job["again"])
    where, there = provenance.tags(Path(folder), shown(Path(folder))), Path(folder).is_dir()
    place = f"Folder: `{where['folder']}`\n\n" * there
    if not there:  # nothing finished was in it
        del where["folder"]
    said = f"{job['reason'][:1].upper()}{job['reason'][1:]}"
    model = models.named(read)
    return {
        "outcome": WORD,
        **({"model": model} if model else {}),
        **(links.request(job["again"]) if job["options"]["task"] in KEPT else {}),
        "conclusion": said[: contents.PARAM_LIMIT],
        "reason": job["reason"][: contents.PARAM_LIMIT],
        "task": job["options"]["task"],
        **where,
        **provenance.source(job.get("commit")),
        "mlflow.note.content": f"**{WORD}**: {job['reason']}\n\n{place}{again}",
    }
