"""The caller's object grows under its feet."""

from typing import Any

from harness.cache.registry import decoder
from harness.config import CacheConfig
from harness.report.claims import Layout
from harness.task.claims.bench import HOLDS, REFUTED, Bench, Settled

CLAIM = (
    "After a forward over N ids a DynamicCache has length N; passing it on makes the caller's "
    "object N+1 long."
)

LAYOUT = Layout(
    {
        "ids_sent": "tokens fed first",
        "length_after_prefill": "length of the cache after them",
        "length_after_one_more": "length of the caller's object after one more token",
        "contents_changed": "contents of the caller's object changed",
    },
    "one more token through",
    {
        "cloned": "a second cache over the same tensors",
        "manual": "a forward with a tail of its own",
    },
    {
        "length_with_{}": "length of the caller's object",
        "contents_changed_with_{}": "its contents changed",
    },
)


def settle(bench: Bench) -> Settled:
    ids = bench.ids(65)
    cache, _ = bench.prefilled(ids[:, :64])
    before, digest = cache.get_seq_length(), bench.digest(cache)
    bench.step(cache, ids[:, 64:], 64)
    figures: dict[str, Any] = {
        "ids_sent": 64,
        "length_after_prefill": before,
        "length_after_one_more": cache.get_seq_length(),
        "contents_changed": bench.digest(cache) != digest,
    }
    state = bench.state(ids[:, :64])
    for name in ("cloned", "manual"):
        try:
            other = decoder(bench.loaded, state, CacheConfig(name))
        except Exception as problem:
            figures[f"length_with_{name}"] = type(problem).__name__
            continue
        mark = other.fingerprint(digest=True)
        other.step(ids[:, 64:])
        figures[f"length_with_{name}"] = other.fingerprint().length
        figures[f"contents_changed_with_{name}"] = other.fingerprint(digest=True) != mark
    grows = figures["length_after_prefill"] == 64 and figures["length_after_one_more"] == 65
    return Settled(
        HOLDS if grows else REFUTED,
        figures,
        "64 tokens give length 64, and one more token makes the caller's own object 65 long."
        if grows
        else "The caller's object does not grow by the token that is fed.",
        "The library appends inside the object that is passed in; a second cache over the same "
        "tensors, or a forward that keeps its own tail, leaves the caller's as it was.",
    )
