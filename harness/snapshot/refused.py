"""What a refused restore says first: what does not fit, without the place where it lies."""

import re
from typing import Any

from harness.snapshot.elements import BY_NAME, called, spoken

WHERE = re.compile(
    r"^(what was saved|the snapshot|the state cannot be saved) at .*?(?=(,| is| fails| went) )",
    re.DOTALL,
)
REFUSED = "refused"


def sentences(result: dict[str, Any]) -> tuple[str, ...]:
    """Of a `result.json` that was refused, the first thing that does not fit (which element, what was saved and what
    came back), and what that means; none of any other, and where nothing of the kind is known."""
    cause = result.get("diagnosis") or {}
    told = [str(cause.get("evidence") or "")]
    told += [_different(row) for row in result.get("differences") or []]
    told += map(str, result.get("faults") or [])
    known = list(dict.fromkeys(filter(None, told)))
    if result.get("verdict") != REFUSED or not known:
        return ()
    first, *others = known
    element = cause.get("element")
    if element in BY_NAME and element not in first:
        first = f"element {BY_NAME[element].number} {element}: {first}"
    reason = str(result["reason"]).removeprefix("restore refused: ").splitlines()[0].rstrip(":.")
    meant = WHERE.sub(r"\1", reason)
    meant = f"{meant[:1].upper()}{meant[1:]}{f': {others[0]}' if others else ''}."
    more = f" {len(others) - 1} more below." if others[1:] else ""
    return f"Not restored: {first.rstrip('.')}.", f"{meant}{more}"


def _different(row: dict[str, Any]) -> str:
    """A row of `differences` in the words of a refusal."""
    what = called(row["element"], row["field"])
    return f"{spoken(row['element'])}: {what} was {row['saved']}, is {row['found']}"
