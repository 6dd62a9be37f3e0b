"""Positions after pruning: every cache against one uncached masked pass, and where reindexing is
the same as never having seen the dropped tokens."""

from dataclasses import replace

import pytest
import torch

from harness.attention.turns import turns
from harness.cache.registry import decoder
from harness.capture import keys_alone, positions_of
from harness.capture.observe import observing, received
from harness.config import CacheConfig
from harness.errors import UnsupportedModel
from harness.pipeline.prune import moves
from harness.prune.positions import length_as_position, reindexed
from harness.prune.registry import names, policy

from .conftest import build, ids_of, settings, take

NEXT = torch.tensor([ids_of(6, 9)])


def continued(loaded, state, ids, cache, chunk=1):
    """Logits `[batch, n, vocab]` of `ids` fed after `state`, `chunk` at a time."""
    runner = decoder(loaded, state, CacheConfig(name=cache))
    return torch.cat([runner.step(part) for part in ids.split(chunk, 1)], 1), runner


def masked_pass(loaded, whole, small, ids):
    """The truth about `original` positions: one float64 pass over every token, in which only the new
    ones cannot see what each layer, or each of its KV heads, dropped. Independent of any cache."""
    model = loaded.oracle.loaded.model
    tokens = torch.cat([whole.token_ids, ids], 1)
    mask = torch.cat([whole.attention_mask, torch.ones_like(ids)], 1)
    positions = positions_of(mask)
    new = ids.shape[1]
    hooks = []
    for module in model.modules():
        index = getattr(module, "layer_idx", None)
        if index is None or "mask" not in str(module.forward.__code__.co_varnames):
            continue
        layer = small.layers[index]
        key, query = positions[:, None, :], positions[:, :, None]
        seen = (key >= 0) & (key <= query)
        if layer.window:
            seen = seen & (key > query - layer.window)
        held = layer.positions if layer.per_head else layer.positions[:, None]
        kept = (positions[:, None, :, None] == held[:, :, None, :]).any(-1)
        kept[..., -new:] = True
        seen = seen[:, None].repeat(1, kept.shape[1], 1, 1)
        seen[:, :, -new:] &= kept[:, :, None, :]
        seen |= torch.eye(tokens.shape[1], dtype=torch.bool)  # a padding query sees itself
        seen = seen.repeat_interleave(model.config.num_attention_heads // seen.shape[1], 1)
        hook = lambda m, a, k, seen=seen: (a, {**k, "attention_mask": seen})  # noqa: E731
        hooks.append(module.register_forward_pre_hook(hook, with_kwargs=True))
    try:
        return loaded.oracle.forward(tokens, positions, keep=new)
    finally:
        for hook in hooks:
            hook.remove()


def error(found, exact):
    return float((found.double() - exact).abs().max())


CACHES = ("cloned", "dynamic", "deepcopy", "view", "manual")
FAMILIES = {"llama": {}, "gemma3_text": {"layers": 6, "sliding_window": 12}, "gpt2": {}}


@pytest.mark.parametrize("given", [{"name": "sink_window"}, {"name": "knorm", "per_head": False}, {"name": "knorm"}, {"name": "knorm", "budget": "adaptive"}], ids=str)  # fmt: skip
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("rows", [[30], [30, 17]])
def test_gaps_are_seen_as_gaps_by_every_cache(given, family, rows):
    """Batch, GQA, sliding layers, padding, heads that hold other tokens or fewer: the same as one
    masked pass, within twice the rounding of the library's own cached run."""
    loaded = build(family, **FAMILIES[family])
    whole = take(loaded, [ids_of(n, n) for n in rows]).state
    small = policy(settings(tokens=10, **given)).prune(whole)
    heads = given["name"] == "knorm" and "per_head" not in given
    assert any(layer.per_head for layer in small.layers) == heads
    new = NEXT.expand(len(rows), -1)
    exact = masked_pass(loaded, whole, small, new)
    unpruned = masked_pass(loaded, whole, whole, new)
    plain, _ = continued(loaded, whole, new, "cloned")
    ways = (plain, continued(loaded, whole, new, "cloned", 4)[0])
    floor = max(error(way, unpruned) for way in ways)
    slides = any(layer.window for layer in small.layers)
    for cache in (*CACHES, *(() if slides else ("static",))):
        for chunk in (1, 4):
            found, _ = continued(loaded, small, new, cache, chunk)
            assert error(found, exact) <= 2 * floor, (cache, chunk)
    assert error(plain, exact) > 100 * floor  # the twin: not dropping them is something else
    wrong = replace(small, next_position=small.next_position - 3)
    found, _ = continued(loaded, wrong, new, "cloned")
    assert error(found, exact) > 100 * floor


@pytest.mark.parametrize("cache", ["cloned", "manual"])
def test_a_pruned_state_can_be_committed_and_pruned_again(cache):
    loaded = build()
    state = take(loaded, [ids_of(30), ids_of(25, 1)]).state
    for step in range(5):
        state = policy(settings("knorm", tokens=12)).prune(state)
        _, runner = continued(loaded, state, NEXT[:, step : step + 1].expand(2, -1), cache)
        state = runner.commit()
        assert state.kept_tokens == 13 and state.next_position.tolist() == [31 + step, 26 + step]
        assert [sum(e["segments"]) for e in state.documents["kv_format"]["layers"]] == [13, 13]


@pytest.mark.parametrize("name", sorted(set(names()) - {"chain"}))
def test_a_budget_of_everything_changes_nothing(name):
    loaded = build()
    with observing(loaded, 0 if name == "heavy_hitter" else 32) as seen:
        whole = received(take(loaded, [ids_of(30), ids_of(25, 1)]).state, seen)
    for how in ("original", "reindexed"):
        small = policy(settings(name, ratio=1.0)).prune(whole)
        if how == "reindexed":
            small = reindexed(small, moves(loaded, whole))
        for cache in ("cloned", "manual"):
            new = NEXT.expand(2, -1)
            before, _ = continued(loaded, whole, new, cache)
            after, _ = continued(loaded, small, new, cache)
            assert torch.equal(before, after)


def alone(loaded, ids):
    """A state in which only `ids` was ever seen."""
    return take(loaded, [ids]).state


def moved(loaded, whole, name, **given):
    return reindexed(policy(settings(name, **given)).prune(whole), moves(loaded, whole))


@pytest.mark.parametrize("layers", [1, 3])
@pytest.mark.parametrize("name", ["keep_last", "random"])
def test_where_reindexing_equals_never_having_seen_the_rest(layers, name):
    """Layer 0's keys and values depend on a token and its place alone, so there the identity holds
    for any choice. Deeper layers have read what was dropped: there it does not hold, unless nothing
    before a kept token was dropped (a kept prefix), which is the next test."""
    loaded = build(layers=layers)
    ids = ids_of(40)
    whole = take(loaded, [ids]).state
    alike = {"tokens": 12, "shared": True, "per_head": False if name == "random" else None}
    small = moved(loaded, whole, name, **alike)
    places = policy(settings(name, **alike)).prune(whole).layers[0].positions[0]
    only = alone(loaded, [ids[p] for p in places])
    assert small.next_position.tolist() == only.next_position.tolist() == [12]
    floor = error(*(k.layers[0].key for k in (take(loaded, [ids[:12]], chunk=5).state, alone(loaded, ids[:12]))))  # fmt: skip
    gaps = [error(a.key, b.key.double()) for a, b in zip(small.layers, only.layers, strict=True)]
    scale = float(only.layers[0].key.abs().max())
    assert gaps[0] <= max(4 * floor, 8 * torch.finfo(torch.float32).eps * scale)
    assert torch.equal(small.layers[0].value, only.layers[0].value)
    a, _ = continued(loaded, small, NEXT, "manual")
    b, _ = continued(loaded, only, NEXT, "manual")
    exact = loaded.oracle.forward(torch.cat([only.token_ids, NEXT], 1), torch.arange(18)[None], keep=6)  # fmt: skip
    if layers == 1:
        assert error(a, exact) <= 3 * error(b, exact)
    else:
        assert min(gaps[1:]) > 100 * gaps[0] and error(a, exact) > 100 * error(b, exact)


def test_a_kept_prefix_is_the_same_at_every_depth():
    loaded = build(layers=3)
    ids = ids_of(40)
    whole = take(loaded, [ids]).state
    small = moved(loaded, whole, "keep_last", tokens=12, protect=12)
    only = alone(loaded, ids[:12])
    for a, b in zip(small.layers, only.layers, strict=True):
        assert torch.equal(a.positions, b.positions)
        assert error(a.key, b.key.double()) <= 1e-5 * float(b.key.abs().max())


@pytest.mark.parametrize("architecture", ["llama", "gemma3_text", "cohere", "gpt_neox", "phi"])
def test_keys_turn_as_the_model_itself_would_turn_them(architecture):
    """Two bases, interleaved layout, partly rotated heads: found by probing, checked far away."""
    extra = {"layers": 6, "sliding_window": 12} if architecture == "gemma3_text" else {}
    if architecture in ("gpt_neox", "phi"):
        extra = {"num_attention_heads": 4, "num_key_value_heads": 4, "partial_rotary_factor": 0.5}
    loaded = build(architecture, **extra)
    how = turns(loaded.model, lambda p: keys_alone(loaded, 5, p), 50)
    assert {t.layout for t in how} == {"interleaved" if architecture == "cohere" else "half"}
    if architecture == "gemma3_text":
        assert len({tuple(t.frequencies.tolist()) for t in how}) == 2
    at = torch.tensor([[300]])
    for index, (here, there) in enumerate(zip(keys_alone(loaded, 9, 300), keys_alone(loaded, 9, 17), strict=True)):  # fmt: skip
        turned = how[index](here, at, torch.tensor([[17]]))
        assert error(turned, there.double()) <= 1e-5 * float(there.abs().max())
        by_one = how[index](here, at, torch.tensor([[18]]))
        assert error(by_one, there.double()) > 1e-2 * float(there.abs().max())


def test_frequencies_that_follow_the_length_are_refused_where_they_have_changed():
    """Near the start these keys turn as any do: the largest position that matters is asked too."""
    rope = {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 4.0}
    loaded = build.__wrapped__(rope_parameters=rope, max_position_embeddings=16)
    near = turns(loaded.model, lambda p: keys_alone(loaded, 5, p), 12)
    assert {turn.layout for turn in near} == {"half"}
    with pytest.raises(UnsupportedModel, match="depend on the length"):
        turns(loaded.model, lambda p: keys_alone(loaded, 5, p), 60)


def test_learned_positions_are_refused_and_alibi_needs_no_turning():
    loaded = build("gpt2")
    whole = take(loaded, [ids_of(20)]).state
    with pytest.raises(UnsupportedModel, match="learned positions"):
        moves(loaded, whole)
    loaded = build("bloom", seed=1)
    whole = take(loaded, [ids_of(20)]).state
    assert {t.layout for t in moves(loaded, whole)} == {"still"}


def test_alibi_by_place_needs_reindexing():
    """Bloom counts by place in the cache: gaps are refused, a closed window is the true thing."""
    loaded = build("bloom", layers=1, seed=1)
    ids = ids_of(20)
    whole = take(loaded, [ids]).state
    small = policy(settings("sink_window", tokens=8)).prune(whole)
    with pytest.raises(UnsupportedModel, match="reindexed"):
        continued(loaded, small, NEXT, "cloned")
    closed = reindexed(small, moves(loaded, whole))
    places = small.layers[0].positions[0].tolist()
    only = alone(loaded, [ids[p] for p in places])
    a, _ = continued(loaded, closed, NEXT, "cloned")
    b, _ = continued(loaded, only, NEXT, "cloned")
    assert torch.equal(a, b)


def test_sliding_layers_end_where_full_layers_end():
    loaded = build("gemma3_text", layers=6, sliding_window=12)
    whole = take(loaded, [ids_of(30), ids_of(20, 1)]).state
    small = moved(loaded, whole, "knorm", tokens=16)
    assert small.next_position.tolist() == [16, 16]
    for layer in small.layers:
        assert bool((layer.positions[..., -1] == 15).all())
        assert bool((layer.positions.diff(dim=-1) == 1).all())
    padded = take(loaded, [ids_of(30), ids_of(6, 1)]).state
    small = moved(loaded, padded, "knorm", tokens=16)
    assert small.next_position.tolist() == [16, 6]
    for layer in small.layers:
        assert layer.positions[0, ..., -1].unique().tolist() == [15]
        assert layer.positions[1, ..., -1].unique().tolist() == [5]
        assert bool((layer.positions.diff(dim=-1) > 0).all())
        assert bool(((layer.positions[1] >= 0).sum(-1) == 6).all())


def test_the_naive_way_turns_nothing():
    """Length taken for position: positions are counted anew, keys stay turned to their old places."""
    loaded = build()
    whole = take(loaded, [ids_of(40)]).state
    small = policy(settings("sink_window")).prune(whole)
    naive, right = length_as_position(small), reindexed(small, moves(loaded, whole))
    for a, b, c in zip(naive.layers, small.layers, right.layers, strict=True):
        assert torch.equal(a.key, b.key) and torch.equal(a.positions, c.positions)
        assert not torch.equal(a.key, c.key)
    assert naive.next_position.tolist() == right.next_position.tolist() == [20]
