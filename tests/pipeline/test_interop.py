"""A model, a cache and `generate` of the user's own: the same tokens as never interrupted."""

import copy
import functools
from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoModelForSeq2SeqLM,
    AutoTokenizer,
    DynamicCache,
    LlamaForCausalLM,
    StaticCache,
)

import harness
from harness.errors import InputProblem, RestoreRefused, UnsupportedModel
from harness.fault import edit
from harness.model.build import SHIPPED

STEPS = 8


@pytest.fixture(scope="module")
def mine():
    model = AutoModelForCausalLM.from_pretrained(SHIPPED["tiny"]).eval()
    return model, AutoTokenizer.from_pretrained(SHIPPED["tiny"])


def filled(model, ids: torch.Tensor) -> DynamicCache:
    cache = DynamicCache(config=model.config)
    with torch.no_grad():
        model(ids, past_key_values=cache)
    return cache


def test_a_cache_goes_out_and_in_and_generates_the_same(mine, tmp_path) -> None:
    model, tokenizer = mine
    ids = torch.randint(3, 1100, (1, 40), generator=torch.Generator().manual_seed(1))
    whole = model.generate(ids, max_new_tokens=STEPS, do_sample=False)[0, 40:].tolist()
    cache = filled(model, ids[:, :39])
    before = [(la.keys.clone(), la.keys.data_ptr()) for la in cache.layers]
    wrapped = harness.wrap(model, tokenizer)
    harness.save_state(harness.from_cache(wrapped, cache, ids[:, :39]), tmp_path / "mine")
    assert all(
        torch.equal(la.keys, keys) and la.keys.data_ptr() == place
        for la, (keys, place) in zip(cache.layers, before, strict=True)
    )
    back = harness.to_cache(harness.load_state(tmp_path / "mine", wrapped), model)
    again = model.generate(ids, past_key_values=back, max_new_tokens=STEPS, do_sample=False)
    assert again[0, 40:].tolist() == whole


def test_what_torch_wraps_is_taken_out_of_its_wrapper_and_a_model_without_a_head_is_refused(
    mine,
) -> None:
    model, tokenizer = mine
    compiled = torch.compile(torch.nn.DataParallel(model), backend="eager")
    wrapped = harness.wrap(compiled, tokenizer)
    assert wrapped.model is model
    state = harness.capture_text(wrapped, "let k be 5 .")
    assert (
        harness.to_cache(state, torch.compile(model, backend="eager")).get_seq_length()
        == state.tokens
    )
    with pytest.raises(InputProblem, match=r"LlamaModel, has no head.*AutoModelForCausalLM"):
        harness.wrap(model.model, tokenizer)
    with pytest.raises(InputProblem, match="no model of the library's"):
        harness.wrap(torch.nn.DataParallel(torch.nn.Linear(2, 2)), tokenizer)


@pytest.fixture
def alone(tmp_path) -> Iterator[None]:
    """A group of one process, over a file."""
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def test_a_replica_is_taken_out_of_its_wrapper_and_shards_are_refused(mine, alone) -> None:
    model, tokenizer = mine
    wrapped = harness.wrap(torch.nn.parallel.DistributedDataParallel(model), tokenizer)
    assert wrapped.model is model
    sharded = fully_shard(copy.deepcopy(model), mesh=init_device_mesh("cpu", (1,)))
    with pytest.raises(InputProblem, match="spread over processes"):
        harness.wrap(sharded, tokenizer)


def test_an_encoder_is_told_at_the_door(mine) -> None:
    small = {
        "d_model": 32,
        "d_kv": 8,
        "d_ff": 32,
        "num_layers": 1,
        "num_heads": 4,
        "vocab_size": 1144,
    }
    model = AutoModelForSeq2SeqLM.from_config(AutoConfig.for_model("t5", **small)).eval()
    with pytest.raises(InputProblem, match="T5ForConditionalGeneration, has an encoder"):
        harness.wrap(model, mine[1])


