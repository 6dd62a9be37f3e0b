"""Runs that are `RUNNING` on the server although nobody is left to end them.

Who records a run says so on it: which process of which machine, and from which folder. Where that process
is provably gone (a power cut, `kill -9` of all), the next run, sweep or dashboard on that machine completes the
upload from the folder; what cannot be completed it marks as killed, and a sweep says what is there of it (`remnant.py`).
"""

import fcntl
import os
import socket
from pathlib import Path
from typing import Any

from harness.errors import Unreachable
from harness.snapshot.record import NAME, PENDING, read
from harness.track import contents, parent, provenance

UPLOADING = "uploading"  # the tag of a run whose upload is under way: the process and the folder
_seen: set[tuple[str, str]] = set()  # (uri, experiment): looked through by this process


def stamp() -> str:
    """This process, so that any other on its machine can tell whether it is still there; empty where
    nothing says when it began. Containers that share a machine's name have process numbers of their own."""
    try:
        numbers = Path("/proc/self/ns/pid").readlink().name.strip("pid:[]")
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{socket.gethostname()}/{numbers} {boot} {os.getpid()} {_start(os.getpid())}"
    except (OSError, IndexError):
        return ""


def gone(process: str) -> bool:
    """Whether a process of this machine provably is no more: the machine was started anew, or nothing that
    began then has its number. process: begins with a `stamp`."""
    mine, (host, boot, pid, start) = stamp().split(), (process.split() + [""] * 4)[:4]
    if not mine or host != mine[0] or not start:
        return False
    if boot != mine[1]:
        return True
    try:
        os.kill(int(pid), 0)
        return _start(int(pid)) != start
    except ProcessLookupError:
        return True
    except (OSError, ValueError, IndexError):
        return False  # somebody else's, which may not be looked at


def _start(pid: int) -> str:
    """When a process began, in ticks since the machine did; empty for one that only waits to be collected."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return "" if fields[0] in "ZX" else fields[19]


def uploading(folder: Path) -> dict[str, str]:
    """The tag of a run that this process uploads from `folder`."""
    return {UPLOADING: f"{stamp()} {folder.absolute()}"}


def settle(store: Any, once: bool = False) -> None:
    """Bring every such run of the store's experiment to its end. once: not where this process did so before.
    The store is open."""
    if once and (store.uri, store.experiment) in _seen:
        return
    _seen.add((store.uri, store.experiment))
    for run in store.client.search_runs([store.experiment], "attributes.status = 'RUNNING'"):
        if run.data.tags.get("kind") == parent.SUMMARY:
            if gone(run.data.tags.get("process", "")):
                store.cut(run.info.run_id, provenance.of(run.data.tags))
        elif gone(run.data.tags.get(UPLOADING, "")):
            try:
                _complete(store, run)
            except Unreachable:
                store.retry()  # it stays as it is, for the next one


def _complete(store: Any, run: Any) -> None:
    """Complete the upload of `run` from its folder, or mark it as killed where that is not to be had. Where the
    run is a point, its sweep completes it, at its end or when it is resumed: nobody else writes there."""
    run_id, folder = run.info.run_id, Path(run.data.tags[UPLOADING].split(maxsplit=4)[-1])
    try:
        with (folder / PENDING).open() as handle:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            tags = store.client.get_run(run_id).data.tags
            begun = read(folder / PENDING).get("run_id", run_id)
            mine = begun == run_id and tags.get("record") == contents.record_id(folder)
            if not gone(tags.get(UPLOADING, "")):
                return
            if mine and contents.in_sweep(folder):
                if _lives(store, folder.parent):
                    return
            elif mine:
                result = {**read(folder / "result.json"), "mlflow": None}
                store.log(folder, result, read(folder / NAME)["config"]["name"], again=True)
                return
    except BlockingIOError:
        return  # another process is at it
    except (OSError, ValueError, KeyError):
        pass
    store.client.set_terminated(run_id, "KILLED")


def _lives(store: Any, sweep: Path) -> bool:
    """Whether the sweep in this folder, as the store knows it, still runs."""
    block = parent.known(sweep)
    if block.get("uri") != store.shown or not block.get("run_id"):
        return False
    above = store.client.get_run(block["run_id"])
    return above.info.status == "RUNNING" and not gone(above.data.tags.get("process", ""))
