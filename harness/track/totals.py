"""The metrics of a sweep's run."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from harness.snapshot.result import ORDER


def totals(
    rows: list[dict[str, Any]], sought: Sequence[str] = (), before: Iterable[str] = ()
) -> Iterator[tuple[str, float, int]]:
    """Counts per verdict, the worst and the best; and every figure by point, at the step that its folder is
    named, counted from 1, where it is not the same in all. before: what was counted by an earlier try, and may be zero now."""
    numbered = [
        (int(n) + 1 if (n := str(r.get("point"))).isdecimal() else i, r)
        for i, r in enumerate(rows, 1)
    ]
    yield "sweep/points", float(len(rows)), 0
    for verdict in ORDER:
        if (count := sum((r.get("outcome") or r["verdict"]) == verdict for r in rows)) or (
            f"sweep/{verdict}" in before
        ):
            yield f"sweep/{verdict}", float(count), 0
    for key in (
        "kl_max",
        "max_abs_diff",
        "stored_bytes",
        "per_token_s",
        "save_s",
        "load_s",
        *sought,
    ):
        known = [
            (step, float(r[key])) for step, r in numbered if isinstance(r.get(key), int | float)
        ]
        if any(v for _, v in known):
            yield f"sweep/largest_{key}", max(v for _, v in known), 0
            yield f"sweep/smallest_{key}", min(v for _, v in known), 0
        if len({v for _, v in known}) > 1:
            yield from ((f"points/{key}", value, step) for step, value in known)
