"""What a person sees in the terminal: progress, then one clear table. 80 columns, no colour needed."""

import logging
import sys
import textwrap
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness import interrupt, machine, progress
from harness.errors import printable
from harness.present.messages import worded
from harness.report.names import FLOOR, beside, itself_as, judged_by, plain
from harness.report.terminal import command
from harness.report.terminal.bar import Bar, Estimate
from harness.report.terminal.fold import continued, filled, labelled, shown
from harness.report.terminal.point import Passing
from harness.results.metric import registered
from harness.snapshot.elements import DIGEST
from harness.snapshot.result import counted, worse
from harness.snapshot.words import altered, fewer, of_kept, unchosen

PROSE = 12  # characters that cells of several words need beyond their longest words
GAP = 3  # characters between two columns
PLACES = ("snapshot", "written")
LABEL = 14  # characters of `continuation: `
TOLD = ("max_abs_diff", "kl_max", "top1_agreement", "first_divergence")  # the rest is in the report

log = logging.getLogger("harness")  # the run's own `harness.log`, in a sweep too


class Say:
    """Progress on stderr and in the log, results on stdout; what a file from elsewhere could play tricks on a
    terminal with is escaped. A sweep's jobs may share one. passing: shows
    the progress of whoever is quiet."""

    _told: set[str] = set()  # by every Say of the process

    def __init__(self, quiet: bool = False, passing: Passing | None = None):
        self.quiet, self._passing = quiet, passing
        self.out: Console = Console(highlight=False, soft_wrap=False)
        self.what = ""  # the work that goes on
        self.kept: Callable[[], str] = str  # what is kept of it where it is told to end
        self._stages: list[tuple[str, float]] = []
        self._start = 0.0
        self._open = self._midline = self._noted = False
        self._bar = Bar(Console(stderr=True, highlight=False))

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Inside the block long work shows a bar on a terminal, and notes an estimate in a log."""
        seen = self._bar if self._bar.console.is_terminal else Estimate(self._left)
        progress.show_on(self._passing if self.quiet else seen)
        try:
            yield
        finally:
            progress.show_on(None)

    def stage(self, what: str) -> None:
        """Announce work that is about to begin."""
        interrupt.check()
        self.what, self._noted = what, False
        self._start = time.perf_counter()
        log.info("%s ...", what)
        if not self.quiet:
            self._bar.line = ""
            self._begun(f"  {what} ... ")
        elif self._passing:
            self._passing.stage(what)

    def note(self, what: str) -> None:
        """Something worth knowing about the work that goes on; a line of its own where none began."""
        self._noted = True
        if self.quiet:
            return
        if self._open:
            self._begun(f"{what} ... ")
        else:
            self._write(continued("", f"  {what}\n", self._width)[0])

    def _left(self, what: str) -> None:
        """How much of a stage is left, in a log: where its length was told before it began, that is enough."""
        if not self._noted:
            self.note(what)

    def once(self, what: str) -> None:
        """A note that one process shows one time, however many jobs it runs."""
        if not self.quiet and what not in self._told:
            self._told.add(what)
            self.note(what)

    def done(self, result: str = "") -> None:
        """Say how the announced work ended."""
        seconds = time.perf_counter() - self._start
        self._stages.append((self.what, seconds))
        log.info("%s: %s%s(%.2f s)", self.what, result, " " * bool(result), seconds)
        if not self.quiet:
            ending = f"{result}{' ' * bool(result)}({seconds:.2f} s)\n"
            self._write(continued(self._bar.line, ending, self._width)[0])
        self._open, self.what, self._bar.line = False, "", ""

    @property
    def stages(self) -> list[tuple[str, float]]:
        """What was announced so far and the seconds that it took, that which goes on too."""
        going = [(self.what, time.perf_counter() - self._start)] if self.what else []
        return [*self._stages, *going]

    def _begun(self, more: str) -> None:
        """Write more of the open line of stderr.

        It counts as begun before it is: a signal may come as soon as it is written."""
        self._open = True
        written, self._bar.line = continued(self._bar.line, more, self._width)
        self._write(written)

    @staticmethod
    def _write(text: str) -> None:
        sys.stderr.write(printable(text, layout=True))
        sys.stderr.flush()

    @property
    def _width(self) -> int | None:
        console = self._bar.console
        return console.width if console.is_terminal else None

    def line(self, text: str = "", end: str = "\n") -> None:
        """One plain line of result."""
        self._midline = self._midline or not end.endswith("\n")
        if self._passing:
            self._passing.leave(for_good=self._midline)
        self.out.print(printable(text, layout=True), markup=False, soft_wrap=True, end=end)
        self._midline = not end.endswith("\n")

    def fact(self, name: str, text: str, label: int = LABEL) -> None:
        """A line `name:  text` of words."""
        self.line(self.labelled(name, text, label))

    def labelled(self, name: str, text: str, label: int = LABEL) -> str:
        """The same, not written yet: folded below itself on a terminal; elsewhere a line stays whole."""
        if not self.out.is_terminal:
            return f"{name + ':':<{label - 1}} {text}".replace("\u00a0", " ")
        width, (first, *more) = self.out.width, text.splitlines() or [""]
        below = (filled(line, width, "  ") for line in more)
        return "\n".join([labelled(name, first, label, width), *below])

    def broken(self) -> None:
        """End lines that were begun: what comes next is something else."""
        if self._midline:
            self.line()
        if self._open:
            self._write("\n")
        self._open, self._bar.line = False, ""

    def problem(self, text: str) -> None:
        """A message on stderr, after any unfinished line; folded on a terminal, but for its commands."""
        self.broken()
        self._write(shown(text, sys.stderr).rstrip() + "\n")


def table(
    title: str, columns: list[str], rows: list[list[Any]], widths: Sequence[int] = ()
) -> Table:
    """A plain ASCII table; the first column is left aligned, the others right if they are numbers.
    widths: characters of each column; words are folded between words."""
    made = Table(title=title, box=box.ASCII2, title_justify="left", show_edge=False, pad_edge=False)
    for i, column in enumerate(columns):
        numeric = i and all(isinstance(r[i], int | float | type(None)) for r in rows)
        justify: Any = "right" if numeric else "left"
        made.add_column(column, justify=justify, overflow="fold", no_wrap=not widths,
                        width=widths[i] if widths else None)  # fmt: skip
    for row in rows:
        made.add_row(*(escape(printable(number(v))) for v in row))
    return made


def fitted(columns: list[str], rows: list[list[Any]], width: int) -> list[int] | None:
    """How wide each column is in a table of at most `width` characters that breaks no word; columns of
    words share what is left, headings are folded. None where there is no such table that can be read."""
    cells = [[number(row[i]) for row in rows] for i in range(len(columns))]
    least = [
        max(map(cell_len, [*heading.split(), *(word for cell in column for word in cell.split())]))
        for heading, column in zip(columns, cells, strict=True)
    ]
    longest = [max(map(cell_len, ["", *column])) for column in cells]
    natural = [max(pair) for pair in zip(longest, map(cell_len, columns), strict=True)]
    left = width - GAP * (len(columns) - 1) - sum(least)
    prose = sum(max(n - low, 0) for n, low in zip(longest, least, strict=True))
    if left < min(prose, PROSE):
        return None
    wanted = sum(natural) - sum(least)
    share = min(1.0, left / wanted) if wanted else 0.0
    return [low + int((high - low) * share) for low, high in zip(least, natural, strict=True)]


def tabled(say: Say, title: str, columns: list[str], rows: list[list[Any]]) -> None:
    """Print a table; where it does not fit the terminal, first without the columns that say the same in
    every row, which are told above it, then a paragraph for each row. No word is broken."""
    width = say.out.width
    if not fitted(columns, rows, width):
        columns = [column.replace("_", " ") for column in columns]
    if rows[1:] and not fitted(columns, rows, width):
        each = [{number(row[i]) for row in rows} for i in range(len(columns))]
        alike = {
            i: value for i, (value, *more) in enumerate(each) if i and not more and " " not in value
        }
        same = ", ".join(f"{columns[i]} {value}" for i, value in alike.items() if value)
        title += f" ({same})" if same else ""
        rows = [[cell for i, cell in enumerate(row) if i not in alike] for row in rows]
        columns = [column for i, column in enumerate(columns) if i not in alike]
    say.line(filled(title, width))
    if widths := fitted(columns, rows, width):
        say.out.print(table("", columns, rows, widths))
        return
    if len(columns) == 2:
        label = max(len(str(name)) for name, _ in rows) + 2
        for name, value in rows:
            say.line(labelled(str(name), number(value), min(label, width // 3), width))
        return
    for row in rows:
        say.line(number(row[0]))
        cells = zip(columns[1:], row[1:], strict=True)
        pairs = [f"{column} {number(value)}" for column, value in cells if value != ""]
        for line in _packed(pairs, say.out.width - 2):
            say.line(f"  {line}")


def _packed(pairs: list[str], width: int) -> Iterator[str]:
    """Lines of as many pairs as fit; a pair is broken, between words, only where it is longer."""
    line = ""
    for pair in pairs:
        if line and len(line) + GAP + len(pair) > width:
            yield line
            line = ""
        *whole, last = textwrap.wrap(pair, width, break_long_words=False, break_on_hyphens=False)
        yield from whole
        line = f"{line} | {last}" if line else last
    if line:
        yield line


def number(value: Any) -> str:
    """Short and unambiguous: three significant digits, `-` for nothing."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def show(say: Say, result: dict[str, Any], digests: bool = False, verbose: bool = False) -> None:
    """The conclusion, the metrics beside the noise floor, what it cost, where to look next.

    digests: of the 13 elements, too. verbose: everything else that a line can say."""
    if say.quiet:
        return
    concluded(say, result)
    if result.get("curves"):
        noise = result["noise_floor"]
        rows = [
            [plain(k), counted(k, result["metrics"].get(k)), counted(k, noise.get(k))] for k in TOLD
        ]
        rows += [
            [fact.heading, *(fact.show(result[b].get(k)) for b in ("metrics", "noise_floor"))]
            for k, fact in registered().items()
            if k in result["metrics"]
        ]
        tabled(say, beside(result), ["", "measured", "noise floor"], rows)
        say.line()
    if digests:
        rows = [
            [e["number"], e["name"], e["kept_as"], e["digest"][:16]] for e in result["elements"]
        ]
        columns = ["#", "element", "kept as", DIGEST]
        tabled(say, "The 13 elements of the state", columns, rows)
        say.line()
    for what, fact in _details(result) if verbose else _brief(result):
        if what in PLACES:  # which nobody wants folded
            say.line(f"{what + ':':<{LABEL}}{fact}")
        else:
            say.fact(what, fact)
    say.line(f"report:       {result['folder']}/report.html")
    if following := command.command(result):
        say.line(f"next:         {following}")


