"""The past that a run goes on from is held against what its ids give, whether a step attends to it or not."""

from dataclasses import replace

import pytest
import torch

import harness
from harness.compare.checks import PASSED, Check
from harness.fault import edit
from harness.pipeline import judge
from harness.present.messages import worded

TEXT = "let k be 5 . the bird sang in the tree . the old man walked to the river ."


@pytest.fixture(scope="module")
def tiny():
    return harness.load_model("tiny")


def asleep(tiny, token=4):
    """One token of the last layer is another thought's, to which none of the next steps attends."""
    state, other = (harness.capture_text(tiny, text) for text in (TEXT, TEXT.replace("5", "8")))
    *whole, last = state.layers
    segment, theirs = last.segments[0], other.layers[-1].segments[0]
    key, value = segment.key.clone(), segment.value.clone()
    key[:, :, token], value[:, :, token] = theirs.key[:, :, 4], theirs.value[:, :, 4]
    spoilt = replace(last, segments=(replace(segment, key=key, value=value),))
    return replace(state, layers=(*whole, spoilt))


def test_a_token_that_nothing_attends_to_is_still_judged(tiny, tmp_path, monkeypatch):
    state = asleep(tiny)
    harness.save_state(state, tmp_path / "s")
    back = harness.load_state(tmp_path / "s", tiny)  # its last token is replayed, and proves itself
    assert "k is 8" in "".join(harness.resume(tiny, back, " what is k ?", steps=4))
    made = harness.judge(tiny, back, steps=8)
    assert made.verdict == "drifted" and "token 4 in layer 1" in worded(made.reason), made
    assert made.diagnosis["cause"] != "cache" and made.diagnosis["token"] == 4
    monkeypatch.setattr(judge, "stored", lambda *_: Check("stored", PASSED))
    assert harness.judge(tiny, back, steps=8).verdict == "equivalent"


@pytest.mark.parametrize("token", [0, -1])
def test_the_first_and_the_last_row_are_asked_too(tiny, token) -> None:
    state = asleep(tiny, token)
    made = harness.judge(tiny, state, steps=2)
    (check,) = [c for c in made.checks if c.name == "stored"]
    assert check.outcome == "failed" and check.figures["token"] == token % state.tokens


def test_a_cache_that_hands_on_another_past_is_told_as_that(tiny, monkeypatch):
    """Its logits are right: only whoever goes on from the next snapshot would notice."""
    from harness.cache.cloned import Cloned

    honest = Cloned.commit

    def spoilt(self, *args):
        state = honest(self, *args)
        return edit.layers(state, key=lambda k: k if k.shape[2] < 9 else torch.zeros_like(k))

    state = harness.capture_text(tiny, TEXT)
    assert harness.judge(tiny, state, steps=4, cache="cloned").verdict in ("exact", "equivalent")
    monkeypatch.setattr(Cloned, "commit", spoilt)
    made = harness.judge(tiny, state, steps=4, cache="cloned")
    assert made.verdict == "drifted" and made.diagnosis["cause"] == "cache", made
    (found,) = [check for check in made.checks if check.outcome == "failed"]
    assert (found.name, found.code) == ("appended", "rewritten")


CLAIMS = {
    "edited": ("kv_format", {"edited": "one token is another's"}),
    "rounded": ("kv_format", {"rounded_to": "float32"}),
    "narrower": ("kv_format", {"rounded_to": "bfloat16"}),
    "quantized": ("kv_format", {"quantized": [{}]}),
    "coarse codes": ("kv_format", {"quantized": [{"quantizer": "int2", "bits": 2, "codes": "opened"}]}),
    "another device": ("proof", {"device": "cuda"}),
    "a wide floor": ("proof", {"logits": 1e3, "kv": 1e3}),
}  # fmt: skip


@pytest.mark.parametrize("claim", CLAIMS)
def test_no_claim_of_a_snapshot_decides_how_it_is_judged(tiny, claim) -> None:
    name, fields = CLAIMS[claim]
    healthy = harness.capture_text(tiny, TEXT)
    assert harness.judge(tiny, healthy.document(name, **fields), steps=4).good
    made = harness.judge(tiny, asleep(tiny).document(name, **fields), steps=4)
    assert not made.good and made.verdict not in ("exact", "equivalent"), made
    assert any(c.outcome == "failed" and c.figures["token"] == 4 for c in made.checks)


