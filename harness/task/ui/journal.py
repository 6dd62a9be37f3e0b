"""The page's own autosave: every branch of every tab, on this machine, readable by its owner only.

States are immutable, so a thread writes them while the thought goes on: the newest of a branch, and only
once it stands still for a moment. A tab's folder holds one snapshot per branch and `desk.json`.
"""

import logging
import os
import re
import threading
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import HarnessError
from harness.save import store
from harness.snapshot.record import read
from harness.snapshot.result import write_json
from harness.snapshot.state import State

FOLDER, INDEX = ".autosave", "desk.json"
TAB = re.compile(r"[0-9a-f]{32}")
STILL = 0.5  # seconds without an act before a branch is written
log = logging.getLogger(__name__)


class Journal:
    """The autosave of one tab below `shelf`. settings: a SaveConfig. Raises InputProblem never: a disk
    that refuses is logged, and the page goes on."""

    def __init__(self, shelf: Path, tab: str, settings: Any):
        if not TAB.fullmatch(tab):
            raise ValueError(f"{tab!r} is no tab")
        self.folder, self.settings = shelf / FOLDER / tab, settings
        self._wanted: tuple[float, str, dict[str, tuple[State, dict[str, Any]]]] | None = None
        self._written: dict[
            str, Any
        ] = {}  # branch -> what its snapshot holds: id() of the State, sampler
        self._kept: dict[str, State] = {}  # so that no other State gets that id
        self._awake, self._writing = threading.Condition(), threading.Lock()
        self._thread: threading.Thread | None = None

    def note(self, current: str, branches: Mapping[str, tuple[State, dict[str, Any]]]) -> None:
        """Keep `branches` (name -> State, and what else the page knows of it), soon."""
        with self._awake:
            self._wanted = (time.monotonic(), current, dict(branches))
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._awake.notify()

    def flush(self) -> None:
        """Write what is not yet written, now."""
        with self._writing:
            with self._awake:
                wanted, self._wanted = self._wanted, None
            if wanted is not None:
                try:
                    self._write(*wanted[1:])
                except (OSError, HarnessError):
                    log.exception("autosave")

    def read(self) -> tuple[str, dict[str, tuple[State, dict[str, Any]]]]:
        """`(current branch, branches)` as they were kept; `("", {})` where nothing was. A branch whose
        snapshot is damaged is left out."""
        try:
            index = read(self.folder / INDEX)
        except (OSError, ValueError):
            return "", {}
        branches = {}
        for name, told in index["branches"].items():
            try:
                branches[name] = store.load(self.folder / told["snapshot"])[0], told
            except (OSError, HarnessError):
                log.exception("autosave of branch %s", name)
        current = index["current"]
        return current if current in branches else next(iter(branches), ""), branches

    def _work(self) -> None:
        while True:
            with self._awake:
                while self._wanted is None:
                    if not self._awake.wait(30):
                        self._thread = None
                        return
                rest = self._wanted[0] + STILL - time.monotonic()
            if rest > 0:
                time.sleep(rest)
            else:
                self.flush()

    def _write(self, current: str, branches: dict[str, tuple[State, dict[str, Any]]]) -> None:
        for place in (self.folder.parent, self.folder):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.chmod(0o700)
        before = read(self.folder / INDEX)["branches"] if (self.folder / INDEX).is_file() else {}
        index = {}
        for name, (state, told) in branches.items():
            key = (id(state), told["sampler"])
            if self._written.get(name) == key and name in before:
                snapshot = before[name]["snapshot"]
            else:
                snapshot = f"{name}-{time.time_ns():x}"
                alone = replace(
                    state.document("generation", sampler=told["sampler"], own=told["own"]),
                    parent=None,
                )
                store.save(alone, self.folder / snapshot, self.settings)
                self._written[name], self._kept[name] = key, state
            index[name] = {**told, "snapshot": snapshot}
        write_json(self.folder / INDEX, {"current": current, "branches": index})
        kept = {told["snapshot"] for told in index.values()}
        for old in self.folder.iterdir():
            if old.is_dir() and old.name not in kept and not old.name.startswith("."):
                _removed(old)


def tabs(shelf: Path) -> list[str]:
    """The tabs that were kept below `shelf`, the last one first."""
    kept = [p.parent for p in (shelf / FOLDER).glob(f"*/{INDEX}") if TAB.fullmatch(p.parent.name)]
    return [p.name for p in sorted(kept, key=lambda p: (p / INDEX).stat().st_mtime, reverse=True)]


def _removed(snapshot: Path) -> None:
    """Delete a snapshot of ours, which no other refers to (autosaves have no parents)."""
    import shutil

    aside = snapshot.with_name(f".{snapshot.name}.{os.getpid()}")
    snapshot.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
