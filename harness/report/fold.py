"""Words folded for a terminal."""

import shutil
import textwrap
from typing import TextIO

from harness import process


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
    text = process.retold(text)
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    return "\n".join(folded(line, width) for line in text.splitlines())


def labelled(name: str, value: str, label: int, width: int) -> str:
    """`name: value`, the value from column `label` on, also where it is folded."""
    lines = textwrap.wrap(value, width - label, break_long_words=False, break_on_hyphens=False)
    return f"{name + ':':<{label - 1}} " + f"\n{'':{label}}".join(lines).replace("\u00a0", " ")
