"""Where a cache goes wrong, seen from outside: the first continuation after prompts of many lengths."""

from typing import Any

from harness.engine import Engine
from harness.engine.base import Prompt, forced
from harness.task.referee import tops, verdict

BLOCKS = (16, 32, 64, 128, 256)  # sizes of blocks that engines cut their caches into
SHORTEST = 4


def lengths(tokens: int) -> list[int]:
    """Reused lengths to try: around the first boundaries of each size of block, and a few between."""
    around = {n * b + d for b in BLOCKS for n in (1, 2) for d in (-1, 0, 1)}
    spread = {tokens * i // 6 for i in range(1, 6)} | {SHORTEST, 8, tokens - 1}
    return sorted(n for n in around | spread if SHORTEST <= n < tokens)


def scan(engine: Engine, prompt: Prompt, floor: float) -> list[dict[str, Any]]:
    """One row per length: what the first token after the cache differs by. Leaves the last in the cache."""
    rows = []
    for length in lengths(len(prompt)) if isinstance(prompt, list) else []:
        part = prompt[: length + 1]
        cold = engine.evaluate(part, 1)
        engine.save(part)
        engine.restore("hit")
        hit = forced(engine.resume, part, cold)
        gap = tops.compare(hit, cold)["max_abs_diff"]
        row = {"length": length, "reused_tokens": hit.reused, "max_abs_diff": gap}
        rows.append(row | {"beyond": bool(hit.reused) and gap > verdict.FACTOR * floor})
    return rows


def conclusion(rows: list[dict[str, Any]]) -> str:
    """What the rows have in common, in one sentence."""
    reused = [r for r in rows if r["reused_tokens"]]
    bad = [r["reused_tokens"] for r in reused if r["beyond"]]
    good = [r["reused_tokens"] for r in reused if not r["beyond"]]
    if not reused:
        return "nothing was reused at any length"
    if not bad:
        later = "the fault comes later, or not each time"
        return f"the first token is right at all {len(reused)} lengths: {later}"
    if not good:
        return f"wrong at every reused length from {min(bad)} to {max(bad)} tokens"
    if min(bad) > max(good):
        return f"right up to {max(good)} reused tokens, wrong from {min(bad)} on"
    for block in reversed(BLOCKS):
        for rest in (0, 1, block - 1):
            if all(n % block == rest for n in bad) and all(n % block != rest for n in good):
                return f"wrong exactly where the reused length is {rest} modulo {block}"
    rate = f"wrong at {len(bad)} of {len(reused)} lengths"
    return f"{rate}, the shortest {min(bad)}; no block size explains which"
