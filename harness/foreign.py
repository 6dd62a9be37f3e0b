"""Files that others wrote: one budget of bytes, items and seconds for each, and the readers that everybody shares.

What a file says of its size is held against the bytes that it has before anything is allocated. Whatever is wrong
is a ValueError here; `opening` makes one line of it.
"""

import json
import mmap
import os
import re
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from harness.errors import HarnessError, InputProblem, printable

LONG = 300  # characters of a message
DIGITS = re.compile(r"[-+]?[0-9][0-9_:.]{4000,}$")  # a number that takes minutes to read


class Budget:
    """What one file may cost its reader: `nbytes` that are read or made, `items` that are looked at one by one,
    `seconds` from now on, `depth` of what is nested. Mutated by `spend`."""

    def __init__(
        self,
        nbytes: int = 256 << 20,
        items: int = 4_000_000,
        seconds: float = 60.0,
        depth: int = 64,
    ):
        self.nbytes, self.items, self.seconds, self.depth = nbytes, items, seconds, depth
        self._end = time.monotonic() + seconds

    def spend(self, items: int = 1, nbytes: int = 0) -> None:
        """Raise ValueError where that is more than is left."""
        self.items -= items
        self.nbytes -= nbytes
        if self.nbytes < 0:
            raise ValueError(f"it takes {-self.nbytes:,} bytes more than such a file may")
        if self.items < 0:
            raise ValueError("it holds more parts than such a file may")
        if time.monotonic() > self._end:
            raise ValueError(f"it takes more than {self.seconds:g} seconds to read")


@contextmanager
def opening(what: str, how: str = "cannot be read") -> Iterator[None]:
    """Whatever goes wrong inside is the file's fault: InputProblem, in one line. what: names it."""
    try:
        yield
    except HarnessError:
        raise
    except Exception as problem:  # a library raises anything for a file that was made to harm
        said = getattr(problem, "strerror", None) or str(problem).strip() or type(problem).__name__
        line = printable(said.splitlines()[0][:LONG]).rstrip(".")
        raise InputProblem(f"{what} {how}: {line}.") from problem


def opened(path: Path) -> BinaryIO:
    """A plain file, for reading: never a pipe or a device. Raises OSError, ValueError."""
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
        file.close()
        raise ValueError(f"{path.name} is not a plain file")
    return file


def content(path: Path, budget: Budget) -> bytes:
    """All of a plain file. Raises OSError, ValueError."""
    with opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        budget.spend(nbytes=size)
        return file.read(size)


def mapped(path: Path) -> mmap.mmap:
    """All of a plain file that is not empty, read where it is looked at; what is written there never reaches the
    file. Raises OSError, ValueError."""
    with opened(path) as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY)


def parsed(data: bytes | str, budget: Budget, **hooks: Any) -> Any:
    """JSON. hooks: of `json.loads`. Raises ValueError."""
    try:
        document = json.loads(data, **hooks)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    level = [document]
    for _ in range(budget.depth):
        level = [
            inner
            for value in level
            if isinstance(value, dict | list)
            for inner in (value.values() if isinstance(value, dict) else value)
        ]
        budget.spend(len(level))
        if not level:
            return document
    raise ValueError(f"it is nested more than {budget.depth} levels deep")


def read_json(path: Path, budget: Budget | None = None) -> Any:
    """Raises OSError, ValueError."""
    budget = budget or Budget()
    return parsed(content(path, budget), budget)


def yaml_text(path: Path) -> str:
    """The text of a YAML that is safe to build: no aliases, which make much of little, no types, no endless number.
    Raises OSError, ValueError."""
    import yaml

    budget = Budget(nbytes=4 << 20, items=200_000)
    text, depth = content(path, budget).decode("utf-8"), 0
    try:
        for event in yaml.parse(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
            budget.spend()
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(
                    f"it repeats a part of itself (*{event.anchor}), as no record does"
                )
            if getattr(event, "tag", None):
                raise ValueError(f"it names a type ({event.tag}), as no record does")
            plain = isinstance(event, yaml.ScalarEvent) and event.implicit[0]
            if plain and DIGITS.match(event.value):
                raise ValueError("a number in it is too long")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > budget.depth:
                raise ValueError(f"it is nested more than {budget.depth} levels deep")
    except yaml.YAMLError as problem:
        raise ValueError(str(problem).splitlines()[0]) from None
    return text


def read_yaml(path: Path) -> Any:
    """What a YAML from elsewhere holds. Raises OSError, ValueError."""
    import yaml

    try:
        return yaml.safe_load(yaml_text(path))
    except yaml.YAMLError as problem:
        raise ValueError(str(problem).splitlines()[0]) from None
