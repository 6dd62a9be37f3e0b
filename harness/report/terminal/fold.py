"""Words folded for a terminal."""

import re
import shutil
import textwrap
from typing import TextIO

from harness import process
from harness.errors import printable

BELOW = " " * 4  # before what goes on below a line of progress


def filled(text: str, width: int, below: str = "") -> str:
    """`text` in rows of at most `width`, broken between words alone: a path or a command stays whole."""
    return textwrap.fill(text, width, subsequent_indent=below, break_long_words=False, break_on_hyphens=False)  # fmt: skip


def continued(line: str, more: str, width: int | None) -> tuple[str, str]:
    """What to write of `more` behind the open `line`, and the row that stands open then: words that do not fit into
    `width` stand below, a longer one by itself. None: no terminal, where lines stay whole."""
    if width is None:
        return more, line + more
    written = ""
    for word in re.findall(r"\s*\S+\s*", more):
        if line.strip() and _cells(line + word.rstrip()) >= width:
            written, line, word = f"{written}\n{BELOW}", BELOW, word.lstrip()
        written, line = written + word, line + word
    return written, line


def rows(line: str, width: int) -> int:
    """How many rows of a terminal `line` takes."""
    return max(-(-_cells(line) // max(width, 1)), 1)


def folded(line: str, width: int) -> str:
    """A line of words below itself; a list's own lines stay under their mark, a command stays whole."""
    if "python -m harness" in line or process.spelled() + " " in line:
        return line
    lead = line[: len(line) - len(line.lstrip(" -"))]
    return textwrap.fill(line[len(lead) :], width, initial_indent=lead, subsequent_indent=" " * len(lead),
                         break_long_words=False, break_on_hyphens=False)  # fmt: skip


def shown(text: str, stream: TextIO) -> str:
    """`text`, its commands as they are typed here, with each line folded to the terminal that `stream` is; whole,
    where it is none."""
    text = process.retold(printable(text, layout=True))
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(folded(line, width) for line in text.splitlines())


def labelled(name: str, value: str, label: int, width: int) -> str:
    """`name: value`, the value from column `label` on, also where it is folded."""
    lines = textwrap.wrap(value, width - label, break_long_words=False, break_on_hyphens=False)
    return f"{name + ':':<{label - 1}} " + f"\n{'':{label}}".join(lines).replace("\u00a0", " ")


def _cells(text: str) -> int:
    """Columns that `text` takes. Imported here: who has no packages yet is told that, folded."""
    from rich.cells import cell_len

    return cell_len(text)
