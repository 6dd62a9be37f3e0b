"""Whose code a problem came through: ours, or that of an option or class from outside, in which of its lines."""

import sys
from difflib import get_close_matches
from linecache import getline

from harness.keys import TARGET

asked_for: dict[str, str] = {}  # module from outside -> the option that named it


def given(kind: type, what: str) -> None:
    """What goes wrong in the module of a class that somebody passed, unless it is ours, is told from now on as that
    of `what`."""
    if kind.__module__.partition(".")[0] != __package__:
        asked_for[kind.__module__] = what


def in_line(problem: BaseException) -> str:
    """` In file:line (function).` of code from outside; nothing where the problem says it itself."""
    whose = None if isinstance(problem, SyntaxError) else author(problem)
    return f" In {whose.partition(', in ')[2]}." if whose else ""


def author(problem: BaseException) -> str | None:
    """`option, in file:line (function): source` of the last code from outside that `problem` came through; None
    where it is ours alone."""
    place, step = None, problem.__traceback__
    while step is not None:
        module = step.tb_frame.f_globals.get("__name__", "")
        if module in asked_for:
            code = step.tb_frame.f_code
            source = getline(code.co_filename, step.tb_lineno).strip()
            where = f"{code.co_filename}:{step.tb_lineno} ({code.co_name}): {source}"
            place = f"{asked_for[module]}, in {where}"
        step = step.tb_next
    return place


def installation(problem: BaseException) -> str | None:
    """The packages of this Python, where one of them misses another or does not stand its version; None for anything
    else."""
    if not isinstance(problem, ImportError):
        return None
    return f"the packages of {sys.executable}: constraints.txt names versions that go together"


def meant(problem: BaseException) -> str:
    """` Did you mean 'x'?` for an attribute that an object has not got; for the key that the settings of
    an option lack, where it belongs; nothing where none is near."""
    if not isinstance(problem, AttributeError) or problem.name is None:
        return ""
    name = getattr(problem.obj, "name", None)
    whose = (author(problem) or "").partition(", in ")[0]
    if hasattr(problem.obj, TARGET) or whose.endswith(f"={name}"):  # its own settings
        return f". Add `{problem.name}:` to {name}.yaml"
    near = get_close_matches(problem.name, dir(problem.obj), n=1, cutoff=0.7)
    return f". Did you mean '{near[0]}'?" if near else ""
