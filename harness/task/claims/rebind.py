"""Is the returned cache needed?"""

import torch

from harness.cache.registry import decoder
from harness.config import CacheConfig
from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, DEPENDS, HOLDS, REFUTED, Bench, Settled

CLAIM = "Dropping the returned cache loses state."

LAYOUT = Layout(
    {
        "returned_object_is_the_one_passed_in": "the returned object is the one passed in",
        "shift_when_dropped_after_passing_one_in": "shift when it is dropped, noise floors",
        "shift_when_a_clone_is_dropped": "shift when a clone that grew is dropped, noise floors",
    }
)


def settle(bench: Bench) -> Settled:
    ids = bench.ids(66)
    cache, _ = bench.prefilled(ids[:, :64])
    at = torch.tensor([[64]], device=ids.device)
    with torch.no_grad():
        out = bench.loaded.model(
            input_ids=ids[:, 64:65], position_ids=at, past_key_values=cache, use_cache=True
        )
    same_object = out.past_key_values is cache
    logits = bench.step(cache, ids[:, 65:], 65)
    whole = bench.prefilled(ids)[1]
    passed_in = bench.shift(logits[:, -1], whole)

    clone = decoder(bench.loaded, bench.state(ids[:, :64]), CacheConfig("cloned"))
    clone.step(ids[:, 64:65])  # the clone grows; its caller, who drops it, keeps the old length
    forgotten = decoder(bench.loaded, bench.state(ids[:, :64]), CacheConfig("cloned"))
    forgotten.next_position = forgotten.next_position + 1
    lost = bench.shift(forgotten.step(ids[:, 65:])[:, -1], whole)
    figures = {
        "returned_object_is_the_one_passed_in": same_object,
        "shift_when_dropped_after_passing_one_in": passed_in,
        "shift_when_a_clone_is_dropped": lost,
    }
    harmless, loses = passed_in <= BEYOND, lost > BEYOND
    verdict = DEPENDS if harmless and loses else HOLDS if loses else REFUTED
    return Settled(
        verdict,
        figures,
        {
            DEPENDS: "On whose object grows: the one passed in holds everything, a copy that is dropped is lost.",
            HOLDS: "What is dropped is lost, also where a cache was passed in.",
            REFUTED: "Nothing is lost, also where a copy is dropped.",
        }[verdict],
        "With a cache object passed in, the returned one is that very object, so nothing is lost by "
        "dropping it. Where the forward works on a copy (a clone, or a tail of its own), what is "
        "dropped is the only place that knows the new token.",
    )
