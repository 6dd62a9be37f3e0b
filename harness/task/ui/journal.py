"""The page's own autosave: every branch of every tab, on this machine, readable by its owner only.

States are immutable, so a thread writes them while the thought goes on: the newest of a branch, and only
once it stands still for a moment. A tab's folder holds one snapshot per branch and `desk.json`. What cannot
be taken up is never deleted: a branch of another model waits in its tab, a folder without a readable
`desk.json` is put aside.
"""

import logging
import os
import re
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
STILL = 0.5  # seconds without an act before a branch is written
AGAIN = 30.0  # seconds after which what could not be written is tried again
# by branch: its State, and what else the page knows of it
Kept = dict[str, tuple[State, dict[str, Any]]]
log = logging.getLogger(__name__)


class Journal:
    """The autosave of one tab below `shelf`. settings: a SaveConfig. aside: what was kept and could not be
    taken up, in words. problem: why the last write failed, else nothing: the page goes on and tries again."""

    def __init__(self, shelf: Path, tab: str, settings: Any):
        if not TAB.fullmatch(tab):
            raise ValueError(f"{tab!r} is no tab")
        self.folder, self.settings = shelf / FOLDER / tab, settings
        self._wanted: tuple[float, str, Kept, dict[str, Any]] | None = None
        # as `read` found them: to what was asked of several branches
        self.answers: dict[str, Any] = {}
        self._aside: dict[str, tuple[str, Path]] = {}  # branch -> why it was left, and where
        self._unread: list[str] = []
        self.problem = ""
        self._index: dict[str, dict[str, Any]] = {}  # branch -> as it was written last
        self._others: list[dict[str, Any]] = []  # branches that stay as they lie
        self._written: dict[str, Any] = {}  # branch -> what its snapshot holds: id(State), sampler
        self._kept: dict[str, State] = {}  # so that no other State gets that id
        self._awake, self._writing = threading.Condition(), threading.Lock()
        self._thread: threading.Thread | None = None

    def note(self, current: str, branches: Kept, answers: dict[str, Any]) -> None:
        """Keep `branches` (name -> State, and what else the page knows of it) and `answers`, soon."""
        with self._awake:
            self._wanted = (time.monotonic(), current, dict(branches), answers)
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
                    self.problem = ""
                except Exception as problem:
                    log.exception("autosave")
                    self.problem = f"The autosave failed and is tried again: {problem}"
                    with self._awake:
                        self._wanted = self._wanted or (time.monotonic() + AGAIN, *wanted[1:])

    def read(self) -> tuple[str, Kept]:
        """`(current branch, branches)` as they were kept; `("", {})` where nothing was; `answers` too. A branch whose
        snapshot is damaged is left, an autosave that cannot be read put aside."""
        try:
            index = read(self.folder / INDEX)
            current = str(index["current"])
            kept = [(name, {**told, "snapshot": str(told["snapshot"])})
                    for name, told in (*index["branches"].items(), *index.get("others", ()))]  # fmt: skip
        except FileNotFoundError:
            return "", {}
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            log.exception("autosave")
            place = self.folder.with_name(f"{self.folder.name}.unreadable-{time.time_ns():x}")
            self.folder.rename(place)
            self._unread.append(f"This tab's autosave cannot be read. It lies in {place} now, and a new one is begun.")  # fmt: skip
            return "", {}
        found = index.get("answers")
        self.answers = found if isinstance(found, dict) else {}
        branches: Kept = {}
        for name, told in kept:
            try:
                state = store.load(self.folder / told["snapshot"])[0]
            except (OSError, HarnessError):
                log.exception("autosave of branch %s", name)
                self.leave(name, told, "is damaged")
            else:
                branches[name if name not in branches else f"{name}{len(branches)}"] = state, told
        return current if current in branches else next(iter(branches), ""), branches

    def leave(self, name: str, told: dict[str, Any], why: str) -> None:
        """Let branch `name` lie in the autosave: it is looked at again when the tab is next opened."""
        self._others.append({**told, "name": name})
        self._aside[name] = why, self.folder / told["snapshot"]

    @property
    def aside(self) -> list[str]:
        """What was kept before and could not be taken up, in words; branches that are left for one reason together."""
        said = list(self._unread)
        for why in dict.fromkeys(why for why, _ in self._aside.values()):
            left = {name: place for name, (other, place) in self._aside.items() if other == why}
            several, (first, place) = len(left) > 1, next(iter(left.items()))
            whose = f"Branches {', '.join(left)}: each" if several else f"Branch {first}"
            where = self.folder if several else place
            said.append(f"{whose} {why}; it stays in the autosave ({where}).")
        return said

    def _work(self) -> None:
        while True:
            with self._awake:
                while self._wanted is None:
                    if not self._awake.wait(30):
                        self._thread = None
                        return
                rest = self._wanted[0] + STILL - time.monotonic()
            if rest > 0:
                time.sleep(min(rest, STILL))
            else:
                self.flush()

    def _write(self, current: str, branches: Kept, answers: dict[str, Any]) -> None:
        for place in (self.folder.parent, self.folder):
            place.mkdir(mode=0o700, parents=True, exist_ok=True)
            place.chmod(0o700)
        index = {}
        for name, (state, told) in branches.items():
            key = (id(state), told["sampler"])
            if self._written.get(name) == key and name in self._index:
                snapshot = self._index[name]["snapshot"]
            else:
                snapshot = f"{name}-{time.time_ns():x}"
                alone = replace(
                    state.document("generation", sampler=told["sampler"], own=told["own"]),
                    parent=None,
                )
                store.save(alone, self.folder / snapshot, self.settings)
                self._written[name], self._kept[name] = key, state
            index[name] = {**told, "snapshot": snapshot}
        others = [(told["name"], told) for told in self._others]
        written = {"current": current, "branches": index, "others": others, "answers": answers}
        write_json(self.folder / INDEX, written)
        self._index = index
        kept = {told["snapshot"] for told in (*index.values(), *self._others)}
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
