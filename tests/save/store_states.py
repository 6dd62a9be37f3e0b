"""States of every layer kind and dtype, made without a model: small, seeded, and full of odd bits."""

from types import MappingProxyType

import torch

from harness.config import option
from harness.save import registry, store
from harness.snapshot.state import FULL, LINEAR, SLIDING, LayerState, Segment, State

AGAIN = store.Access(overwrite=True)


def saved(state, target, options, tell=lambda said: None, access=AGAIN):
    """Save over whatever snapshot is there."""
    return store.save(state, target, options, tell, access)


DTYPES = ("float32", "bfloat16", "float16", "float8_e4m3fn", "float8_e5m2", "float64")
FORMATS = tuple(registry.shipped())


def settings(name="safetensors", **changes):
    return option("save", name, sync=False, **changes)


def noise(seed, shape, dtype):
    """Random bits: every NaN, infinity, negative zero and denormal of the dtype may occur."""
    kind = getattr(torch, dtype)
    count = kind.itemsize
    for size in shape:
        count *= size
    generator = torch.Generator().manual_seed(seed)
    raw = torch.randint(0, 256, (count,), generator=generator, dtype=torch.uint8)
    return raw.view(kind).view(shape) if count else torch.empty(shape, dtype=kind)


def segment(seed, batch, start, stop, dtype, heads=2, head_dim=4):
    shape = (batch, heads, stop - start, head_dim)
    positions = torch.arange(start, stop).expand(batch, -1).contiguous()
    return Segment(noise(seed, shape, dtype), noise(seed + 1, shape, dtype), positions)


def make_state(
    dtype="float32", tokens=12, batch=1, seed=0, window=6, kinds=(FULL, SLIDING, LINEAR)
):
    """A state of `tokens` tokens: one layer of each kind, K/V of random bits."""
    layers = []
    for index, kind in enumerate(kinds):
        if kind == LINEAR:
            held = {
                "conv_states_0": noise(seed + 50 + index, (batch, 8, 3), dtype),
                "recurrent_states_0": noise(seed + 60 + index, (batch, 2, 4, 4), "float32"),
            }
            layers.append(LayerState(index, kind, (), tokens, None, MappingProxyType(held)))
            continue
        start = max(0, tokens - window + 1) if kind == SLIDING else 0
        own = segment(seed + 10 * index, batch, start, tokens, dtype)
        layers.append(LayerState(index, kind, (own,), tokens, window if kind == SLIDING else None))
    ids = torch.randint(0, 99, (batch, tokens), generator=torch.Generator().manual_seed(seed))
    return State(
        layers=tuple(layers),
        token_ids=ids,
        attention_mask=torch.ones_like(ids),
        next_position=torch.full((batch,), tokens),
        logits=noise(seed + 90, (batch, 16), "float32"),
        rng=torch.Generator().manual_seed(seed).get_state(),
        documents=MappingProxyType(documents(layers)),
        tokenizer_files=MappingProxyType({"tokenizer.json": b'{"a": 1}', "extra.txt": b"x" * 99}),
    )


def apart(state):
    """`state` after pruning per KV head: two heads of a full layer hold other tokens, one of them
    fewer, and what they received is recorded (format 2)."""
    from dataclasses import replace

    layers = []
    for layer in state.layers:
        if layer.kind == FULL:
            (whole,) = layer.segments
            kept = whole.tokens - 3
            one, other = torch.arange(3, kept + 3), torch.arange(kept) - 2
            positions = torch.stack([one, other]).expand(state.batch, -1, -1).contiguous()
            cut = Segment(whole.key[:, :, 3:], whole.value[:, :, 3:], positions)
            seen = noise(5, (state.batch, 2, 1, kept), "float32")
            layer = replace(layer, segments=(cut,), received=seen)
        layers.append(layer)
    small = replace(state, layers=tuple(layers))
    pruned = [{"policy": "keydiff", "kept_tokens": layers[0].kept}]
    return small.document("kv_format", layers=described(layers), pruned=pruned)


def documents(layers):
    return {
        "kv_format": {
            "version": 1,
            "dtype": str(next(t for la in layers for _, t in la.tensors()).dtype)[6:],
            "layout": "[batch, kv_heads, tokens, head_dim]",
            "attention_implementation": "sdpa",
            "libraries": {"torch": "2"},
            "layers": described(layers),
        },
        "model_config": {"hidden_size": 8, "name": "ünïcode ✓"},
        "generation": {"sampler": {"kind": "greedy"}, "steps": 0},
    }


def described(layers):
    return [
        {
            "index": la.index,
            "kind": la.kind,
            "window": la.window,
            "seen": la.seen,
            "segments": [s.tokens for s in la.segments],
            "recurrent": sorted(la.recurrent),
            **({"received": True} if la.received is not None else {}),
        }
        for la in layers
    ]


def grown(state, tokens, seed):
    """What a commit makes of `state`: the old segments and one of `tokens` new tokens per layer."""
    from dataclasses import replace

    from harness.cache.base import ending

    start = state.tokens
    layers = []
    for layer in state.layers:
        if not layer.segments:
            layers.append(replace(layer, seen=layer.seen + tokens))
            continue
        like = layer.segments[0].key
        dtype = str(like.dtype).removeprefix("torch.")
        fresh = segment(
            seed + layer.index, like.shape[0], start, start + tokens, dtype, like.shape[1], like.shape[3]
        )  # fmt: skip
        segments = (*layer.segments, fresh)
        more = replace(layer, segments=segments, seen=layer.seen + tokens, received=None)
        layers.append(ending(more, layer.window - 1) if layer.window else more)
    ids = torch.cat([state.token_ids, torch.full((state.batch, tokens), 7)], 1)
    bigger = replace(
        state,
        layers=tuple(layers),
        token_ids=ids,
        attention_mask=torch.ones_like(ids),
        next_position=state.next_position + tokens,
    )
    return bigger.document("kv_format", layers=described(layers))


def raw(tensor):
    return bytes(tensor.detach().contiguous().reshape(-1).view(torch.uint8).numpy())


def assert_same(one, two):
    """Every tensor bit-equal (segments may be cut differently), every document equal but the cuts."""
    assert len(one.layers) == len(two.layers)
    for a, b in zip(one.layers, two.layers, strict=True):
        assert (a.index, a.kind, a.seen, a.window) == (b.index, b.kind, b.seen, b.window)
        assert set(a.recurrent) == set(b.recurrent)
        for part in a.recurrent:
            assert_tensor(a.recurrent[part], b.recurrent[part])
        if a.segments:
            for part in ("key", "value", "positions"):
                assert_tensor(getattr(a, part), getattr(b, part))
        assert (a.received is None) == (b.received is None)
        if a.received is not None:
            assert_tensor(a.received, b.received)
    for name in ("token_ids", "attention_mask", "next_position", "logits", "rng"):
        assert_tensor(getattr(one, name), getattr(two, name))
    assert dict(one.tokenizer_files) == dict(two.tokenizer_files)
    for name in one.documents:
        if name != "kv_format":
            assert one.documents[name] == two.documents[name]


def assert_tensor(a, b):
    assert a.dtype == b.dtype and a.shape == b.shape
    assert raw(a) == raw(b)
