"""The step with fixed shapes is the eager step: over growth, windows, branches and left padding."""

import warnings

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from harness.cache.manual.captured import recordable
from harness.cache.registry import decoder

from .test_decoders import built, captured, near, settings

GPT2 = {"n_embd": 64, "n_layer": 2, "n_head": 4, "n_positions": 64, "num_key_value_heads": 4}
KINDS = {
    "llama": {},
    "gpt2": GPT2,
    "gemma3_text": {
        "sliding_window": 8,
        "layer_types": ["sliding_attention", "full_attention"],
        "query_pre_attn_scalar": 16,
    },
    "mistral": {"sliding_window": 24},
}
PLAN = [
    1,
    *[1] * 10,
    3,
    *[1] * 12,
]  # tokens per step; the tails of eight branches grow at 8, 16 and 24


@pytest.fixture(scope="module")
def models():
    return {kind: built(kind, **values) for kind, values in KINDS.items()}


def both(loaded, state, branches, plan=PLAN):
    """An eager decoder and one with fixed shapes, fed the same; whether all logits are near."""
    eager, fixed = (decoder(loaded, state, settings("manual", branches=branches)) for _ in range(2))
    fixed.capture(record=loaded.device.type == "cuda")
    draw = torch.Generator().manual_seed(4)
    alike = True
    for new in plan:
        ids = torch.randint(3, 96, (state.batch * branches, new), generator=draw)
        one, other = eager.step(ids), fixed.step(ids)
        assert one.shape == other.shape
        alike = alike and bool(near(one, other))
    return eager, fixed, alike


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch, branches", [(1, 1), (1, 8), (2, 4)])
def test_fixed_shapes_change_nothing_but_the_rounding(models, kind, batch, branches):
    state = captured(models[kind], batch=batch).state
    before = [(t.data_ptr(), t._version) for _, t in state.tensors()]
    eager, fixed, alike = both(models[kind], state, branches)
    assert alike
    assert fixed.bytes_copied == eager.bytes_copied and (fixed.bytes_copied > 0) == (branches > 1)
    assert fixed.kv_bytes == eager.kv_bytes
    one, other = eager.commit(branches - 1), fixed.commit(branches - 1)
    assert torch.equal(one.token_ids, other.token_ids)
    assert torch.equal(one.next_position, other.next_position)
    for a, b in zip(one.layers, other.layers, strict=True):
        assert a.seen == b.seen and torch.equal(a.positions, b.positions)
        assert near(a.key, b.key) and near(a.value, b.value)
    assert [(t.data_ptr(), t._version) for _, t in state.tensors()] == before


def test_several_segments_and_a_pruned_past_keep_their_positions(models):
    """A committed state has two segments; without its first layer's middle it has a gap as well."""
    from dataclasses import replace

    loaded = models["gemma3_text"]
    first = decoder(loaded, captured(loaded).state, settings("manual"))
    for token in (5, 6, 7, 8):
        first.step(torch.tensor([[token]]))
    state = first.commit()
    gone = [
        replace(layer, segments=tuple(replace(s, key=s.key[:, :, ::2], value=s.value[:, :, ::2],
                                              positions=s.positions[:, ::2]) for s in layer.segments))
        for layer in state.layers
    ]  # fmt: skip
    for held in (state, state.with_layers(tuple(gone))):
        assert both(loaded, held, 2, [1] * 12)[2]


def test_what_lies_in_unused_room_is_never_seen(models):
    state = captured(models["llama"]).state
    _, fixed, _ = both(models["llama"], state, 1, [1, 1])
    for tail in fixed.memory.tails:
        for buffer in tail.reserve(1):
            buffer[:, :, tail.length :] = 1e4
    alone = decoder(models["llama"], state, settings("manual"))
    fed = torch.cat(fixed.fed, 1)
    alone.step(fed)
    step = torch.tensor([[9]])
    assert near(fixed.step(step), alone.step(step))


class NothingIsRead(TorchDispatchMode):
    """Refuses what cannot be recorded: numbers that Python reads from tensors or sends to them."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.overloadpacket.__name__
        assert name not in ("_local_scalar_dense", "is_nonzero", "equal", "lift_fresh"), name
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("kind", KINDS)
def test_between_growths_no_number_leaves_the_device(models, kind):
    """Any such read would make recording fail on CUDA, or freeze what it saw."""
    state = captured(models[kind]).state
    for branches in (1, 4):
        _, fixed, _ = both(models[kind], state, branches, [1, 1])
        room = fixed.captured._room
        with NothingIsRead(), torch.no_grad():
            room.run(fixed.captured._forward)
        eager = decoder(models[kind], state, settings("manual"))
        with pytest.raises(AssertionError), NothingIsRead():
            eager.step(torch.tensor([[5]]))


def test_a_step_nobody_can_record_is_not_recorded(models):
    assert recordable(models["gpt2"].model) and recordable(models["gemma3_text"].model)
    growing = built(rope_parameters={"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0})
    assert not recordable(growing.model)


def test_where_recording_fails_the_step_goes_on_and_says_so(models):
    """On a machine without CUDA recording does fail, which is as good a failure as any."""
    if torch.cuda.is_available():
        pytest.skip("recording works here")
    loaded = models["llama"]
    state = captured(loaded).state
    plain, fixed = (decoder(loaded, state, settings("manual")) for _ in range(2))
    fixed.capture(record=True)
    with pytest.warns(RuntimeWarning, match=r"cache\.capture=false"):
        for token in (5, 6):
            ids = torch.tensor([[token]])
            assert near(fixed.step(ids), plain.step(ids))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ids = torch.tensor([[7]])
        assert near(fixed.step(ids), plain.step(ids))


def test_on_a_cpu_nothing_is_captured_unless_asked(models):
    assert (
        decoder(models["llama"], captured(models["llama"]).state, settings("manual")).captured
        is None
    )


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("batch, branches", [(1, 1), (1, 8), (2, 4)])
@pytest.mark.parametrize("dtype, bound", [(torch.float32, 1e-4), (torch.bfloat16, 0.1)])
def test_on_cuda_a_replay_is_the_eager_step(kind, batch, branches, dtype, bound):
    loaded = built(kind, **KINDS[kind])
    loaded.model.to("cuda", dtype)
    state = captured(loaded, batch=batch).state
    eager = decoder(loaded, state, settings("manual", branches=branches, capture=False))
    fixed = decoder(loaded, state, settings("manual", branches=branches))
    assert eager.captured is None and fixed.captured is not None
    draw = torch.Generator().manual_seed(4)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # a recording that fails warns
        for new in PLAN:
            ids = torch.randint(3, 96, (batch * branches, new), generator=draw)
            assert (eager.step(ids) - fixed.step(ids)).abs().max() < bound
    assert fixed.captured.record
