"""How long work still takes: a bar on a terminal, one note in a log."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console

from harness.progress import looked_at_by
from harness.report.terminal.fold import rows

if TYPE_CHECKING:
    from rich import progress

MOMENT = 0.7  # seconds; what is done sooner shows no bar
OFTEN = 0.1  # seconds between two pictures
SOME = 0.3  # seconds of counted work that say on a terminal how long the rest takes
SURE = 2.0  # and in a log, where it is said once
LONG = 10.0  # seconds of rest that are worth a note


class Pace:
    """How long the rest of counted work takes. The slowest step so far tells nothing: as a rule it is
    the first one, in which libraries are imported and kernels compiled."""

    def __init__(self, total: float, now: float):
        self.total, self.done = total, 0.0
        self.spent, self._slowest = 0.0, (0.0, 0.0)  # seconds; seconds and amount of one step
        self._last = now

    def advance(self, by: float, now: float) -> None:
        """`by` more is done at the time `now`, in seconds."""
        step = (now - self._last, by)
        self._last, self.done, self.spent = now, self.done + by, self.spent + step[0]
        self._slowest = max(self._slowest, step)

    def rest(self, sure: float) -> float | None:
        """Seconds left, None before `sure` seconds of work were counted."""
        seconds, amount = self.spent - self._slowest[0], self.done - self._slowest[1]
        if amount <= 0 or seconds < sure:
            return None
        return seconds / amount * max(self.total - self.done, 0)


class Bar:
    """Shows one count on `console` and leaves nothing behind. `line`: what stands on the current
    line of the terminal; the bar takes its place for a while."""

    close = True

    def __init__(self, console: Console):
        self.console, self.line = console, ""
        self._what, self._part, self._pace = "", "", Pace(0, 0)
        self._began = self._drawn = 0.0
        self._task: progress.TaskID
        self._shown: progress.Progress | None = None

    def begin(self, what: str, total: float) -> None:
        self._began = self._drawn = time.monotonic()
        self._what, self._part, self._pace = what, "", Pace(total, self._began)

    def name(self, what: str, still: bool = False) -> None:
        """Show what goes on now; at once where nothing else is going to be seen of it."""
        self._part = what
        if still and self._shown is None:
            self._shown = self._open()
        if self._shown is not None:
            self._shown.update(self._task, description=self._described())
            self._shown.refresh()

    def _described(self) -> str:
        return f"{self._what}, {self._part}" if self._part else self._what

    def advance(self, by: float) -> None:
        now, pace = time.monotonic(), self._pace
        pace.advance(by, now)
        if not pace.done or now - self._began < MOMENT or now - self._drawn < OFTEN:
            return
        self._drawn = now
        if self._shown is None:
            self._shown = self._open()
        rest = pace.rest(SOME)
        left = "" if rest is None else f"{span(rest)} left"
        self._shown.update(self._task, completed=min(pace.done, pace.total), left=left)
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
        from rich.table import Column

        above = rows(self.line, self.console.width) - 1
        self.console.file.write("\r\x1b[2K" + "\x1b[1A\x1b[2K" * above)
        shown = progress.Progress(
            progress.TextColumn("  {task.description}", table_column=Column(no_wrap=True)),
            progress.BarColumn(bar_width=24),
            progress.TaskProgressColumn(),
            progress.TextColumn("{task.fields[left]}", table_column=Column(no_wrap=True)),
            console=self.console, transient=True, auto_refresh=False,
        )  # fmt: skip
        self._task = shown.add_task(self._described(), total=self._pace.total, left="")
        shown.start()
        return shown


@contextmanager
def on_terminal() -> Iterator[None]:
    """Inside the block long work shows a bar on a terminal, and nothing elsewhere; where somebody looks already
    that stays."""
    with looked_at_by(there()):
        yield


def there() -> Bar | None:
    """A bar on the terminal that stderr is; None where it is none."""
    bar = Bar(Console(stderr=True, highlight=False))
    return bar if bar.console.is_terminal else None


class Estimate:
    """Notes once of each long count how much is left, where no bar can be shown."""

    close = False

    def __init__(self, note: Callable[[str], None]):
        self._note, self._said = note, False
        self._pace = Pace(0, 0)

    def begin(self, what: str, total: float) -> None:
        self._said, self._pace = False, Pace(total, time.monotonic())

    def advance(self, by: float) -> None:
        self._pace.advance(by, time.monotonic())
        rest = None if self._said else self._pace.rest(SURE)
        if rest is None:
            return
        self._said = True
        if rest > LONG:
            self._note(f"about {span(rest + self._pace.spent)} in all")

    def name(self, what: str, still: bool = False) -> None:
        """A log is told what was done when it is."""

    def end(self) -> None:
        """Nothing stands there to be taken away."""


def span(seconds: float) -> str:
    """A time as a person says it: 40s, 3m05s, 2h10m."""
    minutes, rest = divmod(round(max(seconds, 0)), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h{minutes:02d}m"
    return f"{minutes}m{rest:02d}s" if minutes else f"{rest}s"
