"""What isolation by a second cache costs."""

from typing import Any

from harness.cache.registry import decoder
from harness.config import CacheConfig
from harness.errors import UnsupportedModel
from harness.report.claims import Layout
from harness.task.claims.bench import HOLDS, REFUTED, Bench, Settled

CLAIM = "A shallow clone isolates the caller but still copies the whole cache per step."
STEPS = 8
LAYOUT = Layout(
    head="cache and tokens held",
    rows={
        f"{name}_{length}": f"{words}, {length} tokens"
        for length in (64, 256)
        for name, words in (("cloned", "shallow clone"), ("manual", "read-only forward"))
    },
    columns={
        "{}_bytes_per_step": "bytes copied per step",
        "{}_share_of_cache_per_step": "that, in caches",
        "{}_caller_unchanged": "the caller's cache is unchanged",
    },
)


def settle(bench: Bench) -> Settled:
    figures: dict[str, Any] = {}
    holds = True
    for length in (64, 256):
        ids = bench.ids(length + STEPS)
        state = bench.state(ids[:, :length])
        for name in ("cloned", "manual"):
            try:
                one = decoder(bench.loaded, state, CacheConfig(name))
            except UnsupportedModel:
                continue
            before = one.fingerprint(digest=True)
            for i in range(STEPS):
                one.step(ids[:, length + i : length + i + 1])
            share = one.bytes_copied / STEPS / state.kv_bytes
            isolated = one.fingerprint(digest=True) == before
            figures[f"{name}_{length}_bytes_per_step"] = one.bytes_copied // STEPS
            figures[f"{name}_{length}_share_of_cache_per_step"] = share
            figures[f"{name}_{length}_caller_unchanged"] = isolated
            if name == "cloned":
                holds = holds and isolated and share >= 1
    return Settled(
        HOLDS if holds else REFUTED,
        figures,
        "The caller's cache stays as it was, and each step copies all that is held."
        if holds
        else "The caller's cache does not stay as it was, or less is copied than is held.",
        "The clone's layers concatenate, so each step moves every byte held so far into new "
        "storage; the read-only forward moves none of the past.",
        "bytes are counted by storage: a tensor that changed its address was copied whole",
    )
