"""Claims about cache objects: who grows, who copies, what a window or a policy leaves in them."""

from dataclasses import replace
from typing import Any

import torch

from harness.cache.registry import decoder
from harness.capture import whole_cache
from harness.compare.metrics import compare
from harness.config import CacheConfig, option
from harness.errors import UnsupportedModel
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.judge import judge
from harness.pipeline.testbed import WINDOW, on
from harness.prune.registry import policy
from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, DEPENDS, HOLDS, REFUTED, Bench, Settled, claim

UNSERVED = "On the model: this one is not served."
COPIED_STEPS, JUDGED_STEPS = 8, 24
PRUNED, NEW = 240, 24  # tokens before pruning, and after
RATIOS = (1.0, 0.75, 0.5, 0.25, 0.1, 0.05)
KEPT = {f"kept_{round(ratio * 100)}_per_cent": 100 * ratio for ratio in RATIOS}


@claim(
    "After a forward over N ids a DynamicCache has length N; passing it on makes the caller's object N+1 long.",
    Layout(
        {
            "ids_sent": "tokens fed first",
            "length_after_prefill": "length of the cache after them",
            "length_after_one_more": "length of the caller's object after one more token",
            "contents_changed": "contents of the caller's object changed",
        },
        "one more token through",
        {"cloned": "a second cache over the same tensors", "manual": "a forward with a tail of its own"},
        {"length_with_{}": "length of the caller's object", "contents_changed_with_{}": "its contents changed"},
    ),
    {
        HOLDS: "64 tokens give length 64, and one more token makes the caller's own object 65 long.",
        REFUTED: "The caller's object does not grow by the token that is fed.",
    },
    "The library appends inside the object that is passed in; a second cache over the same tensors, or a forward "
    "that keeps its own tail, leaves the caller's as it was.",
)  # fmt: skip
def isolation(bench: Bench) -> Settled:
    ids = bench.ids(65)
    cache, _ = bench.prefilled(ids[:, :64])
    before, digest = cache.get_seq_length(), bench.digest(cache)
    bench.step(cache, ids[:, 64:], 64)
    after = cache.get_seq_length()
    figures: dict[str, Any] = {
        "ids_sent": 64,
        "length_after_prefill": before,
        "length_after_one_more": after,
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
    return Settled(HOLDS if (before, after) == (64, 65) else REFUTED, figures)


@claim(
    "`cache2 = cache` shares memory: a later forward through one changes the other.",
    Layout(
        {
            "length_of_the_other_before": "length by the other name, before the forward",
            "length_of_the_other_after": "length by the other name, after it",
            "contents_of_the_other_changed": "contents by the other name changed",
            "shift_of_its_next_logits_in_noise_floors": "shift of its next logits, noise floors",
        }
    ),
    {
        HOLDS: "Four tokens fed by one name are in the cache by the other name too.",
        REFUTED: "Four tokens fed by one name are not in the cache by the other name too.",
    },
    "The second name sees four tokens that were never meant for it, and its next logits are those of another text.",
)
def aliasing(bench: Bench) -> Settled:
    ids = bench.ids(72)
    cache, _ = bench.prefilled(ids[:, :64])
    second = cache
    before = bench.digest(second)
    bench.step(cache, ids[:, 64:68], 64)
    length, changed = second.get_seq_length(), bench.digest(second) != before
    through_alias = bench.step(second, ids[:, 68:], 64)
    alone = bench.step(bench.prefilled(ids[:, :64])[0], ids[:, 68:], 64)
    shift = bench.shift(through_alias, alone)
    figures = {
        "length_of_the_other_before": 64,
        "length_of_the_other_after": length,
        "contents_of_the_other_changed": changed,
        "shift_of_its_next_logits_in_noise_floors": shift,
    }
    return Settled(HOLDS if length == 68 and changed and shift > BEYOND else REFUTED, figures)


@claim(
    "Dropping the returned cache loses state.",
    Layout(
        {
            "returned_object_is_the_one_passed_in": "the returned object is the one passed in",
            "shift_when_dropped_after_passing_one_in": "shift when it is dropped, noise floors",
            "shift_when_a_clone_is_dropped": "shift when a clone that grew is dropped, noise floors",
        }
    ),
    {
        DEPENDS: "On whose object grows: the one passed in holds everything, a copy that is dropped is lost.",
        HOLDS: "What is dropped is lost, also where a cache was passed in.",
        REFUTED: "Nothing is lost, also where a copy is dropped.",
    },
    "With a cache object passed in, the returned one is that very object, so nothing is lost by dropping it. Where "
    "the forward works on a copy (a clone, or a tail of its own), what is dropped is the only place that knows the "
    "new token.",
)
def rebind(bench: Bench) -> Settled:
    ids = bench.ids(66)
    cache, _ = bench.prefilled(ids[:, :64])
    at = torch.tensor([[64]], device=ids.device)
    with torch.no_grad():
        out = bench.loaded.model(
            input_ids=ids[:, 64:65], position_ids=at, past_key_values=cache, use_cache=True
        )
    logits = bench.step(cache, ids[:, 65:], 65)
    whole = bench.prefilled(ids)[1]
    passed_in = bench.shift(logits[:, -1], whole)
    # a clone that grew is dropped: its caller goes on with the old length
    forgotten = decoder(bench.loaded, bench.state(ids[:, :64]), CacheConfig("cloned"))
    forgotten.next_position = forgotten.next_position + 1
    lost = bench.shift(forgotten.step(ids[:, 65:])[:, -1], whole)
    figures = {
        "returned_object_is_the_one_passed_in": out.past_key_values is cache,
        "shift_when_dropped_after_passing_one_in": passed_in,
        "shift_when_a_clone_is_dropped": lost,
    }
    harmless, loses = passed_in <= BEYOND, lost > BEYOND
    return Settled(DEPENDS if harmless and loses else HOLDS if loses else REFUTED, figures)


@claim(
    "A shallow clone isolates the caller but still copies the whole cache per step.",
    Layout(
        head="cache and tokens held",
        rows={
            f"{name}_{length}": f"{label}, {length} tokens"
            for length in (64, 256)
            for name, label in (("cloned", "shallow clone"), ("manual", "read-only forward"))
        },
        columns={
            "{}_bytes_per_step": "bytes copied per step",
            "{}_share_of_cache_per_step": "that, in caches",
            "{}_caller_unchanged": "the caller's cache is unchanged",
        },
    ),
    {
        HOLDS: "The caller's cache stays as it was, and each step copies all that is held.",
        REFUTED: "The caller's cache does not stay as it was, or less is copied than is held.",
    },
    "The clone's layers concatenate, so each step moves every byte held so far into new storage; the read-only "
    "forward moves none of the past.",
    "bytes are counted by storage: a tensor that changed its address was copied whole",
)
def clone_cost(bench: Bench) -> Settled:
    figures: dict[str, Any] = {}
    holds = True
    for length in (64, 256):
        ids = bench.ids(length + COPIED_STEPS)
        state = bench.state(ids[:, :length])
        for name in ("cloned", "manual"):
            try:
                one = decoder(bench.loaded, state, CacheConfig(name))
            except UnsupportedModel:
                continue
            before = one.fingerprint(digest=True)
            for i in range(COPIED_STEPS):
                one.step(ids[:, length + i : length + i + 1])
            share = one.bytes_copied / COPIED_STEPS / state.kv_bytes
            isolated = one.fingerprint(digest=True) == before
            figures[f"{name}_{length}_bytes_per_step"] = one.bytes_copied // COPIED_STEPS
            figures[f"{name}_{length}_share_of_cache_per_step"] = share
            figures[f"{name}_{length}_caller_unchanged"] = isolated
            if name == "cloned":
                holds = holds and isolated and share >= 1
    return Settled(HOLDS if holds else REFUTED, figures)


@claim(
    "The manual forward reproduces the model's logits while the past stays bit-identical.",
    Layout(
        {
            "served": "this model is served by the manual forward",
            "verdict": "verdict beside the model's own run",
            "max_abs_diff": "largest difference of a logit",
            "noise_floor": "noise floor of that",
            "error_against_float64": "error against float64",
            "plain_error_against_float64": "that of the model without a cache",
            "top1_agreement": "steps with the same most likely token, share",
            "past_bit_identical": "the past is bit-identical",
            "bytes_of_the_past_copied": "bytes of the past copied",
        }
    ),
    because="Same tokens, and an error against float64 of the size of the model's own; not one byte of the past "
    "changed.",
    conditions=f"{JUDGED_STEPS} teacher-forced steps after 96 tokens",
)
def manual_forward(bench: Bench) -> Settled:
    cfg, ids = bench.session.cfg, bench.ids(96)
    state = bench.state(ids)
    cache, _ = bench.prefilled(ids)
    live = drive.Uninterrupted(bench.loaded, cache, state)
    reference = drive.drive(live, Sampler(cfg.sampling), JUDGED_STEPS)
    try:
        manual = decoder(bench.loaded, state, CacheConfig("manual"))
    except UnsupportedModel as problem:
        return Settled(DEPENDS, {"served": False}, UNSERVED, str(problem))
    before = manual.fingerprint(digest=True)
    path = drive.drive(manual, Sampler(cfg.sampling), JUDGED_STEPS, follow=reference.fed)
    judged = judge(bench.loaded, state, reference, path, cfg.compare)
    untouched = manual.fingerprint(digest=True) == before
    good = judged.verdict in ("exact", "equivalent") and untouched
    figures = {
        "verdict": judged.verdict,
        "max_abs_diff": judged.metrics["max_abs_diff"],
        "noise_floor": judged.noise["max_abs_diff"],
        "error_against_float64": judged.oracle["restored"],
        "plain_error_against_float64": judged.oracle["plain"],
        "top1_agreement": judged.metrics["top1_agreement"],
        "past_bit_identical": untouched,
        "bytes_of_the_past_copied": manual.bytes_copied,
    }
    past = "bit-identical" if untouched else "another one"
    answer = (
        f"{judged.verdict.capitalize()} to the model's own run, and the past is {past} afterwards."
    )
    return Settled(HOLDS if good else REFUTED, figures, answer)


@claim(
    "Tokens past the attention window are masked out although they are in the cache.",
    Layout(
        {
            "window": "attention window, tokens",
            "tokens_seen": "tokens read",
            "held_by_a_cache_without_the_config": "tokens held by a cache that keeps everything",
            "held_by_a_cache_with_the_config": "tokens held by a cache built from the config",
            "shift_when_tokens_past_the_window_are_damaged": "shift when tokens past the window are damaged, noise floors",
            "shift_when_tokens_inside_are_damaged": "shift when tokens inside it are damaged, noise floors",
            "same_logits_from_both_caches": "both caches give the same logits",
        }
    ),
    {
        HOLDS: "They are in the cache, and damaging them changes nothing.",
        DEPENDS: "On the cache: one that keeps everything masks them out, one built from the config drops them.",
        REFUTED: "Tokens past the window are attended to, or those inside it are not.",
    },
    "In a cache that keeps everything they are there and masked out: damaging them changes nothing. A cache built "
    "from the config drops them, so they are not in it at all.",
)
def sliding_window(bench: Bench) -> Settled:
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
    past, within = bench.shift(outside, clean), bench.shift(inside, clean)
    figures = {
        "window": WINDOW,
        "tokens_seen": 48,
        "held_by_a_cache_without_the_config": 48,
        "held_by_a_cache_with_the_config": length,
        "shift_when_tokens_past_the_window_are_damaged": past,
        "shift_when_tokens_inside_are_damaged": within,
        "same_logits_from_both_caches": bench.shift(again, clean) <= BEYOND,
    }
    masked = past <= BEYOND < within
    verdict = REFUTED if not masked else DEPENDS if length < 48 else HOLDS
    model = f"{bench.session.cfg.model.architecture}: small and seeded, with a window of {WINDOW} tokens"
    return Settled(verdict, figures, model=model)


@claim(
    "Pruning is linear in memory; coherence drops when it is too aggressive.",
    Layout(
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
    ),
    because="The bytes follow the number of kept tokens exactly, and the distribution of the next tokens moves "
    "further from the unpruned one as fewer are kept.",
    conditions=f"policy sink_window, {NEW} teacher-forced tokens after {PRUNED}",
)
def prune_quality(bench: Bench) -> Settled:
    ids = bench.ids(PRUNED + NEW)
    state, following = bench.state(ids[:, :PRUNED]), ids[:, PRUNED:]
    everywhere = torch.arange(ids.shape[1], device=ids.device)[None]
    expected = bench.loaded.forward(ids, everywhere)[:, PRUNED:]
    figures: dict[str, Any] = {"tokens": PRUNED, "kv_bytes": state.kv_bytes}
    shares, kl = [], []
    try:
        for name, ratio in zip(KEPT, RATIOS, strict=True):
            chosen = policy(option("prune", "sink_window", ratio=ratio, sinks=4))
            small = chosen.prune(state) if ratio < 1 else state
            logits = decoder(bench.loaded, small, CacheConfig("manual")).step(following)
            measured = compare(logits, expected, following.roll(-1, 1))
            shares.append(small.kv_bytes / state.kv_bytes)
            kl.append(measured["kl_mean"])
            figures[f"{name}_bytes_share"] = shares[-1]
            figures[f"{name}_kl_mean_nats"] = kl[-1]
            figures[f"{name}_top1_agreement"] = measured["top1_agreement"]
    except UnsupportedModel as problem:
        return Settled(DEPENDS, figures, UNSERVED, str(problem))
    linear = all(abs(s - r) < 0.02 for s, r in zip(shares, RATIOS, strict=True))
    drops = kl[-1] > 10 * max(kl[0], 1e-9) and kl[-1] > kl[1]
    figures["memory_linear"], figures["coherence_drops"] = linear, drops
    answers = {
        HOLDS: f"Bytes follow the kept tokens; the mean KL goes from {kl[1]:.2g} nats at {RATIOS[1]:.0%} to "
        f"{kl[-1]:.2g} at {RATIOS[-1]:.0%}.",
        DEPENDS: f"On which half: memory is {'' if linear else 'not '}linear, coherence "
        f"{'drops' if drops else 'does not drop'}.",
        REFUTED: "Memory is not linear, and coherence does not drop.",
    }
    verdict = HOLDS if linear and drops else DEPENDS if linear or drops else REFUTED
    return Settled(verdict, figures, answers[verdict])
