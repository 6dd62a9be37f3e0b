"""Maps browser tabs to sessions, across reloads, closed pages and restarts of the server."""

import secrets
from collections.abc import Callable
from pathlib import Path
from threading import Lock

from harness.task.ui.autosave import TAB, Autosave, tabs
from harness.task.ui.session import PageSession

NEW = "new"  # asks for an empty session


class Tabs:
    """open_session: makes an empty session. folder: the autosaves lie below it."""

    def __init__(self, open_session: Callable[[], PageSession], folder: Path, settings: object):
        self._open, self.folder, self.settings = open_session, folder, settings
        self._sessions: dict[str, PageSession] = {}
        self._pages: dict[str, str] = {}  # gradio's hash of an open page -> its tab
        self._lock = Lock()

    def open(self, tab: str, page: str) -> tuple[str, PageSession]:
        """`(tab, session)` of a page that opens: a known tab's own; else the last one that no page
        shows, or an empty one; `new` gives an empty one."""
        with self._lock:
            known = tab in self._sessions or tab in tabs(self.folder)
            if not TAB.fullmatch(tab or "") or not known:
                tab = (tab != NEW and self._closed()) or secrets.token_hex(16)
            self._pages[page] = tab
            return tab, self.session(tab)

    def session(self, tab: str) -> PageSession:
        """The session of `tab`, read from its autosave the first time."""
        if tab not in self._sessions:
            made = self._open()
            made.keep(Autosave(self.folder, tab, self.settings))
            self._sessions[tab] = made
        return self._sessions[tab]

    def leave(self, page: str) -> None:
        """The page was closed; what runs in its session goes on."""
        with self._lock:
            self._pages.pop(page, None)

    def end(self) -> None:
        """Stop all work and write all autosaves."""
        for session in self._sessions.values():
            session.halt()
        for session in self._sessions.values():
            session.stop()
            session.evaluation.stop()
        for session in self._sessions.values():
            session.flush()

    def _closed(self) -> str | None:
        """The last tab that no page shows and that holds something."""
        taken = set(self._pages.values())
        here = [tab for tab, session in reversed(self._sessions.items()) if session.branches]
        return next((tab for tab in (*here, *tabs(self.folder)) if tab not in taken), None)
