"""What a point of a sweep does now: one line on a terminal, which goes when the line of the point comes."""

import time

from rich.cells import cell_len, set_cell_size
from rich.console import Console

from harness.report.terminal.bar import OFTEN, SOME, Pace, span

LEAST = 16  # characters of a point's name that stay, however little room there is


class Passing:
    """A `progress.Display`: shows on `console`, a terminal, one line `[2/4] cache=cloned: capture ... 45%  12s
    left` and takes it away again. label: which point it is."""

    close = True

    def __init__(self, console: Console, label: str):
        self.console, self.label = console, " ".join(label.split())
        self._stage = self._part = ""
        self._pace: Pace | None = None  # of what is counted
        self._drawn = 0.0
        self._there = self._ended = False

    def stage(self, what: str) -> None:
        """Show that this goes on from now."""
        self._stage, self._part, self._pace = what, "", None
        self._draw()

    def begin(self, what: str, total: float) -> None:
        self._pace = Pace(total, time.monotonic())

    def advance(self, by: float) -> None:
        now = time.monotonic()
        if self._pace:
            self._pace.advance(by, now)
        if now - self._drawn >= OFTEN:
            self._draw()

    def name(self, what: str, still: bool = False) -> None:
        """The stage is name enough, but for what holds it up."""
        self._part = what if still else ""
        if still:
            self._draw()

    def end(self) -> None:
        self._part, self._pace = "", None

    def leave(self, for_good: bool = False) -> None:
        """Take the line away: something else is written there, which stays unfinished if `for_good`."""
        self._ended = self._ended or for_good
        if self._there:
            self._write("\r\x1b[2K")
        self._there = False

    def _draw(self) -> None:
        if self._ended:
            return
        self._drawn, self._there = time.monotonic(), True
        work, width = f": {self._part or self._stage} ...{self._far()}", self.console.width - 1
        label, room = self.label, max(width - cell_len(work), LEAST)
        if cell_len(label) > room:
            label = set_cell_size(label, room - 1) + "\u2026"
        line = label + work
        self._write("\r\x1b[2K" + (set_cell_size(line, width) if cell_len(line) > width else line))

    def _far(self) -> str:
        """How far the counted work is, and how long its rest takes."""
        if not self._pace or not self._pace.done:
            return ""
        rest = self._pace.rest(SOME)
        left = "" if rest is None else f"  {span(rest)} left"
        return f" {min(self._pace.done / self._pace.total, 1):.0%}{left}"

    def _write(self, text: str) -> None:
        self.console.file.write(text)
        self.console.file.flush()
