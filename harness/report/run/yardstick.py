"""What a verdict rests on: errors against float64 beside what is allowed, and whether the plain runs are sound."""

from typing import Any

from harness.report.html import section, soundness, within
from harness.report.names import plain
from harness.snapshot.result import GOOD
from harness.snapshot.words import altered, required

TWICE = 2.0  # that of the run without a cache is what an error may be


def sections(result: dict[str, Any]) -> list[dict[str, Any]]:
    """Both blocks of a run that was compared; none of another."""
    if not result.get("curves"):
        return []
    whose = altered(result) or "restored"
    free = bool(result.get("pruned")) and result.get("required") not in (None, *GOOD)
    held = ""
    if free:
        held = (
            f" The {whose} run is not held to rounding. Required: {required(result).rstrip('.')}."
        )
    rows: list[list[Any]] = []
    for key, error in result["oracle"].items():
        allowed = None if free else _bound(key, result["oracle"])
        rows.append([_error(key, whose, free), error, allowed, within(error, allowed)])
    own = section(
        "Against float64",
        text="Errors of logits against a float64 run of the same weights without a cache: of the "
        f"{whose} run, and of the plain path, which is the model run without a cache.{held}",
        columns=["what", "error", "allowed", ""],
        rows=rows,
    )
    asked = result["oracle"].get("restored") is not None
    return [*[own] * asked, soundness(result["soundness"])]


def _error(key: str, whose: str, free: bool) -> str:
    """What an error against float64 is called. whose: run it is of. free: it is not held to rounding."""
    name = plain(key).removesuffix(" (2 is allowed)" * free)
    return name.replace("restored run", f"{whose} run")


def _bound(key: str, oracle: dict[str, Any]) -> Any:
    """What an error against float64 is held to: twice that of the run without a cache; nothing of what is measured."""
    least = {"restored": oracle.get("plain"), "ratio": 1.0}.get(key)
    return None if least is None else TWICE * least
