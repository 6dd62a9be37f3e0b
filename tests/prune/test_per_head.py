"""Heads that hold different tokens: attention against naive float64, stores, commits, reindexing."""

from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from harness.attention.parts import Part, Queries
from harness.attention.split import split_attention
from harness.cache.registry import decoder
from harness.config import CacheConfig, SaveConfig
from harness.errors import ConfigProblem, InputProblem, SnapshotInvalid
from harness.pipeline.prune import moves
from harness.prune.base import gathered
from harness.prune.positions import reindexed
from harness.prune.registry import policy
from harness.save import registry, store
from harness.snapshot import manifest as manifests
from harness.snapshot import schema

from .conftest import build, by_hand, ids_of, settings, take

FORMATS = registry.shipped()
NEXT = torch.tensor([ids_of(6, 9)])


def naive(query, key, value, positions, at, scale, window):
    """One query row of one head at a time, float64, over exactly the keys that may be seen."""
    batch, heads, new, _ = query.shape
    out = torch.zeros(batch, heads, new, value.shape[-1], dtype=torch.float64)
    for b in range(batch):
        for h in range(heads):
            kv = h * key.shape[1] // heads
            held = positions[b, kv] if positions.dim() == 3 else positions[b]
            for q in range(new):
                seen = (held >= 0) & (held <= at[b, q])
                if window:
                    seen &= held > at[b, q] - window
                if seen.any():
                    k, v = key[b, kv, seen].double(), value[b, kv, seen].double()
                    out[b, h, q] = torch.softmax(k @ query[b, h, q].double() * scale, 0) @ v
    return out


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@effort(max_examples=25, deadline=None)
@given(data=st.data())
def test_attention_over_what_each_head_holds_is_the_naive_one(dtype, data):
    """Windows, padding, branches, two parts (one per head, one alike): error at most twice that of
    the same naive sum in the working dtype, and of one head's worth of rounding."""
    g = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    kv_heads, group = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 2))
    base, branches = data.draw(st.integers(1, 2)), data.draw(st.integers(1, 2))
    past, tail, new = data.draw(st.integers(1, 30)), data.draw(st.integers(0, 4)), data.draw(st.integers(1, 3))  # fmt: skip
    window = data.draw(st.none() | st.integers(4, 40))
    holes = data.draw(st.integers(0, past - 1))
    batch, total = base * branches, 60
    scores = torch.rand(base, kv_heads, total, generator=g)
    positions = scores.topk(past).indices.sort(-1).values
    positions[:, -1, :holes] = torch.arange(holes) - holes  # the last head keeps fewer
    at = (total + torch.arange(tail + new)).expand(batch, -1)
    k, v = (torch.randn(base, kv_heads, past, 8, generator=g).to(dtype) for _ in range(2))
    kt, vt = (torch.randn(batch, kv_heads, tail + new, 8, generator=g).to(dtype) for _ in range(2))
    query = (3 * torch.randn(batch, kv_heads * group, new, 8, generator=g)).to(dtype)
    parts = [Part.of(k, v, positions), Part.of(kt, vt, at)]
    got = split_attention(query, parts, Queries.of(at[:, tail:]), 0.3, window)
    rows = [t.repeat_interleave(branches, 0) for t in (k, v, positions)]
    together = torch.cat([rows[0], kt], 2), torch.cat([rows[1], vt], 2)
    held = torch.cat([rows[2], at[:, None].expand(-1, kv_heads, -1)], 2)
    exact = naive(query, *together, held, at[:, tail:], 0.3, window)
    assert (got.double() - exact).abs().max() <= 4 * torch.finfo(dtype).eps * exact.abs().max()
    twin = naive(query, *together, held.flip(1), at[:, tail:], 0.3, window)
    if kv_heads > 1 and holes > 2 and window is None:
        assert (twin - exact).abs().max() > 1e-6  # positions of other heads are something else


def stepped(loaded, state, ids, cache):
    runner = decoder(loaded, state, CacheConfig(name=cache))
    return torch.cat([runner.step(part) for part in ids.split(1, 1)], 1), runner.commit()


def pruned(loaded, rows=(30,), **given):
    whole = take(loaded, [ids_of(n, n) for n in rows]).state
    return policy(settings("knorm", tokens=10, **given)).prune(whole)


