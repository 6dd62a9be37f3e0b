"""Memory and coherence under pruning."""

from typing import Any

import torch

from harness.cache.registry import decoder
from harness.compare.metrics import compare
from harness.config import CacheConfig, option
from harness.errors import UnsupportedModel
from harness.prune.registry import policy
from harness.report.claims import Layout
from harness.task.claims.bench import DEPENDS, HOLDS, REFUTED, Bench, Settled

CLAIM = "Pruning is linear in memory; coherence drops when it is too aggressive."
TOKENS, NEW = 240, 24
RATIOS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.05)
KEPT = {f"kept_{round(ratio * 100)}_per_cent": 100 * ratio for ratio in RATIOS}
LAYOUT = Layout(
    {
        "tokens": "tokens before pruning",
        "kv_bytes": "bytes of keys and values before pruning",
        "memory_linear": "bytes follow the share of kept tokens, within 2 points",
        "coherence_drops": "KL grows tenfold from all tokens to the fewest",
    },
    "tokens kept",
    {row: f"{kept:.0f}%" for row, kept in KEPT.items()},
    {
        "{}_bytes_share": "bytes, share of all",
        "{}_kl_mean_nats": "mean KL from the unpruned run, nats",
        "{}_top1_agreement": "steps with the same most likely token, share",
    },
    {
        "{}_kl_mean_nats": ("Mean KL from the unpruned run", "nats"),
        "{}_bytes_share": ("Bytes", "share of all"),
        "{}_top1_agreement": ("Same most likely token", "share of steps"),
    },
    KEPT,
    "tokens kept, %",
)


def settle(bench: Bench) -> Settled:
    ids = bench.ids(TOKENS + NEW)
    state = bench.state(ids[:, :TOKENS])
    following = ids[:, TOKENS:]
    everywhere = torch.arange(ids.shape[1], device=ids.device)[None]
    expected = bench.loaded.forward(ids, everywhere)[:, TOKENS:]
    figures: dict[str, Any] = {"tokens": TOKENS, "kv_bytes": state.kv_bytes}
    shares, kl = [], []
    try:
        for ratio in RATIOS:
            chosen = policy(option("prune", "sink_window", ratio=ratio, sinks=4))
            small = chosen.prune(state) if ratio < 1 else state
            logits = decoder(bench.loaded, small, CacheConfig("manual")).step(following)
            measured = compare(logits, expected, following.roll(-1, 1))
            shares.append(small.kv_bytes / state.kv_bytes)
            kl.append(measured["kl_mean"])
            name = f"kept_{round(ratio * 100)}_per_cent"
            figures[f"{name}_bytes_share"] = shares[-1]
            figures[f"{name}_kl_mean_nats"] = kl[-1]
            figures[f"{name}_top1_agreement"] = measured["top1_agreement"]
    except UnsupportedModel as problem:
        return Settled(DEPENDS, figures, "On the model: this one is not served.", str(problem))
    linear = all(abs(s - r) < 0.02 for s, r in zip(shares, RATIOS, strict=True))
    drops = kl[-1] > 10 * max(kl[0], 1e-9) and kl[-1] > kl[1]
    figures["memory_linear"], figures["coherence_drops"] = linear, drops
    verdict = HOLDS if linear and drops else DEPENDS if linear or drops else REFUTED
    return Settled(
        verdict,
        figures,
        {
            HOLDS: f"Bytes follow the kept tokens; the mean KL goes from {kl[1]:.2g} nats at "
            f"{RATIOS[1]:.0%} to {kl[-1]:.2g} at {RATIOS[-1]:.0%}.",
            DEPENDS: f"On which half: memory is {'' if linear else 'not '}linear, "
            f"coherence {'drops' if drops else 'does not drop'}.",
            REFUTED: "Memory is not linear, and coherence does not drop.",
        }[verdict],
        "The bytes follow the number of kept tokens exactly, and the distribution of the next "
        "tokens moves further from the unpruned one as fewer are kept.",
        f"policy sink_window, {NEW} teacher-forced tokens after {TOKENS}",
    )
