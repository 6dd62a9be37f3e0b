"""Every sentence that is shown: one place each, by the code of what happened. `HARNESS_MESSAGES=codes` shows the codes.

A template takes the arguments that travel with its code. Nothing but this room words a fact, and nothing reads a sentence.
"""

import os
from collections.abc import Mapping
from typing import Any

CODES = "codes"

NOTES: dict[str, str] = {}
TEMPLATES: dict[str, str] = {}


def message(
    code: str, args: Mapping[str, Any] | None = None, table: Mapping[str, str] | None = None
) -> str:
    """The sentence of `code` with its `args`; the code and its arguments where those are asked for, or none is known."""
    given = {key: value for key, value in (args or {}).items() if value is not None}
    template = (TEMPLATES if table is None else table).get(code)
    if template is None or os.environ.get("HARNESS_MESSAGES") == CODES:
        return " ".join([code, *(f"{key}={value}" for key, value in given.items())])
    return template.format_map(_Shown(given))


class _Shown(dict[str, Any]):
    """Arguments as a person reads them: three digits of a float, a list with commas; a missing one is `?`."""

    def __getitem__(self, key: str) -> Any:
        return Word(super().get(key, "?"))


class Word:
    """One argument; a format of the template's own is applied where it is a number."""

    def __init__(self, value: Any):
        self.value = value

    def __format__(self, spec: str) -> str:
        value = self.value
        if isinstance(value, bool) or value is None:
            return {True: "yes", False: "no", None: "-"}[value]
        if isinstance(value, float):
            return format(value, spec or ".3g")
        if isinstance(value, int) and spec:
            return format(value, spec)
        if isinstance(value, Mapping):
            return " ".join(f"{key}={Word(inner):}" for key, inner in value.items())
        if isinstance(value, list | tuple):
            return ", ".join(f"{Word(inner):}" for inner in value)
        return str(value)
