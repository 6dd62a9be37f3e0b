"""The metrics of a sweep's run."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from harness.snapshot.result import ORDER


def totals(
    rows: list[dict[str, Any]], sought: Sequence[str] = (), before: Iterable[str] = ()
) -> Iterator[tuple[str, float, int]]:
    """Counts per verdict, the worst and the best; what each point came to is that point's. before: what was
    counted by an earlier try, and may be zero now."""
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
        known = [float(r[key]) for r in rows if isinstance(r.get(key), int | float)]
        if any(known):
            yield f"sweep/largest_{key}", max(known), 0
            yield f"sweep/smallest_{key}", min(known), 0
