"""Of a sweep whose points are not what was asked for: which of them, by how much, and what to try."""

from typing import Any

from harness.report.picture import plots
from harness.report.sweep import pruned
from harness.report.sweep.verdicts import STOPPED, called, word
from harness.snapshot.result import GOOD, counted

FEW = 3  # points that are named one by one
EIGHT = ("int8", "fp8_e4m3", "fp8_e5m2")  # quantizers of as many bits as there are
TRY = {
    "prune": "keep more of the context (a larger prune.ratio or prune.tokens)",
    "policy": "choose another policy (here keeping more of the context brings the logits no nearer)",
    "quantize": "keep codes of more bits (quantize=int8)",
    "codes": "keep no codes (quantize=none)",
    "allow": "keep no codes (quantize=none), or allow what they change (compare.require=drifted)",
    "mutated": "choose a cache that leaves yours as it was (cache=cloned or cache=view)",
    "audit": "follow what the page of such a point lists under Differences",
    "": "follow what the page of such a point says under Diagnosis",
}
DRIFTED, DIVERGED = "compare.require=drifted", "compare.require=diverged"
CHANGED = {"pruning": "prune", "quantizing": "quantize"}  # what a state holds less of, by its key

Row = dict[str, Any]


def sentence(rows: list[Row], axes: list[str], short: bool) -> str:
    """Two sentences; empty where nothing failed. short: no point keeps the tokens, though none was required to."""
    measured = [row for row in rows if row["verdict"] not in STOPPED]
    failed = [
        row for row in measured if int(row["exit_code"]) or (short and not pruned.allowed(row))
    ]
    if not failed:
        return ""
    lost = list(filter(pruned.lost, measured))
    first = f"Not back as saved: {_shared(lost, rows, axes) or _named(lost, axes)}. " * bool(lost)
    failed = [row for row in failed if row not in lost]
    if not failed:
        return f"{first}The page of such a point says more under Diagnosis."
    alike: dict[str, list[Row]] = {}
    for row in sorted(failed, key=lambda row: row["verdict"] != "diverged"):
        alike.setdefault(_far(row), []).append(row)
    some = [f"{_together(mine, axes)}: {far}" for far, mine in [*alike.items()][:FEW]]
    left = sum(len(mine) for mine in [*alike.values()][FEW:])
    more = f"; {left} more below" * bool(left)
    ways = dict.fromkeys(way for row in failed for way in _ways(row))
    if "allow" in ways:  # which says it too
        ways.pop("codes", None)
    if "quantize" in ways and any(_eight(row) for row in failed):
        ways.pop("quantize")  # which was tried here
    if "prune" in ways and _refuted(measured):
        ways.pop("prune")
        ways["policy"] = None
    off = f"{first}How far off: {'; '.join(some)}{more}. {_back(failed)}"
    if not ways:
        return off.rstrip()
    said = "; or ".join(TRY[way] for way in ways)
    worst = any(
        row["verdict"] == "diverged" and str(row.get("quantize", "none")) != "none"
        for row in failed
    )
    return f"{off}Try to {said.replace(DRIFTED, DIVERGED) if worst else said}."


def differing(rows: list[Row]) -> str:
    """How many of what was compared differ, in a sentence; empty where another task than that is among them."""
    words = list(map(word, rows))
    number = words.count("differs")
    if not {*words} <= {"same", "the same", "differs"}:
        return ""
    return f"{number or 'None'} of {len(words)} {'differ' if number > 1 else 'differs'}."


def _back(rows: list[Row]) -> str:
    """That what is off is no fault of the restore, in a sentence, where all of these points came back as saved."""
    if not all(row.get(pruned.RESTORE) in GOOD for row in rows):
        return ""
    what = [w for w, key in CHANGED.items() if any(str(r.get(key, "none")) != "none" for r in rows)]
    who, whose = ("They", "their") if rows[1:] else ("It", "its")
    return f"{who} came back as saved: {' and '.join(what)} alone moved {whose} logits. " * bool(
        what
    )


def _refuted(rows: list[Row]) -> bool:
    """Whether a point that keeps fewer tokens than another is at least as near to the full cache as all that do."""
    known = [r for r in rows if r.get("kl_mean") is not None and r.get("kept_tokens")]
    most = max((r["kept_tokens"] for r in known), default=0)
    best = min((r["kl_mean"] for r in known if r["kept_tokens"] == most), default=0.0)
    return any(r["kl_mean"] <= best for r in known if r["kept_tokens"] < most)


def _together(some: list[Row], axes: list[str]) -> str:
    """Points that are as far off: one by its options, of several those that all of them have."""
    if not some[1:]:
        return called(some[0], axes)
    same = [axis for axis in axes if len({str(row[axis]) for row in some}) == 1]
    return f"{called(some[0], same)} ({len(some)} points)" if same else _named(some, axes)


def _shared(lost: list[Row], rows: list[Row], axes: list[str]) -> str:
    """What these points have in common and no other has, where there are several: `all 6 with fault=layer_swap`."""
    for axis in axes:
        values = {str(row[axis]) for row in lost}
        if lost[1:] and len(values) == 1 and sum(str(r[axis]) in values for r in rows) == len(lost):
            return f"{pruned.all_of(len(lost))} with {axis}={plots.short(lost[0][axis])}"
    return ""


def _named(rows: list[Row], axes: list[str]) -> str:
    more = f"; {len(rows) - FEW} more" * (len(rows) > FEW)
    return "; ".join(called(row, axes) for row in rows[:FEW]) + more


def _far(row: Row) -> str:
    """By how much it is off: the first other token, the divergence, the error."""
    said = []
    if row.get("first_divergence") is not None:
        said.append(f"another token at step {counted('first_divergence', row['first_divergence'])}")
    if row.get("kl_mean"):
        said.append(f"mean KL {row['kl_mean']:.3g} nats")
    if row.get("error_ratio") and not pruned.judged(row):  # what is required of it is no ratio
        said.append(f"error {row['error_ratio']:.3g} of rounding's own, 2 allowed")
    return ", ".join(said) or str(row["reason"] or row["verdict"])


def _eight(row: Row) -> bool:
    """Whether it is kept as codes of as many bits as there are."""
    codes = str(row.get("quantize", "none"))
    return codes in EIGHT or (codes != "none" and str(row.get("quantize.bits")) == "8")


def _ways(row: Row) -> list[str]:
    if pruned.lost(row):
        return [""]
    if row.get("task") == "audit":
        return ["audit"]
    ways = ["prune"] * (str(row.get("prune", "none")) != "none")
    codes = str(row.get("quantize", "none"))
    if codes != "none" and row["verdict"] == "drifted" and not ways:
        ways.append("allow")  # more bits than a code has move the logits, too
    elif codes != "none":
        ways.append("codes" if _eight(row) else "quantize")
    if not ways and str(row.get("mutated")) == "True":  # no cache gives back what was dropped
        return ["mutated"]
    return ways or [""]