def test_a_cache_with_a_graph_on_it_becomes_a_state_that_can_be_copied(mine) -> None:
    model, tokenizer = mine
    ids = torch.randint(3, 1100, (1, 12), generator=torch.Generator().manual_seed(1))
    cache = model(ids, use_cache=True).past_key_values  # no torch.no_grad
    assert cache.layers[0].keys.requires_grad
    state = harness.from_cache(harness.wrap(model, tokenizer), cache, ids)
    other = copy.deepcopy(state)
    assert torch.equal(other.layers[0].key, cache.layers[0].keys)
    assert state.layers[0].key.data_ptr() == cache.layers[0].keys.data_ptr()  # shared, as ever


def test_the_logits_are_those_of_the_last_token(mine) -> None:
    model, tokenizer = mine
    ids = torch.randint(3, 1100, (2, 12), generator=torch.Generator().manual_seed(2))
    wrapped = harness.wrap(model, tokenizer)
    state = harness.from_cache(wrapped, filled(model, ids), ids)
    with torch.no_grad():
        expected = model(ids).logits[:, -1]
    assert (state.logits - expected).abs().max() < 1e-4
    assert harness.judge(wrapped, state, steps=4).verdict in ("exact", "equivalent")


def test_ids_that_did_not_fill_the_cache_are_refused(mine) -> None:
    model, tokenizer = mine
    ids = torch.randint(3, 1100, (1, 12), generator=torch.Generator().manual_seed(3))
    wrapped = harness.wrap(model, tokenizer)
    cache = filled(model, ids)
    with pytest.raises(InputProblem, match="holds 12 tokens, input_ids 11"):
        harness.from_cache(wrapped, cache, ids[:, :11])
    state = harness.from_cache(wrapped, cache, ids)
    with pytest.raises(UnsupportedModel, match="pruned"):
        harness.to_cache(edit.select(state, torch.arange(3, 12)), model)


def test_the_cache_and_the_ids_of_another_model_are_named(mine) -> None:
    wrapped, ids = harness.wrap(*mine), torch.tensor([[3, 4, 5]])
    with pytest.raises(InputProblem, match="input_ids holds token 2000, but this model knows 1144"):
        harness.from_cache(wrapped, filled(mine[0], ids), torch.tensor([[3, 4, 2000]]))
    config = copy.deepcopy(mine[0].config)
    config.num_key_value_heads = 4
    with pytest.raises(InputProblem, match=r"have 4 KV heads of 64, this model's 2 of 64\. Give"):
        harness.from_cache(wrapped, filled(LlamaForCausalLM(config).eval(), ids), ids)


def test_an_empty_cache_is_told_as_one(mine) -> None:
    model, tokenizer = mine
    ids = torch.tensor([[3, 4, 5]])
    with pytest.raises(InputProblem, match="the cache is empty: no forward filled it"):
        harness.from_cache(harness.wrap(model, tokenizer), DynamicCache(config=model.config), ids)


def test_a_forward_that_hides_its_arguments_is_the_class_s_own_or_told(mine, monkeypatch) -> None:
    model, tokenizer = mine
    own = model.forward
    monkeypatch.setattr(model, "forward", lambda *a, **k: own(*a, **k))
    wrapped = harness.wrap(model, tokenizer)
    state = harness.capture_text(wrapped, "let k be 5 .")
    assert harness.judge(wrapped, state, steps=2).verdict in ("exact", "equivalent")

    class Hiding(type(model)):
        def forward(self, *args, **kwargs):
            return super().forward(*args, **kwargs)

    monkeypatch.setattr(model, "__class__", Hiding)
    with pytest.raises(UnsupportedModel, match=r"Hiding\.forward names none of its arguments"):
        harness.wrap(model, tokenizer)


def turned(logits: torch.Tensor) -> torch.Tensor:
    """Another most likely token wherever there was one."""
    return logits.roll(1, -1)


class Turning(LlamaForCausalLM):
    """A model of one's own that the library's class does most of the work for."""

    def forward(
        self, input_ids=None, attention_mask=None, position_ids=None, past_key_values=None, **more
    ):
        out = super().forward(input_ids, attention_mask, position_ids, past_key_values, **more)
        out.logits = turned(out.logits)
        return out


