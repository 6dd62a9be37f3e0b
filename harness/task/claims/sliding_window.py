"""Are tokens past the window in the cache, and does anyone look at them?"""

from dataclasses import replace

import torch

from harness.capture import whole_cache
from harness.pipeline.testbed import WINDOW, on
from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, DEPENDS, HOLDS, REFUTED, Bench, Settled

CLAIM = "Tokens past the attention window are masked out although they are in the cache."

LAYOUT = Layout(
    {
        "window": "attention window, tokens",
        "tokens_seen": "tokens read",
        "held_by_a_cache_without_the_config": "tokens held by a cache that keeps everything",
        "held_by_a_cache_with_the_config": "tokens held by a cache built from the config",
        "shift_when_tokens_past_the_window_are_damaged": "shift when tokens past the window are damaged, noise floors",
        "shift_when_tokens_inside_are_damaged": "shift when tokens inside it are damaged, noise floors",
        "same_logits_from_both_caches": "both caches give the same logits",
    }
)


def settle(bench: Bench) -> Settled:
    bench = replace(bench, session=on("windowed", bench.session), _cache={})
    bench.__dict__.pop("noise", None)
    ids = bench.ids(49)

    def after(first: int, last: int) -> torch.Tensor:
        """Logits of the last token when the K/V at `first` to `last` is damaged, all layers."""
        cache = whole_cache()
        bench.step(cache, ids[:, :48], 0)
        for layer in cache.layers:
            layer.values[:, :, first:last] += 1.0
            layer.keys[:, :, first:last] += 1.0
        return bench.step(cache, ids[:, 48:], 48)

    clean, outside, inside = after(0, 0), after(0, 48 - WINDOW), after(48 - WINDOW // 2, 48)
    windowed, _ = bench.prefilled(ids[:, :48])
    length = windowed.layers[0].keys.shape[2]
    again = bench.step(windowed, ids[:, 48:], 48)
    figures = {
        "window": WINDOW,
        "tokens_seen": 48,
        "held_by_a_cache_without_the_config": 48,
        "held_by_a_cache_with_the_config": length,
        "shift_when_tokens_past_the_window_are_damaged": bench.shift(outside, clean),
        "shift_when_tokens_inside_are_damaged": bench.shift(inside, clean),
        "same_logits_from_both_caches": bench.shift(again, clean) <= BEYOND,
    }
    masked = figures["shift_when_tokens_past_the_window_are_damaged"] <= BEYOND
    looked_at = figures["shift_when_tokens_inside_are_damaged"] > BEYOND
    dropped = length < 48
    verdict = (
        HOLDS
        if masked and looked_at and not dropped
        else DEPENDS
        if masked and looked_at
        else REFUTED
    )
    return Settled(
        verdict,
        figures,
        {
            HOLDS: "They are in the cache, and damaging them changes nothing.",
            DEPENDS: "On the cache: one that keeps everything masks them out, one built from the config drops them.",
            REFUTED: "Tokens past the window are attended to, or those inside it are not.",
        }[verdict],
        "In a cache that keeps everything they are there and masked out: damaging them changes "
        "nothing. A cache built from the config drops them, so they are not in it at all.",
        model=f"{bench.session.cfg.model.architecture}: small and seeded, with a window of {WINDOW} tokens",
    )
