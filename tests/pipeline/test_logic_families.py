"""The judge over families, dtypes, caches and seeds: no healthy cache is blamed, no planted fault missed.

`SEEDS=500 make test-slow ARGS="tests/pipeline/test_logic_families.py -s"` prints the table.
"""

import os
from typing import Any

import pytest
import torch
from test_logic import (
    Filled,
    Handing,
    OneHead,
    SecondAppend,
    Several,
    Shifted,
    StaleValue,
    WindowOneOff,
)
from test_yardstick_families import CLAMPED, IGNORES_ITS_WINDOW, _loaded

import harness
from harness.errors import HarnessError
from harness.model.loaded import Loaded
from harness.task.architectures.families import COMMON, FAMILIES

SEEDS = int(os.environ.get("SEEDS", "40"))
NAMES = [n for n in FAMILIES if n not in IGNORES_ITS_WINDOW | CLAMPED]
HEALTHY = ("auto", "view", "cloned", "dynamic", "static", "manual")
FAULTY = (StaleValue, OneHead, SecondAppend, WindowOneOff, Several, Shifted)
ATTENTION = ("llama", "qwen3", "gpt2", "gpt_neox", "olmo2", "phi", "stablelm", "gemma")


def _thought(name: str, dtype: str, seed: int) -> tuple[Loaded, Any]:
    loaded = harness.wrap(_loaded(name, dtype, seed).model)
    seeded = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, COMMON["vocab_size"], (24 + seed % 17,), generator=seeded)
    return loaded, harness.capture_text(loaded, " ".join(map(str, ids.tolist())))


def _worst(judgement: Any, *names: str) -> float:
    shares = [
        c.figures["off"] / c.figures["bound"]
        for c in judgement.checks
        if c.name in names and "off" in c.figures
    ]
    return max(shares, default=0.0)


@pytest.mark.slow
def test_no_healthy_cache_is_blamed(capsys: pytest.CaptureFixture[str]) -> None:
    shares: dict[str, list[float]] = {}
    alarms, refused, unasked = [], 0, []
    for seed in range(SEEDS):
        name, dtype = NAMES[seed % len(NAMES)], ("bfloat16", "float32")[seed // len(NAMES) % 2]
        cache = HEALTHY[seed % len(HEALTHY)]
        try:
            loaded, state = _thought(name, dtype, seed)
            made = harness.judge(loaded, state, steps=6, cache=cache)
        except HarnessError:
            refused += 1
            continue
        for check in made.checks:
            shares.setdefault(check.name, []).append(_worst(made, check.name))
            if check.outcome == "not asked":
                unasked.append((name, cache, check.name, check.code))
        if not made.good:
            alarms.append(
                (seed, name, dtype, cache, [c.row() for c in made.checks if c.outcome == "failed"])
            )
    with capsys.disabled():
        print(f"\n{SEEDS} seeds, {refused} refused by name, not asked: {sorted(set(unasked))}")
        for check, every in shares.items():
            print(f"  {check:14} n={len(every):4} largest off / bound {max(every):.2g}")
        for alarm in alarms:
            print("  alarm:", alarm)
    assert not alarms


@pytest.mark.slow
def test_no_planted_fault_is_missed(capsys: pytest.CaptureFixture[str]) -> None:
    missed, smallest, numbers = [], float("inf"), 0
    for seed in range(SEEDS):
        name, dtype = ATTENTION[seed % len(ATTENTION)], ("bfloat16", "float32")[seed // 8 % 2]
        kind = FAULTY[seed % len(FAULTY)]
        loaded, state = _thought(name, dtype, seed)
        cache = (
            type(kind.__name__, (Filled,), {"kind": kind}) if issubclass(kind, Handing) else kind
        )
        made = harness.judge(loaded, state, steps=6, cache=cache)
        share = _worst(made, "logic", "logic/several", "logic/crop")
        smallest = min(smallest, share)
        numbers += any(c.name == "numbers" and c.outcome == "passed" for c in made.checks)
        if made.good:
            missed.append((seed, name, dtype, kind.__name__, share))
    with capsys.disabled():
        print(
            f"\n{SEEDS} faulty runs: smallest logic off / bound {smallest:.3g}, {numbers} with numbers within rounding"
        )
    assert not missed, missed[:5]