def negated(forward):
    @functools.wraps(forward)  # so that it passes for the library's by name
    def wrapped(self, *args, **more):
        return -1 * forward(self, *args, **more)

    return wrapped


@pytest.mark.parametrize("own", ["class", "block", "norm"])
def test_a_forward_of_ones_own_is_the_one_that_generates(mine, monkeypatch, own) -> None:
    """What is written out here after the library's code would pass it by, and say other tokens."""
    model, tokenizer = mine
    ids = tokenizer("let k be 5 . the bird sang . what is k ?", return_tensors="pt").input_ids
    plain = model.generate(ids, max_new_tokens=8, do_sample=False)
    if own == "class":
        monkeypatch.setattr(model, "__class__", Turning)
    else:
        kind = type(model.model.layers[0].mlp if own == "block" else model.model.norm)
        monkeypatch.setattr(kind, "forward", negated(kind.forward))
    wrapped = harness.wrap(model, tokenizer)
    state = harness.from_cache(wrapped, filled(model, ids), ids)
    said = harness.resume(wrapped, state, "", steps=8)
    "".join(said)
    mine_said = model.generate(ids, max_new_tokens=8, do_sample=False)
    assert said.ids == mine_said[0, ids.shape[1] :].tolist() and not torch.equal(mine_said, plain)
    assert harness.judge(wrapped, state, steps=4).verdict in ("exact", "equivalent")
    with pytest.raises(UnsupportedModel, match="a class or a forward of its own"):
        harness.judge(wrapped, state, steps=1, cache="manual")


def test_what_is_no_model_gets_no_cache(mine) -> None:
    model, tokenizer = mine
    state = harness.capture_text(harness.wrap(model, tokenizer), "one .")
    with pytest.raises(InputProblem, match="load_model"):
        harness.to_cache(state, "x")


def test_another_model_object_is_refused_and_training_mode_is_told(mine, tmp_path) -> None:
    model, tokenizer = mine
    ids = torch.randint(3, 1100, (1, 12), generator=torch.Generator().manual_seed(3))
    state = harness.from_cache(harness.wrap(model, tokenizer), filled(model, ids), ids)
    harness.save_state(state, tmp_path / "mine")
    other = AutoModelForCausalLM.from_pretrained(SHIPPED["tiny"]).eval()
    harness.load_state(tmp_path / "mine", harness.wrap(other, tokenizer))
    with torch.no_grad():
        other.model.layers[0].self_attn.q_proj.weight[0, 0] += 1
    with pytest.raises(RestoreRefused, match="attention_weights"):
        harness.load_state(tmp_path / "mine", harness.wrap(other, tokenizer))
    with pytest.raises(InputProblem, match=r"model\.eval"):
        harness.wrap(other.train(), tokenizer)


@pytest.mark.parametrize("option", ["tiny", "tiny_gemma3"])
def test_a_static_cache_is_copied_as_far_as_it_is_filled(session, option) -> None:
    wrapped = session(f"model={option}").loaded
    model, tokens = wrapped.model, 40  # beyond the windows of tiny_gemma3
    ids = torch.randint(3, 1100, (2, tokens), generator=torch.Generator().manual_seed(4))
    cache = StaticCache(config=model.config, max_cache_len=tokens + 24)
    with torch.no_grad():
        model(ids, past_key_values=cache)
    static = harness.from_cache(wrapped, cache, ids)
    plain = harness.from_cache(wrapped, filled(model, ids), ids)
    pairs = list(zip(static.layers, plain.layers, strict=True))
    assert [(a.window, a.kept, a.seen) for a, _ in pairs] == [
        (b.window, b.kept, b.seen) for _, b in pairs
    ]
    assert all(torch.equal(a.key, b.key) and torch.equal(a.value, b.value) for a, b in pairs)
    kept = static.layers[0].key.clone()
    with torch.no_grad():
        model(ids[:, :8], past_key_values=cache)  # the library writes into its buffers
    assert torch.equal(static.layers[0].key, kept)
    assert harness.judge(wrapped, static, steps=4).verdict in ("exact", "equivalent")
