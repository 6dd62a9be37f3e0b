"""A sweep over dtypes: each is judged by rounding of its own, which says nothing about how near one is to another."""

from typing import Any

from harness.report.sweep.verdicts import STOPPED

KEY = "dtype"
JUDGED = ("equivalent", "drifted")  # by rounding

Row = dict[str, Any]


def sentence(rows: list[Row], axes: list[str]) -> str:
    """That, where points of several dtypes were held to rounding and came to different verdicts; empty elsewhere."""
    words: dict[str, set[str]] = {}
    for row in rows:
        if row["verdict"] not in STOPPED:
            words.setdefault(str(row.get(KEY)), set()).add(row["verdict"])
    several = KEY in axes and len(words) > 1 and len(set(map(frozenset, words.values()))) > 1
    if not several or not any(word in JUDGED for said in words.values() for word in said):
        return ""
    return (
        "Rounding is each dtype's own: a verdict says how near a point is to the full cache of its dtype, and not to "
        "another's."
    )