def test_a_narrower_type_is_read_off_the_numbers_and_not_off_a_claim(tiny) -> None:
    state = harness.capture_text(tiny, TEXT)
    narrow = edit.layers(state, *[lambda t: t.bfloat16().float()] * 2)
    for told in (narrow, narrow.document("kv_format", rounded_to="bfloat16")):
        stored = {c.name: c for c in harness.judge(tiny, told, steps=4).checks}["stored"]
        assert stored.outcome == "passed" and stored.figures["off"] < 8, stored


@pytest.mark.parametrize("how", ["exact", "entries", "one", "seventh", "sign"])
def test_recurrent_state_is_compared_number_by_number(how) -> None:
    model = harness.load_model("tiny_hybrid")
    state = harness.capture_text(model, TEXT)
    index = next(la.index for la in state.layers if la.recurrent)
    layer = state.layers[index]
    name = max(layer.recurrent, key=lambda n: layer.recurrent[n].numel())
    tensor = layer.recurrent[name].clone()
    flat = tensor.view(-1)
    by = {"entries": (slice(0, 16), 1.5), "one": (slice(101, 102), 2.0), "seventh": (slice(0, None, 7), 1.002),
          "sign": (slice(100, 150), -1.0)}  # fmt: skip
    if how in by:
        which, times = by[how]
        flat[which] *= times
    layers = list(state.layers)
    layers[index] = replace(layer, recurrent={**layer.recurrent, name: tensor})
    made = harness.judge(model, replace(state, layers=tuple(layers)), steps=4)
    assert made.good is (how == "exact"), made.checks


@pytest.fixture(scope="module")
def experts(tiny):
    """The shipped model with two equal experts in place of each MLP: it computes the same, through a router."""
    from transformers import MixtralConfig, MixtralForCausalLM

    base, c = tiny.model, tiny.model.config
    names = ("vocab_size", "hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads",
             "num_key_value_heads", "max_position_embeddings", "rms_norm_eps", "head_dim", "rope_parameters",
             "tie_word_embeddings", "bos_token_id", "eos_token_id", "pad_token_id")  # fmt: skip
    given = {k: getattr(c, k) for k in names if hasattr(c, k)}
    config = MixtralConfig(**given, num_local_experts=2, num_experts_per_tok=2, sliding_window=None)
    torch.manual_seed(0)
    model = MixtralForCausalLM(config).eval()
    weights, dense = model.state_dict(), base.state_dict()
    for key in weights:
        if key in dense:
            weights[key] = dense[key]
    for i in range(c.num_hidden_layers):
        gate, up, down = (
            dense[f"model.layers.{i}.mlp.{n}_proj.weight"] for n in ("gate", "up", "down")
        )
        more = {"experts.gate_up_proj": torch.stack([torch.cat([gate, up])] * 2),
                "experts.down_proj": torch.stack([down] * 2)}  # fmt: skip
        for name, tensor in more.items():
            (key,) = [k for k in weights if k.startswith(f"model.layers.{i}.") and k.endswith(name)]
            weights[key] = tensor
    model.load_state_dict(weights)
    model.tie_weights()
    return harness.wrap(model, tiny.tokenizer)


def test_a_token_of_another_thought_is_seen_where_tokens_are_routed(experts) -> None:
    assert harness.judge(experts, harness.capture_text(experts, TEXT), steps=4).good
    made = harness.judge(experts, asleep(experts), steps=4)
    assert not made.good and "token 4 in layer 1" in worded(made.reason), made


def test_codes_are_near_to_their_own_tokens(tiny) -> None:
    state = harness.capture_text(tiny, TEXT)
    for quantizer in ("int8", "int4", "kivi"):
        small, wrong = (harness.quantize_state(one, quantizer) for one in (state, asleep(tiny)))
        assert harness.judge(tiny, small, steps=4).good, quantizer
        made = harness.judge(tiny, wrong, steps=4)
        assert not made.good, (quantizer, made.checks)


def test_what_a_pruned_state_read_since_is_computed_again(tiny) -> None:
    """Its later rows saw only what was kept: not those of a whole past, and not unasked either."""
    small = harness.prune_state(tiny, harness.capture_text(tiny, TEXT), "snapkv", ratio=0.5)
    gone_on = harness.resume(tiny, small, " what is k ?", steps=6)
    "".join(gone_on)
    grown = gone_on.state
    assert harness.judge(tiny, grown, steps=4).good
    layer = grown.layers[-1]
    segment = layer.segments[-1]
    value = segment.value.clone()
    value[:, :, 2] = value[:, :, 1]
    wrong = replace(layer, segments=(*layer.segments[:-1], replace(segment, value=value)))
    made = harness.judge(tiny, replace(grown, layers=(*grown.layers[:-1], wrong)), steps=4)
    assert not made.good and made.itself["verdict"] == "drifted", made.itself


