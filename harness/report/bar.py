"""How long work still takes: a bar on a terminal, one note in a log."""

import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from rich.console import Console

if TYPE_CHECKING:
    from rich import progress

MOMENT = 0.7  # seconds; what is done sooner shows no bar
OFTEN = 0.1  # seconds between two pictures
SURE = 2.0  # seconds of work that say how long the rest of it takes
LONG = 10.0  # seconds of rest that are worth a note


class Bar:
    """Shows one count on `console` and leaves nothing behind. `line`: what stands on the current
    line of the terminal; the bar takes its place for a while."""

    close = True

    def __init__(self, console: Console):
        self.console, self.line = console, ""
        self._what, self._total, self._done = "", 0.0, 0.0
        self._began = self._drawn = 0.0
        self._task: progress.TaskID
        self._shown: progress.Progress | None = None

    def begin(self, what: str, total: float) -> None:
        self._what, self._total, self._done = what, total, 0.0
        self._began = self._drawn = time.monotonic()

    def advance(self, by: float) -> None:
        self._done += by
        now = time.monotonic()
        if not self._done or now - self._began < MOMENT or now - self._drawn < OFTEN:
            return
        self._drawn = now
        if self._shown is None:
            self._shown = self._open()
        done = min(self._done, self._total)
        rest = (now - self._began) * (self._total - done) / done
        self._shown.update(self._task, completed=done, left=span(rest))
        self._shown.refresh()

    def end(self) -> None:
        """Take the bar away; the line that was there comes back."""
        if self._shown is None:
            return
        self._shown.stop()
        self._shown = None
        self.console.file.write(self.line)
        self.console.file.flush()

    def _open(self) -> "progress.Progress":
        from rich import progress

        self.console.file.write("\r\x1b[2K")
        shown = progress.Progress(
            progress.TextColumn("  {task.description}"),
            progress.BarColumn(bar_width=24),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[left]} left"),
            console=self.console, transient=True, auto_refresh=False,
        )  # fmt: skip
        self._task = shown.add_task(self._what, total=self._total, left="")
        shown.start()
        return shown


class Estimate:
    """Notes once of each long count how much is left, where no bar can be shown."""

    close = False

    def __init__(self, note: Callable[[str], None]):
        self._note, self._said = note, False
        self._total = self._done = self._began = 0.0

    def begin(self, what: str, total: float) -> None:
        self._said, self._total, self._done = False, total, 0.0
        self._began = time.monotonic()

    def advance(self, by: float) -> None:
        self._done += by
        spent = time.monotonic() - self._began
        if self._said or spent < SURE:
            return
        self._said = True
        rest = spent * (self._total - self._done) / self._done
        if rest > LONG:
            self._note(f"about {span(rest)} left")

    def end(self) -> None:
        """Nothing stands there to be taken away."""


def span(seconds: float) -> str:
    """A time as a person says it: 40s, 3m05s, 2h10m."""
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