@pytest.mark.parametrize("how", ["uniform", "pyramid", "adaptive"])
@pytest.mark.parametrize("form", FORMATS)
def test_every_format_brings_heads_back_and_one_more_step_is_the_same(form, how, tmp_path):
    loaded = build(layers=3)
    small = pruned(loaded, (30, 17), budget=how)
    assert any(layer.per_head for layer in small.layers)
    written = store.save(small, tmp_path / "a", SaveConfig(name=form, sync=False))
    assert written["format_version"] == 2
    back, _ = store.load(tmp_path / "a")
    new = NEXT.expand(2, -1)
    for turn in range(2):  # the second time with a tail of tokens that no head dropped
        one, grown = stepped(loaded, small, new[:, 3 * turn : 3 * turn + 3], "manual")
        two, again = stepped(loaded, back, new[:, 3 * turn : 3 * turn + 3], "manual")
        assert torch.equal(one, two)
        manifest = store.save(again, tmp_path / f"b{turn}", SaveConfig(name=form, sync=False))
        assert manifest["lineage"] or form == "memory"
        small, back = grown, store.load(tmp_path / f"b{turn}")[0]
        for (name, a), (other, b) in zip(small.tensors(), back.tensors(), strict=True):
            assert name == other and torch.equal(a, b)


def test_many_small_turns_are_merged_with_what_heads_dropped(tmp_path):
    loaded = build()
    state = pruned(loaded)
    for turn in range(12):
        store.save(state, tmp_path / str(turn), SaveConfig(name="safetensors", sync=False))
        back, _ = store.load(tmp_path / str(turn))
        for a, b in zip(state.layers, back.layers, strict=True):
            assert torch.equal(a.key, b.key) and torch.equal(a.positions, b.positions)
        _, state = stepped(loaded, back, NEXT[:, :1], "manual")


def test_exchanged_heads_are_another_thought():
    """The twin of a sound restore: keys of one head read as those of the other."""
    loaded = build()
    small = pruned(loaded)
    right, _ = stepped(loaded, small, NEXT, "cloned")
    same, _ = stepped(loaded, small, NEXT, "manual")
    layers = tuple(
        replace(la, segments=tuple(replace(s, key=s.key.flip(1)) for s in la.segments))
        for la in small.layers
    )
    wrong, _ = stepped(loaded, replace(small, layers=layers), NEXT, "manual")
    assert (wrong - right).abs().max() > 1000 * (same - right).abs().max()


@pytest.mark.parametrize("how", ["uniform", "adaptive"])
def test_heads_can_be_reindexed(how):
    """Keys turn head by head; all heads end at the cursor, and the caches agree afterwards."""
    loaded = build()
    whole = take(loaded, [ids_of(30), ids_of(17, 1)]).state
    small = policy(settings("knorm", tokens=10, budget=how)).prune(whole)
    closed = reindexed(small, moves(loaded, whole))
    for layer in closed.layers:
        assert bool((layer.positions[..., -1] == closed.next_position[:, None] - 1).all())
        assert bool((layer.positions.diff(dim=-1) == 1)[layer.positions[..., :-1] >= 0].all())
    new = NEXT.expand(2, -1)
    one, _ = stepped(loaded, closed, new, "manual")
    two, _ = stepped(loaded, closed, new, "cloned")
    assert (one - two).abs().max() < 16 * torch.finfo(two.dtype).eps * two.abs().max()


