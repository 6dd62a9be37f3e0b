"""The oracle computes what a whole float64 copy computes, over weights that are never copied."""

import copy
from types import SimpleNamespace

import pytest
import torch
from torch.overrides import TorchFunctionMode

from harness.config import ModelConfig
from harness.model import recurrence
from harness.model.loaded import Loaded, load
from harness.model.oracle import InFloat64, Widened, _widest

F32, F64 = (torch.finfo(dtype).eps for dtype in (torch.float32, torch.float64))
SMALL = {
    "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "vocab_size": 96,
    "initializer_range": 0.1, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
EXPERTS = {
    "num_local_experts": 4,
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 32,
}
FAMILIES = {
    "llama": {},
    "tied": {"tie_word_embeddings": True},
    "gemma2": {"sliding_window": 16, "query_pre_attn_scalar": 16},
    "mixtral": EXPERTS,
    "gpt_oss": {**EXPERTS, "layer_types": ["sliding_attention", "full_attention"]},
    "qwen3_next": {**EXPERTS, "layer_types": ["linear_attention", "full_attention"]},
    "lfm2": {"layer_types": ["conv", "full_attention"]},
    "mamba": {"state_size": 8},
    "gpt2": {"num_key_value_heads": 4},
    "xglm": {"d_model": 64, "attention_heads": 4, "num_layers": 2, "ffn_dim": 96},
}  # fmt: skip
HYBRID = {"mamba_d_state": 8, "mamba_dt_rank": 8, "use_mamba_kernels": False, "attn_layer_period": 2,
          "attn_layer_offset": 1, "num_experts": 1, "num_experts_per_tok": 1}  # fmt: skip


def built(family: str, dtype: str = "float32", **extra) -> Loaded:
    kind = "llama" if family == "tied" else family
    values = {**SMALL, **FAMILIES.get(family, {}), **extra}
    return load(ModelConfig(name=kind, architecture=kind, config=values), dtype, "cpu")


class Copied(TorchFunctionMode):
    """The naive twin's mode: a whole float64 copy needs only the upcasts by hand turned around."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.float:
            return args[0].double()
        swap = {torch.float32: torch.float64, torch.bfloat16: torch.float64}
        args = tuple(swap.get(a, a) if isinstance(a, torch.dtype) else a for a in args)
        given = {
            k: swap.get(v, v) if isinstance(v, torch.dtype) else v
            for k, v in (kwargs or {}).items()
        }
        if func is torch.full:
            given.setdefault("dtype", torch.float64)
        return func(*args, **given)


def copied(loaded: Loaded, ids: torch.Tensor) -> torch.Tensor:
    """Logits of a second model, all of its weights widened beforehand."""
    twin = copy.deepcopy(loaded.model).double()
    for module in twin.modules():
        if getattr(getattr(module, "config", None), "_experts_implementation", None):
            module.config._experts_implementation_internal = "eager"
    with Copied():
        return Loaded(twin, None, {}, 0.0).once(ids, torch.arange(ids.shape[1])[None])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_it_computes_what_a_whole_float64_copy_computes(family: str, dtype: str) -> None:
    loaded = built(family, dtype)
    ids = torch.arange(5, 41)[None]
    positions = torch.arange(36)[None]
    before = {name: t.clone() for name, t in loaded.model.state_dict().items()}
    kept = loaded.oracle.forward(ids, positions)
    again = loaded.oracle.forward(ids, positions)
    loaded.oracle._weights.room = 0
    loaded.oracle._weights._held.clear()
    widened = loaded.oracle.forward(ids, positions)
    whole = copied(loaded, ids)
    assert whole.dtype == kept.dtype == torch.float64
    assert (kept - whole).abs().max() <= 4 * torch.finfo(torch.float64).eps * whole.abs().max()
    assert torch.equal(kept, again) and torch.equal(kept, widened)
    for name, tensor in loaded.model.state_dict().items():
        assert tensor.dtype == before[name].dtype and torch.equal(tensor, before[name])


def test_a_hidden_step_in_float32_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The corrupted twin: the upcasts that models do by hand, left as they are."""
    loaded = built("llama")
    ids = torch.arange(5, 41)[None]
    whole = copied(loaded, ids)
    monkeypatch.setattr("harness.model.oracle._swapped", lambda value: value)
    monkeypatch.setattr("harness.model.oracle._CASTS", set())
    off = loaded.oracle.forward(ids, torch.arange(36)[None])
    assert (off - whole).abs().max() > F32 / 32 * whole.abs().max()


@pytest.mark.parametrize("cast", ["float", "half", "bfloat16"])
def test_positions_cast_by_hand_become_float64_as_weights_do(cast: str) -> None:
    """Transformers 5.17 multiplies its frequencies by `position_ids.float()`, as a matrix."""
    with InFloat64(Widened({})):
        angles = torch.ones(3, 1) @ getattr(torch.arange(4)[None], cast)()
        assert getattr(torch.ones(2, dtype=torch.bool), cast)().sum() == 2
    assert angles.double().dtype == angles.dtype and torch.equal(
        angles[0], torch.arange(4.0).double()
    )


def test_one_weight_at_a_time_is_widened() -> None:
    loaded = built("llama", num_hidden_layers=6, vocab_size=64)
    loaded.oracle._weights.room = 0
    alive, most = [], 0
    real = type(loaded.oracle._weights).of

    import weakref

    def watched(self, tensor):
        nonlocal most
        wide = real(self, tensor)
        if id(tensor) in self._weights:
            alive.append(weakref.ref(wide))
            most = max(most, sum(t.nbytes for r in alive if (t := r()) is not None))
        return wide

    oracle = loaded.oracle
    mode = InFloat64(oracle._weights)
    mode._wide = lambda tensor, given=True: watched(oracle._weights, tensor)
    with mode:
        oracle.loaded.once(torch.arange(5, 25)[None], torch.arange(20)[None])
    sizes = sorted(p.numel() * 8 for p in loaded.model.parameters())
    assert alive and most <= sizes[-1] + sizes[-2]
    assert most < sum(sizes) / 4


@pytest.mark.parametrize("family", ["llama", "gemma2", "qwen3_next", "lfm2"])
def test_a_cached_pass_in_chunks_is_the_uncached_pass(family: str) -> None:
    loaded = built(family)
    ids = torch.arange(5, 45)[None]
    positions = torch.arange(40)[None]
    cache, parts = loaded.oracle.new_cache(), []
    for start, stop in ((0, 21), (21, 30), (30, 31), (31, 40)):
        parts.append(
            loaded.oracle.forward(ids[:, start:stop], positions[:, start:stop], None, cache)
        )
    whole = loaded.oracle.forward(ids, positions)
    # other orders of the same float64 sums; measured 12 roundings
    assert (torch.cat(parts, 1) - whole).abs().max() < 64 * F64 * whole.abs().max()


def test_recurrence_that_starts_anew_is_measured_and_fed_one_by_one() -> None:
    """Jamba ignores its stored state when several tokens are fed; what is fed in chunks continues."""
    loaded = built("jamba", **HYBRID)
    assert loaded.one_at_a_time
    ids, positions = torch.arange(5, 45)[None], torch.arange(40)[None]
    whole = loaded.oracle.forward(ids, positions, keep=10)
    for run, eps in ((loaded.forward, F32), (loaded.oracle.forward, F64)):
        cache = loaded.oracle.new_cache()
        run(ids[:, :30], positions[:, :30], None, cache=cache, keep=1)
        rest = run(ids[:, 30:], positions[:, 30:], None, cache=cache, keep=0)
        assert rest.shape[1] == 10
        assert (rest.double() - whole).abs().max() < 64 * eps * whole.abs().max()
    cache = loaded.oracle.new_cache()
    loaded.oracle.once(ids[:, :30], 1, cache)
    chunk = loaded.oracle.once(ids[:, 30:], 0, cache, at=30)
    assert (chunk - whole).abs().max() > 1e-3 * whole.abs().max()


@pytest.mark.parametrize("family", ["qwen3_next", "lfm2", "llama"])
def test_recurrence_that_continues_is_fed_in_chunks(family: str) -> None:
    assert not recurrence.starts_anew(built(family).oracle)


def test_a_tensor_that_took_the_place_of_a_freed_one_is_not_mistaken_for_it() -> None:
    """Ids of freed tensors are given again: what was widened once must not stand for another."""
    weight = torch.ones(3)
    wide = Widened({id(weight): weight})
    assert torch.equal(wide.of(weight), weight.double())
    number = id(weight)
    del weight
    fresh = [torch.full((5,), float(i)) for i in range(200)]  # one of them would get the old id
    assert all(id(t) != number for t in fresh)
    assert all(torch.equal(wide.of(t), t.double()) for t in fresh)


def test_the_cost_of_a_model_whose_layers_differ_is_its_widest_layer_s() -> None:
    """Gemma 3n has a size for each."""
    even, wide = (
        _widest(SimpleNamespace(intermediate_size=sizes), "intermediate_size", 8)
        for sizes in ([96, 96], (96, 960))
    )
    assert (even, wide) == (96, 960)
    assert _widest(SimpleNamespace(intermediate_size=None), "intermediate_size", 8) == 8
    assert _widest(SimpleNamespace(), "intermediate_size", 8) == 8
