"""The record a run leaves behind: `result.json`, strict JSON, written atomically."""

import json
import math
import os
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

SCHEMA = 1
GOOD = ("exact", "equivalent")
COMPARED = (*GOOD, "drifted", "diverged")  # by logits
ORDER = ("exact", "equivalent", "drifted", "diverged", "unjudged", "unsound", "refused", "failed")
UNJUDGED, UNSOUND = "unjudged", "unsound"
DONE = "done"  # what a job came to whose task has no word of its own for it
COMPARING = ("experiment", "resume", "chat", "referee")  # a verdict is what they are for
PASSED = {"save": "saved", "verify": "intact", "faults": "every fault caught", "diff": "the same",
          "architectures": "no cell is wrong", "audit": "same"}  # fmt: skip
MISSED = {
    "faults": "not every fault caught",
    "architectures": "a cell is wrong",
    "audit": "differs",
    "diff": "differs",
    "verify": "damaged",
}

ALONE = {"faults": ("caught", "not caught")}  # of the two where one thing was tried

METRICS = (
    "bitwise_equal", "max_abs_diff", "mean_abs_diff", "max_ulp", "kl_mean", "kl_max",
    "top1_agreement", "top5_overlap", "first_divergence", "nll_delta",
)  # fmt: skip
MUTATION = (
    "mutated", "length_before", "length_after", "digest_before", "digest_after",
    "bytes_copied_per_token",
)  # fmt: skip
STEPS = ("first_divergence", "first_beyond")  # a record counts steps from 0, people from 1
TIMES = (
    "load_model", "prefill", "prune", "save", "load", "verify", "restore", "first_token",
    "per_token", "recompute",
)  # fmt: skip
PRUNED = (
    "Restore: ",
    "Cross-check: ",
    "Same pruned thought: ",
)  # begin what is said of a pruned run; the last one did
MOMENT = 0.1  # seconds; of less, what a machine does beside decides which of two is faster
ROWS = "evaluate.json"  # a row per cell and measure
CELL = ("prune", "quantize", "budget", "cache", "asked")
ORACLE = ("restored", "plain", "ratio", "restored_mean", "plain_mean")
SIZES = ("tokens", "kept_tokens", "kv_bytes", "stored_bytes")


def times_faster(result: Mapping[str, Any], least: float = MOMENT) -> float | None:
    """How many times faster a restore was than a prefill (below 1: slower), where that prefill takes `least`
    seconds, or the restore ten times that, which no neighbour on the machine explains; else None."""
    again, back = recomputing(result)
    return again / back if again and back and (again >= least or back >= 10 * least) else None


def recomputing(result: Mapping[str, Any]) -> tuple[float, float]:
    """Seconds of a prefill, of two of the same tokens the faster one, and of a restore, its reading and its proof
    included; zeros where something was waived: what a proof took that failed is no price of a restore."""
    times = {} if result.get("waived") else result.get("time_s") or {}
    again = min(times.get("recompute") or 0.0, times.get("prefill") or math.inf)
    return again, sum(times.get(key) or 0.0 for key in ("load", "verify", "restore"))


def timed_twice(result: Mapping[str, Any]) -> bool:
    """Whether the same tokens were prefilled a second time, so that the faster one of two is compared with."""
    times = result.get("time_s") or {}
    return bool(times.get("recompute") and times.get("prefill"))


def counted(key: str, value: Any) -> Any:
    """The value of a figure as people count it: the first step is step 1."""
    return value + 1 if key in STEPS and value is not None else value


def worse(verdict: str, required: str) -> bool:
    """Whether `verdict` does not meet `required`; what was not judged misses nothing."""
    return verdict != UNJUDGED and ORDER.index(verdict) > ORDER.index(required)


def exit_code(result: Mapping[str, Any]) -> int:
    """What a finished job ended with: as it says, else 1 where its verdict misses what was required."""
    missed = any(
        bool(block.get("required"))
        and block.get("verdict") in ORDER
        and worse(str(block["verdict"]), str(block["required"]))
        for block in (result, result.get("itself") or {})
    )
    return int(result.get("exit_code", 1 if missed else 0))


def outcome(result: Mapping[str, Any]) -> str:
    """What came out of a job, in its task's words, wherever it is shown. None where the task compares
    nothing that could be the same thought: its conclusion stands alone."""
    verdict, task = str(result.get("verdict")), str(result.get("task", COMPARING[0]))
    compared = any(value is not None for value in (result.get("metrics") or {}).values())
    stopped = verdict == "failed" and "exit_code" in result  # it came to no end
    missed = {"failed", "diverged"} | ({"drifted", UNJUDGED} if task == "diff" else set())
    if task == "verify":
        missed = {"refused"} if result.get("faults") else set()
    alone = ALONE.get(task) if result.get("tried") == 1 else None
    if on := result.get("continues"):  # what went on from the other is no fault
        return f"{on['longer']} continues {on['shorter']}"
    if task in MISSED and verdict in missed and not stopped:
        return alone[1] if alone else MISSED[task]
    if task in PASSED and verdict in (*GOOD, UNJUDGED) and not compared:
        return alone[0] if alone else PASSED[task]
    return "" if verdict == UNJUDGED and task not in COMPARING else verdict


def tallied(points: Iterable[tuple[str, bool]]) -> dict[str, int]:
    """How many points of a sweep came out how: first what is not as required, the worst of it first, since a narrow
    column cuts the rest, then the others, the best first. points: the word of each, and whether it is as required."""
    every = list(points)
    tally, missed = Counter(word for word, _ in every), {word for word, good in every if not good}
    worst = [word for word in (*reversed(ORDER), *tally) if word in missed]
    return {word: tally[word] for word in dict.fromkeys((*worst, *ORDER, *tally)) if tally[word]}


def finite(value: Any) -> Any:
    """`value` with NaN and infinities as None and numbers as plain Python, ready for strict JSON."""
    if isinstance(value, Mapping):
        return {str(k): finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [finite(v) for v in value]
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    return value


def write_json(path: Path, document: Any) -> None:
    """Write through a temporary name: readers see the old file or the new one."""
    text = json.dumps(finite(document), indent=2, ensure_ascii=False, allow_nan=False)
    write_text(path, text + "\n")


def write_text(path: Path, text: str) -> None:
    """The same for any text, in UTF-8."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text, "utf-8")
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def told_apart(said: str) -> str:
    """The sentence `said` without what those of all pruned runs that came back well begin with: a list shows
    the first few words of each."""
    return said.partition(". ")[2] if said.startswith(PRUNED) else said