def _brief(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What it cost; of a run that is not as it should be why, and what gives a verdict where none was given."""
    per_token = result["time_s"].get("per_token")
    fast = f", {machine.seconds(per_token)} per token" if per_token else ""
    yield "cost", f"{_sizes(result)}{fast}"
    if told := result["text"].get("taken"):
        yield "prompt", told
    if (fault := (result.get("options") or {}).get("fault", "none")) != "none":
        yield "fault", f"{fault}, on purpose"
    yield from command.wanting(result)
    yield from _written(result)


def _details(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Everything that a record says in a line."""
    judged, text = bool(result.get("curves")), result["text"]
    if judged:
        yield "noise floor", FLOOR
        if told := unchosen(result):
            yield "same tokens", f"{told[0].lower()}{told[1:-1]}"
        if told := judged_by(result):
            yield "judged by", told
    yield from _facts(result)
    if told := text.get("taken"):
        yield "prompt", told
    if result["task"] == "save":
        yield "read", command.ends(text["prompt"])
    if "continuation" in text:
        yield from command.texts(text, altered(result), judged)
        if told := command.answer(text, altered(result), judged):
            yield "answer", told
    if (fault := (result.get("options") or {}).get("fault", "none")) != "none":
        yield "fault", f"{fault}, on purpose"
    yield from command.verdicts(result, _itself(result.get("itself") or {}))
    kept = result["snapshot"]
    gone = kept.get("format") == "memory"
    yield "snapshot", "in memory, for this process only" if gone else str(kept["path"])
    yield from _written(result)


def _written(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What a resume wrote, and what has to stay beside it."""
    if after := result.get("next"):
        above = ", ".join(str(Path(after["path"]).parent / p) for p in after.get("beside") or [])
        yield "written", f"{after['path']}{f' (needs {above} beside it)' * bool(above)}"


def _itself(block: dict[str, Any]) -> str:
    """How far a pruned or a quantized state is from itself under another cache; nothing without such a block."""
    if not block:
        return ""
    said = worded(block["reason"])
    if block["cache"]:
        gap, noise = number(block["max_abs_diff"]), number(block["noise"])
        beside = f"beside {itself_as(block)} under cache={block['cache']}"
        said = f"{beside}: off by {gap}, {noise} is allowed"
    missed = worse(block["verdict"], block["required"])
    return said + f" (compare.require={block['required']})" * missed


def concluded(say: Say, result: dict[str, Any]) -> None:
    """The sentence that says it all, and an empty line."""
    say.line(filled(result["conclusion"], say.out.width))
    say.line()


def _sizes(result: dict[str, Any]) -> str:
    """Tokens, bytes of K/V and bytes stored: of a resume that wrote what came of it, of that."""
    size = result["size"]
    if after := (result.get("next") or {}).get("size"):
        told, size = f" ({size['tokens']:,} were restored)", after
    else:
        told = " restored" * ("streamed" in result["text"])
    sized = {**result, "size": size}
    tokens = f"{size['tokens']:,} token{'s' * (size['tokens'] != 1)}{told}" + (
        f", {of_kept(sized, ' kept')}" if fewer(sized) else ""
    )
    more = " with tokenizer and documents" * (size["stored_bytes"] > 2 * size["kv_bytes"])
    stored = f"{machine.human(size['stored_bytes'])} stored{more}"
    return f"{tokens}, {machine.human(size['kv_bytes'])} of K/V, {stored}"


def _facts(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """What it cost: bytes, seconds, what became of the cache that was handed in."""
    moved = result["mutation"]
    yield "size", _sizes(result)
    times = {k.replace("_", " "): v for k, v in result["time_s"].items() if v}
    yield "time", ", ".join(f"{name} {machine.seconds(value)}" for name, value in times.items())
    if moved["mutated"] is not None:
        copied = f"{machine.human(moved['bytes_copied_per_token'])} copied per token"
        before, after = moved["length_before"], moved["length_after"]
        grown = f"written into ({before} tokens before, {after} after)"
        yield "your cache", f"{grown if moved['mutated'] else 'not written into'}, {copied}"
