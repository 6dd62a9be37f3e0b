"""The decode step as one program is the step that llama.py writes out, and leaves alone what it cannot do."""

from dataclasses import replace

import pytest
import torch

from harness.attention.kernels.cpu import program
from harness.cache.manual import whole
from harness.cache.registry import decoder
from harness.pipeline import drive, yardstick

from .test_decoders import built, captured, near, settings

KINDS = {
    "llama": {},
    "biased": {"kind": "llama", "attention_bias": True},
    "every head its own": {"kind": "llama", "num_key_value_heads": 4},
    "odd heads": {"hidden_size": 48, "kind": "llama", "num_attention_heads": 3, "num_key_value_heads": 1, "head_dim": 6},
    "mistral": {"sliding_window": 24},
    "qwen2": {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    "qwen3": {},
    "large": {"kind": "llama", "hidden_size": 320, "intermediate_size": 700, "head_dim": 64},
    "growing RoPE": {"kind": "llama",
                     "rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 2.0}},
}  # fmt: skip
STEPS = [1] * 12 + [3] + [1] * 6
WAYS = [("manual", {}), ("manual", {"capture": False}), ("view", {})]


def made(name, dtype=torch.float32):
    values = dict(KINDS[name])
    loaded = built(values.pop("kind", name), **values)
    loaded.model.to(dtype)
    for module in loaded.model.modules():
        if getattr(module, "bias", None) is not None:
            torch.nn.init.normal_(module.bias)
    return loaded


def fed(batch, plan=STEPS):
    draw = torch.Generator().manual_seed(4)
    return [torch.randint(3, 96, (batch, new), generator=draw) for new in plan]


def both(loaded, state, branches=1, plan=STEPS):
    """Logits of the program's decoder and of the written-out one, and how often the program served."""
    ours, written = (
        decoder(loaded, state, settings("manual", branches=branches, capture=capture))
        for capture in (True, False)
    )
    served = []
    step = ours._whole
    ours._whole = lambda *given: served.append(step(*given)) or served[-1]
    ids = fed(state.batch * branches, plan)
    logits = [torch.cat([one.step(i) for i in ids], 1) for one in (ours, written)]
    return ours, written, logits, sum(s is not None for s in served)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("branches", [1, 2, 6])
def test_the_program_is_the_written_step(name, branches):
    loaded = made(name)
    state = captured(loaded).state
    before = [(t.data_ptr(), t._version) for _, t in state.tensors()]
    ours, written, (found, plain), served = both(loaded, state, branches)
    assert served == STEPS.count(1)
    assert near(found, plain)
    one, other = ours.commit(branches - 1), written.commit(branches - 1)
    assert torch.equal(one.token_ids, other.token_ids)
    for a, b in zip(one.layers, other.layers, strict=True):
        assert torch.equal(a.positions, b.positions) and a.key.dtype == b.key.dtype
        assert near(a.key, b.key) and near(a.value, b.value)
    assert [(t.data_ptr(), t._version) for _, t in state.tensors()] == before


@pytest.mark.parametrize("name", ["llama", "qwen3", "mistral"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_nearer_to_float64_than_the_library(name, dtype):
    """Over all tokens together, where no single number decides."""
    loaded = made(name, dtype)
    found = captured(loaded)
    ids = torch.cat(fed(1, [1] * 20), 1)
    ours = decoder(loaded, found.state, settings("manual"))
    logits = torch.cat([ours.step(i) for i in ids.split(1, 1)], 1).double()
    live = drive.Uninterrupted(loaded, found.live, found.state)
    plain = torch.cat([live.step(i) for i in ids.split(1, 1)], 1).double()
    exact = yardstick.alone(loaded.oracle, found.state, ids)
    assert (logits - exact).abs().mean() < (plain - exact).abs().mean()
    assert (logits - exact).abs().max() <= 2 * (plain - exact).abs().max()


def apart(tensor):
    """The same numbers, not one after the other."""
    return torch.stack([tensor, tensor + 1], -1)[..., 0]


class Own(torch.nn.Parameter):
    """A weight that computes in its own way."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        out = super().__torch_function__(func, types, args, kwargs or {})
        return out * 2 if func is torch.nn.functional.linear else out


def strided_past(model, state):
    segments = [
        tuple(replace(s, key=apart(s.key), value=apart(s.value)) for s in layer.segments)
        for layer in state.layers
    ]
    pairs = zip(state.layers, segments, strict=True)
    return state.with_layers(tuple(replace(layer, segments=new) for layer, new in pairs))


def edit(change):
    """A change to the second layer's attention and MLP, its norm, and the head."""

    def made(model, state):
        layer = model.model.layers[1]
        change(layer.self_attn, layer.mlp, layer.input_layernorm, model.lm_head)

    return made


UNSERVED = {
    "padding": None,
    "a past with gaps in memory": strided_past,
    "a hooked projection": edit(lambda a, m, n, h: m.up_proj.register_forward_hook(
        lambda _, __, out: out + 1)),
    "a wrapped projection": edit(lambda a, m, n, h: setattr(a.o_proj, "forward", torch.zeros_like)),
    "a hooked activation": edit(lambda a, m, n, h: m.act_fn.register_forward_hook(
        lambda _, __, out: out * 0)),
    "another activation": edit(lambda a, m, n, h: setattr(m, "act_fn", torch.nn.GELU())),
    "a norm with gaps": edit(lambda a, m, n, h: setattr(n.weight, "data", apart(n.weight.data))),
    "one number as a norm": edit(lambda a, m, n, h: setattr(
        n.weight, "data", torch.ones(1).expand(64))),
    "a bias with gaps": edit(lambda a, m, n, h: setattr(
        a.q_proj.bias, "data", apart(a.q_proj.bias.data))),
    "a gate within a larger matrix": edit(lambda a, m, n, h: setattr(
        m.gate_proj.weight, "data", torch.randn(m.gate_proj.weight.shape[0], 99)[:, :64])),
    "a head by columns": edit(lambda a, m, n, h: setattr(
        h.weight, "data", h.weight.data.T.contiguous().T)),
    "a weight of its own kind": edit(lambda a, m, n, h: setattr(
        a.k_proj, "weight", Own(a.k_proj.weight.data))),
}  # fmt: skip


@pytest.mark.parametrize("name", UNSERVED)
def test_what_it_cannot_do_is_left_to_the_written_step(name):
    loaded = made("biased")
    state = captured(loaded, batch=2 if name == "padding" else 1).state
    if UNSERVED[name] is not None:
        state = UNSERVED[name](loaded.model, state) or state
    _, _, (found, plain), served = both(loaded, state)
    assert served == 0 and torch.equal(found, plain)


@pytest.mark.parametrize(
    "name", [n for n in UNSERVED if n not in ("padding", "a past with gaps in memory")]
)
def test_what_changes_between_two_steps_is_seen(name):
    """The model was questioned once, at the first step; every step asks whether it is still the same."""
    loaded = made("biased")
    state = captured(loaded).state
    ours, token = decoder(loaded, state, settings("manual")), torch.tensor([[7]])
    for _ in range(2):
        ours.step(token)
    first = ours.memory.prepared
    assert whole._served(loaded.model, token, ours.memory) is first, "looked up once"
    UNSERVED[name](loaded.model, state)
    assert whole._served(loaded.model, token, ours.memory) is None
    ours.step(token)


@pytest.mark.parametrize("default", [torch.bfloat16, torch.float64])
@pytest.mark.parametrize("name, keys", WAYS)
def test_torchs_default_dtype_is_not_asked(default, name, keys):
    loaded = made("large")
    state = captured(loaded).state

    def run():
        one = decoder(loaded, state, settings(name, **keys))
        return torch.cat([one.step(ids) for ids in fed(1, [1] * 3)], 1)

    expected, before = run(), torch.get_default_dtype()
    try:
        torch.set_default_dtype(default)
        assert near(run(), expected)
    finally:
        torch.set_default_dtype(before)


@pytest.mark.parametrize("name, keys", WAYS)
@pytest.mark.parametrize("tokens", [1, 3])
def test_a_step_that_fails_half_way_leaves_no_trace(name, keys, tokens):
    loaded = built()
    state = captured(loaded).state
    one, other = (decoder(loaded, state, settings(name, **keys)) for _ in range(2))
    for done in (one, other):
        done.step(torch.tensor([[5]]))

    def interrupted(*_):
        raise KeyboardInterrupt

    hook = loaded.model.model.layers[1].mlp.down_proj.register_forward_hook(interrupted)
    with pytest.raises(KeyboardInterrupt):
        one.step(torch.full((1, tokens), 9))
    hook.remove()
    for token in (6, 7):
        assert torch.equal(one.step(torch.tensor([[token]])), other.step(torch.tensor([[token]])))
    assert torch.equal(one.commit().token_ids, other.commit().token_ids)


def test_a_changed_weight_is_seen_at_once():
    loaded = built()
    state = captured(loaded).state
    ours, written = (
        decoder(loaded, state, settings("manual", capture=c)) for c in (True, False)
    )  # fmt: skip
    for change in (None, "in place", "replaced", "epsilon"):
        layer = loaded.model.model.layers[0]
        if change == "in place":
            layer.self_attn.q_proj.weight.data.mul_(1.5)
        elif change == "replaced":
            layer.mlp.down_proj.weight = torch.nn.Parameter(torch.randn(64, 96))
        elif change == "epsilon":
            layer.input_layernorm.variance_epsilon = 0.5
        ids = torch.tensor([[7]])
        assert near(ours.step(ids), written.step(ids))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_number_of_threads_changes_no_bit(dtype):
    loaded = made("large", dtype)
    state = captured(loaded).state
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            ours = decoder(loaded, state, settings("manual", branches=5))
            found.append(torch.cat([ours.step(ids) for ids in fed(5, [1] * 4)], 1))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(found[0], found[1]) and torch.equal(found[0], found[2])


@pytest.mark.parametrize("phase", range(9))
def test_a_phase_left_out_would_be_noticed(monkeypatch, phase):
    """The twin of the first test: without any one phase of a layer the logits are far away."""
    loaded, left = made("llama"), []
    whole_phase = program.Program._phase

    def without(self, jobs, entries):
        self._count = getattr(self, "_count", -1) + 1
        kept = jobs if self._count != 10 + phase or left.append(1) else 0
        whole_phase(self, kept, entries)

    monkeypatch.setattr(program.Program, "_phase", without)
    torch_empty = torch.empty
    monkeypatch.setattr(whole.torch, "empty", lambda *a, **k: torch_empty(*a, **k).fill_(0.5))
    _, _, (found, plain), _ = both(loaded, captured(loaded).state, plan=[1, 1])
    assert left and not near(found, plain, 10_000)


def test_a_tail_of_which_one_half_grew_alone_is_mended():
    loaded = built()
    state = captured(loaded).state
    one, other = (decoder(loaded, state, settings("manual", branches=2)) for _ in range(2))
    for token in (5, 6, 7):
        ids = torch.tensor([[token]])
        assert near(one.step(ids), other.step(ids))
        for tail in one.memory.tails:  # as if memory had run out between the two
            wide = torch.zeros(2, 2, 4 * tail._key.shape[2], 16)
            wide[:, :, : tail.length] = tail.key
            if token != 6:
                tail._key = wide
            else:
                tail._value, wide[:, :, : tail.length] = wide, tail.value
