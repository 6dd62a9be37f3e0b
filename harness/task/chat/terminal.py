"""The two ends of a conversation: who types (a person, or lines that are piped in), and what they see.

What the model says goes to stdout as it comes; everything that is not said goes to stderr.
"""

import os
import select
import stat
import sys
from typing import Any

from harness import interrupt
from harness.errors import printable

PROMPT = "> "


class Terminal:
    """typed: whether a person types. first: a piped line that was read to see whether there is any."""

    def __init__(self, typed: bool, first: str = ""):
        self.typed = typed
        self._first = first
        self._begun = False  # whether an answer is on its way
        self._faint = sys.stderr.isatty() and "NO_COLOR" not in os.environ
        if typed:
            import readline  # noqa: F401  editing and history while typing

    def line(self) -> str | None:
        """The next line that somebody says, without its end; None when nobody says any more."""
        while True:
            try:
                return input(PROMPT) if self.typed else self._piped()
            except EOFError:
                return None
            except UnicodeDecodeError:
                self.tell("that was no UTF-8 text; type it again")
            except KeyboardInterrupt:
                if not self.typed or interrupt.code() != 130:
                    raise
                interrupt.heard()  # it empties the line, as in a shell
                self._out("\n")
                self.tell("Ctrl-D ends the chat")

    def hear(self, piece: str) -> None:
        """A piece of the answer. What could play tricks on a terminal is shown, not sent."""
        piece = piece if self._begun else piece.lstrip()
        self._begun = self._begun or bool(piece)
        self._out(printable(piece, layout=True))

    def end(self) -> None:
        """The answer is over."""
        self._out("\n")
        self._begun = False

    def tell(self, text: str) -> None:
        """One line about the chat, which nobody said."""
        sys.stdout.flush()
        text = printable(text, layout=True)
        sys.stderr.write(f"\x1b[2m{text}\x1b[0m\n" if self._faint else f"{text}\n")
        sys.stderr.flush()

    def _out(self, text: str) -> None:
        sys.stdout.write(text)
        sys.stdout.flush()

    def _piped(self) -> str:
        line, self._first = self._first or sys.stdin.readline(), ""
        if not line:
            raise EOFError
        return line.rstrip("\r\n")


def opened(stdin: Any = None) -> Terminal | None:
    """Who types: a person at a terminal, or a pipe or file with something in it; None for neither."""
    stdin = stdin or sys.stdin
    try:
        handle = stdin.fileno()
        kind = os.fstat(handle).st_mode
    except (OSError, ValueError, AttributeError):
        return None
    if stdin.isatty():
        return Terminal(typed=True)
    if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind)):
        return None
    if not select.select([handle], [], [], 0)[0]:
        return None  # a pipe that somebody left open: nothing is said there
    stdin.reconfigure(encoding="utf-8", errors="replace")
    first = stdin.readline()
    return Terminal(typed=False, first=first) if first else None