def test_a_batch_is_judged_row_by_row_and_its_padding_is_not(tiny):
    state = harness.capture_text(tiny, [TEXT, "let m be 3 . the dog ran ."])
    assert harness.judge(tiny, state, steps=4).verdict in ("exact", "equivalent")
    pad = edit.layers(
        state, value=lambda v: v.clone().index_fill_(2, v.new_tensor([0]).long(), 7.0)
    )
    rows = [
        replace(la, segments=tuple(replace(s, value=s.value.clone()) for s in la.segments))
        for la in state.layers
    ]
    for la, spoilt in zip(rows, pad.layers):
        la.segments[0].value[1, :, 0] = spoilt.segments[0].value[1, :, 0]  # a place of padding
    assert int(state.attention_mask[1, 0]) == 0
    assert harness.judge(tiny, replace(state, layers=tuple(rows)), steps=4).verdict != "drifted"
    rows[-1].segments[0].value[1, :, -2] += 1e-3
    made = harness.judge(tiny, replace(state, layers=tuple(rows)), steps=4)
    assert made.verdict in ("drifted", "diverged")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize(
    "model", ["tiny", "tiny_gpt2", "tiny_gemma3", "tiny_hybrid", "tiny_sparse"]
)
def test_a_past_that_was_written_token_by_token_is_healthy(model, dtype):
    """Its steps round otherwise than the prefill of the run that it is held against."""
    loaded = harness.load_model(model, dtype=dtype)
    state = harness.capture_text(loaded, TEXT)
    gone_on = harness.resume(loaded, state, steps=24)
    "".join(gone_on)
    made = harness.judge(loaded, gone_on.state, steps=4)
    assert made.verdict in ("exact", "equivalent"), made


def scaled(state, layer: int, part: str, times: float):
    """One head of `state` off by a factor, as by a scale that was lost or applied twice."""
    layers, of = list(state.layers), state.layers[layer]
    (segment,) = of.segments
    kept = getattr(segment, part).clone()
    kept[:, 0] = (kept[:, 0].float() * times).to(kept.dtype)
    layers[layer] = replace(of, segments=(replace(segment, **{part: kept}),))
    return state.with_layers(tuple(layers))


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("part", ["key", "value"])
def test_a_head_that_is_off_by_a_hundredth_is_seen_in_half_precision(dtype, part) -> None:
    """No number of it is off by more than rounding may be: all of them are, in one direction."""
    model = harness.load_model("tiny", dtype=dtype)
    state = harness.capture_text(model, TEXT * 2)
    made = harness.judge(model, scaled(state, 1, part, 1.01), steps=4)
    assert made.verdict == "drifted", made
    assert made.diagnosis["layer"] == 1 and made.diagnosis["head"] == 0
    if dtype == "bfloat16":
        said = f"the {part}s of layer 1, head 0 are 1.01 times what they should be"
        assert said in worded(made.reason) and said in made.diagnosis["evidence"]
        assert made.diagnosis["cause"] == "scale"


def test_a_head_that_was_rounded_further_is_seen_in_half_precision() -> None:
    model = harness.load_model("tiny", dtype="bfloat16")
    state = harness.capture_text(model, TEXT * 2)
    (segment,) = state.layers[0].segments
    value = segment.value.clone()
    value[:, 0] = value[:, 0].to(torch.float8_e5m2).to(value.dtype)
    first = replace(state.layers[0], segments=(replace(segment, value=value),))
    made = harness.judge(model, state.with_layers((first, *state.layers[1:])), steps=4)
    assert made.verdict == "drifted" and made.diagnosis["cause"] == "head", made
    assert "head 0 are off by" in made.diagnosis["evidence"]


@pytest.mark.parametrize("option", ["tiny", "tiny_gpt2", "tiny_gemma3"])
def test_healthy_half_precision_stays_within_rounding_however_it_was_filled(option) -> None:
    """By one prefill, by single steps, in rows of several lengths."""
    model = harness.load_model(option, dtype="bfloat16")
    state = harness.capture_text(model, TEXT)
    grown = harness.resume(model, state, TEXT, steps=24, sampling="sample", seed=1)
    list(grown)
    rows = harness.capture_text(model, [TEXT, "let m be 3 . the dog ran ."])
    for healthy in (state, grown.state, rows):
        assert harness.judge(model, healthy, steps=4).verdict in ("exact", "equivalent")
