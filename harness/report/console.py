"""What a person sees in the terminal: progress, then one clear table. 80 columns, no colour needed."""

import sys
import textwrap
import time
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from harness import interrupt


class Say:
    """Progress on stderr, results on stdout. A sweep's jobs may share one."""

    _told: set[str] = set()  # by every Say of the process

    def __init__(self, quiet: bool = False):
        self.quiet = quiet
        self.out = Console(highlight=False, soft_wrap=False)
        self.what = ""  # the work that goes on
        self._start = 0.0
        self._open = self._midline = False

    def stage(self, what: str) -> None:
        """Announce work that is about to begin."""
        interrupt.check()
        self.what = what
        self._start = time.perf_counter()
        if not self.quiet:
            sys.stderr.write(f"  {what} ... ")
            sys.stderr.flush()
            self._open = True

    def note(self, what: str) -> None:
        """Something worth knowing about the work that goes on."""
        if not self.quiet:
            sys.stderr.write(f"{what} ... ")
            sys.stderr.flush()

    def once(self, what: str) -> None:
        """A note that one process shows one time, however many jobs it runs."""
        if not self.quiet and what not in self._told:
            self._told.add(what)
            self.note(what)

    def done(self, result: str = "") -> None:
        """Say how the announced work ended."""
        if not self.quiet:
            seconds = time.perf_counter() - self._start
            sys.stderr.write(f"{result} ({seconds:.2f} s)\n")
            sys.stderr.flush()
        self._open, self.what = False, ""

    def line(self, text: str = "", end: str = "\n") -> None:
        """One plain line of result."""
        self.out.print(text, markup=False, soft_wrap=True, end=end)
        self._midline = not end.endswith("\n")

    def broken(self) -> None:
        """End lines that were begun: what comes next is something else."""
        if self._midline:
            self.line()
        if self._open:
            sys.stderr.write("\n")
        self._open = False

    def problem(self, text: str) -> None:
        """A message on stderr, after any unfinished line."""
        self.broken()
        sys.stderr.write(text.rstrip() + "\n")
        sys.stderr.flush()


def table(title: str, columns: list[str], rows: list[list[Any]]) -> Table:
    """A plain ASCII table; the first column is left aligned, the others right if they are numbers."""
    made = Table(title=title, box=box.ASCII2, title_justify="left", show_edge=False, pad_edge=False)
    for i, column in enumerate(columns):
        numeric = i and all(isinstance(r[i], int | float | type(None)) for r in rows)
        made.add_column(column, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        made.add_row(*(number(v) for v in row))
    return made


def number(value: Any) -> str:
    """Short and unambiguous: three significant digits, `-` for nothing."""
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.3g}"
    return str(value)


def show(say: Say, result: dict[str, Any]) -> None:
    """The elements, the metrics beside the noise floor, times, verdict, where to look next."""
    if say.quiet:
        return
    out = say.out
    say.line(textwrap.fill(result["conclusion"], say.out.width))
    say.line()
    out.print(
        table(
            "The 13 elements of the state",
            ["#", "element", "kept as", "digest (BLAKE3)"],
            [[e["label"], e["name"], e["kept_as"], e["digest"][:16]] for e in result["elements"]],
        )
    )
    out.print()
    if result.get("curves"):
        noise = result["noise_floor"]
        rows = [[k, v, noise.get(k)] for k, v in result["metrics"].items()]
        columns = ["metric", "measured", "noise floor"]
        out.print(table("Restored against uninterrupted", columns, rows))
        out.print()
    facts = [[f"time: {k}", f"{v:.4f} s"] for k, v in result["time_s"].items() if v is not None]
    facts += [[f"size: {k}", f"{v:,}"] for k, v in result["size"].items()]
    moved = result["mutation"]
    if moved["mutated"] is not None:
        facts += [
            ["caller's cache mutated", number(moved["mutated"])],
            ["its length before, after", f"{moved['length_before']}, {moved['length_after']}"],
            ["bytes copied per token", f"{moved['bytes_copied_per_token']:,.0f}"],
        ]
    if coded := result.get("quantization"):
        share = coded["kv_bytes"] / coded["plain_bytes"]
        worst = max(coded["layers"], key=lambda row: row["key_error"] + row["value_error"])
        facts += [
            [f"{coded['quantizer']}: bytes of K/V", f"{share:.1%} of full precision"],
            [
                f"its largest error, layer {worst['layer']} head {worst['head']}",
                f"keys {worst['key_error']:.3%}, values {worst['value_error']:.3%}",
            ],
        ]
    out.print(table("Cost", ["what", "value"], facts))
    out.print()
    if "continuation" in result["text"]:
        say.line(f"continuation: {result['text']['continuation']!r}")
    say.line(f"verdict:      {result['verdict'].upper()}: {result['reason']}")
    if told := result.get("diagnosis"):
        say.line(f"diagnosis:    {told['cause'].upper()}: {told['evidence']}")
    say.line(f"required:     {result['required']}")
    say.line(f"snapshot:     {result['snapshot']['path']}")
    say.line(f"report:       {result['folder']}/report.html")
    if result.get("mlflow"):
        say.line("dashboard:    make dashboard")
