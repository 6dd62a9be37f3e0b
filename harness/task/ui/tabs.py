"""Which desk a browser tab sits at: the same one after a reload, after the page was closed, and after
the server was started again."""

import secrets
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from harness.task.ui.desk import Desk
from harness.task.ui.journal import TAB, Journal, tabs

NEW = "new"  # asks for an empty desk


class Tabs:
    """open_desk: makes an empty desk. shelf: the folder that the autosaves lie below."""

    def __init__(self, open_desk: Callable[[], Desk], shelf: Path, settings: object):
        self._open_desk, self.shelf, self.settings = open_desk, shelf, settings
        self._desks: dict[str, Desk] = {}
        self._seated: dict[str, str] = {}  # a page's session -> its tab
        self._lock = Lock()

    def seat(self, tab: str, session: str) -> tuple[str, Desk]:
        """`(tab, desk)` for a page that opens. A tab that is known gets its desk back; another one the
        last desk that nobody sits at, or an empty one; `new` an empty one in any case."""
        with self._lock:
            if not TAB.fullmatch(tab or "") or not self._known(tab):
                left = None if tab == NEW else self._left()
                tab = left or secrets.token_hex(16)
            self._seated[session] = tab
            return tab, self.desk(tab)

    def desk(self, tab: str) -> Desk:
        """The desk of `tab`, read from its autosave where this server has not seen it."""
        if tab not in self._desks:
            made = self._open_desk()
            made.keep(Journal(self.shelf, tab, self.settings))
            self._desks[tab] = made
        return self._desks[tab]

    def leave(self, session: str) -> None:
        """The page of `session` was closed; what runs at its desk goes on."""
        with self._lock:
            self._seated.pop(session, None)

    def end(self) -> None:
        """Stop what runs and write what is not written."""
        for desk in self._desks.values():
            desk.halt()
        for desk in self._desks.values():
            desk.stop()
            desk.evaluation.stop()
        for desk in self._desks.values():
            desk.flush()

    def _known(self, tab: str) -> bool:
        return tab in self._desks or tab in tabs(self.shelf)

    def _left(self) -> str | None:
        """The last tab that nobody sits at and that holds something."""
        taken = set(self._seated.values())
        here = [tab for tab, desk in reversed(self._desks.items()) if desk.branches]
        return next(
            (tab for tab in dict.fromkeys([*here, *tabs(self.shelf)]) if tab not in taken), None
        )