@effort(max_examples=80, deadline=None)
@given(data=st.data())
def test_what_holds_for_budgets_over_layers_and_heads(data):
    """Never above the budget in sum, strictly rising per head, the protected prefix in every head."""
    how = data.draw(st.sampled_from(["pyramid", "adaptive"]))
    batch, heads, layers = (data.draw(st.integers(1, 3)) for _ in range(3))
    tokens = data.draw(st.integers(2, 40))
    lengths = [data.draw(st.integers(1, tokens)) for _ in range(batch)]
    keep = data.draw(st.integers(1, tokens))
    protect = data.draw(st.integers(0, max(keep // 3, 1)))
    g = torch.Generator().manual_seed(data.draw(st.integers(0, 999)))
    state = by_hand(torch.rand(batch, heads, tokens, 4, generator=g), (None,) * layers, lengths)
    chosen = settings("knorm", tokens=keep, budget=how, protect=protect)
    try:
        small = policy(chosen).prune(state)
    except InputProblem:
        assert protect >= keep
        return
    counts = torch.stack(
        [_counts(layer, heads) for layer in small.layers]
    )  # [layers, batch, heads]
    assert bool((counts.sum((0, 2)) <= keep * heads * layers).all())
    if how == "adaptive":
        assert bool((counts.sum(2) <= keep * heads).all())
        full = torch.tensor(lengths) >= keep
        assert bool((counts.sum(2)[:, full] == keep * heads).all())
        assert bool((counts >= torch.tensor(lengths).clamp(max=max(int(0.2 * keep), 1))[:, None]).all())  # fmt: skip
    else:
        assert bool((counts[:-1] >= counts[1:] - 1).all())  # lower layers keep no less
    for layer in small.layers:
        assert bool((layer.positions.diff(dim=-1) > 0).all())
        held = layer.positions if layer.per_head else layer.positions[:, None]
        for row in range(batch):
            wanted = set(range(min(protect, lengths[row])))
            assert all(wanted <= set(h.tolist()) for h in held[row])


def _counts(layer, heads):
    held = layer.positions if layer.per_head else layer.positions[:, None]
    return (held >= 0).sum(-1).expand(-1, heads)


BAD = [
    ({"name": "keep_last", "per_head": True}, ConfigProblem, "per_head=true"),
    ({"name": "keep_last", "budget": "adaptive"}, ConfigProblem, "budget=adaptive"),
    ({"name": "knorm", "budget": "adaptive", "per_head": False}, ConfigProblem, "per_head=false"),
    ({"name": "knorm", "budget": "round"}, ConfigProblem, "prune.budget"),
]


@pytest.mark.parametrize(("keys", "error", "says"), BAD)
def test_what_cannot_choose_per_head_says_so(keys, error, says):
    with pytest.raises(error, match=says):
        policy(settings(**keys)).prune(by_hand(torch.rand(1, 2, 8, 4)))


def test_whole_tokens_cannot_be_chosen_where_heads_differ():
    small = policy(settings("knorm")).prune(by_hand(torch.rand(1, 2, 12, 4)))
    with pytest.raises(InputProblem, match="per KV head"):
        policy(settings("knorm", per_head=False)).prune(small)
    again = policy(settings("keep_last", tokens=2)).prune(small)  # by rank, head by head
    assert torch.equal(again.layers[0].positions, small.layers[0].positions[..., -2:])


def test_an_empty_place_beside_padding_leaves_positions_in_order():
    """The first head keeps padding and fills a place, the second holds real tokens alone."""
    layer = by_hand(torch.rand(1, 2, 6, 4), lengths=[5]).layers[0]
    small = gathered(layer, torch.tensor([[[-1, 0, 4, 5], [2, 3, 4, 5]]]))
    assert small.positions.tolist() == [[[-2, -1, 3, 4], [1, 2, 3, 4]]]
    assert not small.key[0, 0, 0].any() and torch.equal(small.key[0, 0, 2:], layer.key[0, 0, 4:])


def test_a_manifest_says_the_format_it_needs(tmp_path):
    """Heads that differ need format 2; called 1 (or the other way round) the snapshot is refused."""
    loaded = build()
    small = pruned(loaded)
    for state, version in ((small, 2), (take(loaded, [ids_of(9)]).state, 1)):
        written = store.save(state, tmp_path / str(version), SaveConfig(name="safetensors", sync=False))  # fmt: skip
        assert written["format_version"] == version
        other = {**written, "format_version": 3 - version}
        found = schema.faults({**other, "id": manifests.identity(other)})
        assert any("format_version" in f for f in found)


@pytest.mark.parametrize("damage", ["order", "future", "shape"])
def test_positions_of_a_head_are_checked(damage, tmp_path):
    """The corrupted twins: one head's positions out of order, beyond the cursor, of another shape."""
    small = pruned(build())
    segment = small.layers[0].segments[0]
    positions = segment.positions.clone()
    if damage == "order":
        positions[0, 1] = positions[0, 1].flip(0)
    elif damage == "future":
        positions[0, 1, -1] = 30
    else:
        positions = positions[:, :1].repeat(1, 3, 1)
    layer = replace(small.layers[0], segments=(replace(segment, positions=positions),))
    broken = replace(small, layers=(layer, *small.layers[1:]))
    with pytest.raises(SnapshotInvalid):
        store.save(broken, tmp_path / "x", SaveConfig(name="safetensors", sync=False))
