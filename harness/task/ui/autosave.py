"""The page's autosave: every branch of every tab, readable by its owner only.

A thread writes the newest state of each branch once it stands still for a moment. A tab's folder holds
one snapshot per branch and `desk.json`. What cannot be read or does not fit is reported and never
deleted: another model's branch waits in its tab, an unreadable index moves the folder aside.
"""

import logging
import os
import re
import shutil
import threading
import time
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
STILL = 0.5  # seconds without a change before a branch is written
AGAIN = 30.0  # seconds until a failed write is tried again
Kept = dict[str, tuple[State, dict[str, Any]]]  # branch -> its State, and its notes as JSON
log = logging.getLogger(__name__)


class Autosave:
    """The autosave of one tab below `folder`. settings: a SaveConfig. skipped: what could not be read,
    as messages. problem: why the last write failed, or empty. typed: control values found by `read`."""

    def __init__(self, folder: Path, tab: str, settings: Any):
        if not TAB.fullmatch(tab):
            raise ValueError(f"{tab!r} is no tab")
        self.folder, self.settings = folder / FOLDER / tab, settings
        self.typed: dict[str, Any] = {}
        self.skipped: list[str] = []
        self.problem = ""
        self._wanted: tuple[float, str, Kept, dict[str, Any]] | None = None
        self._index: dict[str, dict[str, Any]] = {}  # branch -> as last written
        self._others: list[dict[str, Any]] = []  # branches left as they are on disk
        self._written: dict[str, tuple[State, Any]] = {}  # branch -> State and sampler on disk
        self._awake, self._writing = threading.Condition(), threading.Lock()
        self._thread: threading.Thread | None = None

    def note(self, current: str, branches: Kept, typed: dict[str, Any]) -> None:
        """Write these soon."""
        with self._awake:
            self._wanted = (time.monotonic(), current, dict(branches), typed)
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._work, daemon=True)
                self._thread.start()
            self._awake.notify()

    def flush(self) -> None:
        """Write what is pending, now."""
        with self._writing:
            with self._awake:
                wanted, self._wanted = self._wanted, None
            if wanted is None:
                return
            try:
                self._write(*wanted[1:])
                self.problem = ""
            except Exception as problem:
                log.exception("autosave")
                self.problem = f"The autosave failed and is tried again: {problem}"
                with self._awake:
                    self._wanted = self._wanted or (time.monotonic() + AGAIN, *wanted[1:])

    def read(self) -> tuple[str, Kept]:
        """`(current branch, branches)` as written; `("", {})` where there is nothing to read."""
        try:
            index = read(self.folder / INDEX)
            current = str(index["current"])
            rows = [(name, {**notes, "snapshot": str(notes["snapshot"])})
                    for name, notes in (*index["branches"].items(), *index.get("others", ()))]  # fmt: skip
        except FileNotFoundError:
            return "", {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            log.exception("autosave")
            moved = self.folder.with_name(f"{self.folder.name}.unreadable-{time.time_ns():x}")
            self.folder.rename(moved)
            self.skipped.append(f"This tab's autosave cannot be read and was moved to {moved}.")
            return "", {}
        typed = index.get("typed")
        self.typed = typed if isinstance(typed, dict) else {}
        branches: Kept = {}
        for name, notes in rows:
            try:
                state = store.load(self.folder / notes["snapshot"])[0]
            except (OSError, HarnessError):
                log.exception("autosave of branch %s", name)
                self.skip(name, notes, "is damaged")
            else:
                branches[name if name not in branches else f"{name}{len(branches)}"] = state, notes
        return current if current in branches else next(iter(branches), ""), branches

    def skip(self, name: str, notes: dict[str, Any], why: str) -> None:
        """Leave branch `name` on disk; it is read again when the tab is next opened."""
        self._others.append({**notes, "name": name})
        self.skipped.append(
            f"Branch {name} {why}; it stays in the autosave ({self.folder / notes['snapshot']})."
        )

    def _work(self) -> None:
        while True:
            with self._awake:
                while self._wanted is None:
                    if not self._awake.wait(30):
                        self._thread = None
                        return
                left = self._wanted[0] + STILL - time.monotonic()
            if left > 0:
                time.sleep(min(left, STILL))
            else:
                self.flush()

    def _write(self, current: str, branches: Kept, typed: dict[str, Any]) -> None:
        for place in (self.folder.parent, self.folder):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.chmod(0o700)
        index = {}
        for name, (state, notes) in branches.items():
            stored, sampler = self._written.get(name, (None, None))
            if stored is state and sampler == notes["sampler"] and name in self._index:
                snapshot = self._index[name]["snapshot"]
            else:
                snapshot = f"{name}-{time.time_ns():x}"
                generation = {"sampler": notes["sampler"], "own": notes["own"]}
                whole = replace(state.document("generation", **generation), parent=None)
                store.save(whole, self.folder / snapshot, self.settings)
                self._written[name] = state, notes["sampler"]
            index[name] = {**notes, "snapshot": snapshot}
        others = [(notes["name"], notes) for notes in self._others]
        written = {"current": current, "branches": index, "others": others, "typed": typed}
        write_json(self.folder / INDEX, written)
        self._index = index
        kept = {notes["snapshot"] for notes in (*index.values(), *self._others)}
        for old in self.folder.iterdir():
            if old.is_dir() and old.name not in kept and not old.name.startswith("."):
                aside = old.with_name(f".{old.name}.{os.getpid()}")
                old.rename(aside)
                shutil.rmtree(aside, ignore_errors=True)


def tabs(folder: Path) -> list[str]:
    """Tabs with an autosave below `folder`, the latest first."""
    kept = [p.parent for p in (folder / FOLDER).glob(f"*/{INDEX}") if TAB.fullmatch(p.parent.name)]
    return [p.name for p in sorted(kept, key=lambda p: (p / INDEX).stat().st_mtime, reverse=True)]
