"""The metrics of a sweep's run, and the tags that say what its points came to."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain
from math import nan
from pathlib import Path
from statistics import median
from typing import Any

from harness.snapshot.result import ORDER
from harness.snapshot.words import NO_NEARER
from harness.track import names

ENDS = ("kl_max", "max_abs_diff", "stored_bytes", "per_token_s", "save_s", "load_s")
BEST = (
    "max_abs_diff", "kl_mean", "kl_max", "top1_agreement", "error_ratio", "kv_bytes", "stored_bytes", "kept_tokens",
    "per_token_s",
)  # fmt: skip

# columns of `sweep.csv` that the metrics of a point call otherwise
OWN = {"error_ratio": "oracle/ratio", "per_token_s": "per_token"}
SUMMED = ("exit_code", "best")  # tags
ONCE = ("verdict",)  # and what older versions told of a sweep, which is no one word


def totals(
    rows: list[dict[str, Any]],
    sought: Sequence[str] = (),
    before: Iterable[str] = (),
    best: str = "",
    alike: Sequence[str] = (),
) -> Iterator[tuple[str, float, int]]:
    """Counts per verdict, the worst and the best figures, and those of the point `best`, where one is; what each other
    came to is that point's. alike: the points of one choice under several seeds, whose medians are told where no point
    alone is best. before: what was told by an earlier try, and may be zero or none now."""
    told = {"sweep/points": float(len(rows))}
    for verdict in ORDER:
        count = sum((r.get("outcome") or r["verdict"]) == verdict for r in rows)
        if count or f"sweep/{verdict}" in before:
            told[f"sweep/{verdict}"] = float(count)
    for key in (*ENDS, *sought):
        known = [float(r[key]) for r in rows if _number(r.get(key))]
        older = [key] * (f"sweep/largest_{key}" in before)  # as it was called once
        for called in (_called(key), *older) if any(known) else ():
            told |= {f"sweep/largest_{called}": max(known), f"sweep/smallest_{called}": min(known)}
    wanted = (*BEST, *sought)
    names = {
        k: [OWN.get(k, _called(k)), *[k] * (k in OWN and f"best/{k}" in before)] for k in wanted
    }
    told |= {f"best/{k}": nan for k in chain(*names.values()) if f"best/{k}" in before}
    stand = {best} if best else {*alike}
    mine = [row for row in rows if stand and row["point"] in stand]
    for key in wanted if mine else ():
        if known := [float(row[key]) for row in mine if _number(row.get(key))]:
            told |= dict.fromkeys((f"best/{name}" for name in names[key]), median(known))
    yield from ((key, value, 0) for key, value in told.items())


def first(best: str, marked: Sequence[str]) -> str:
    """The point that stands for a sweep: the `best`, where one is, else the first of those that its page marks; empty
    where it marks none."""
    return best or next(iter(marked), "")


def summed(
    sweep: Path, rows: list[dict[str, Any]], best: str, marked: Sequence[str] = (), whole: bool = True, sentence: str = ""
) -> dict[str, str]:  # fmt: skip
    """The tags that say what a sweep came to: the point that is `best` of those that ran, where one is, by what it
    alone was asked, and where it came to its end (`whole`) with which exit code. marked: all that its page marks, of
    which the first is named. sentence: what the sweep came to; where a control is as near, the tag says so as well."""
    told = {"exit_code": str(max(int(row["exit_code"]) for row in rows))} if whole else {}
    if not (point := first(best, marked)):
        return told
    more = f" (and {len(marked) - 1} more)" * (len(marked) > 1)
    more += f" ({NO_NEARER.lower()})" * (NO_NEARER in sentence)
    return told | {"best": f"{names.point(sweep / point) or point}{more}"}


def _called(key: str) -> str:
    """What a figure that a search looked for is called: `contains` of `evaluate.contains`."""
    return key.rpartition(".")[2]


def _number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
