"""The past that a run goes on from is held against what its ids give, whether a step attends to it or not."""

from dataclasses import replace

import pytest
import torch

import harness
from harness.fault import edit
from harness.pipeline import judge

TEXT = "let k be 5 . the bird sang in the tree . the old man walked to the river ."


@pytest.fixture(scope="module")
def tiny():
    return harness.load_model("tiny")


def asleep(tiny):
    """One token of the last layer is another thought's, to which none of the next steps attends."""
    state, other = (harness.capture_text(tiny, text) for text in (TEXT, TEXT.replace("5", "8")))
    *whole, last = state.layers
    segment, theirs = last.segments[0], other.layers[-1].segments[0]
    key, value = segment.key.clone(), segment.value.clone()
    key[:, :, 4], value[:, :, 4] = theirs.key[:, :, 4], theirs.value[:, :, 4]
    spoilt = replace(last, segments=(replace(segment, key=key, value=value),))
    return replace(state, layers=(*whole, spoilt))


def test_a_token_that_nothing_attends_to_is_still_judged(tiny, tmp_path, monkeypatch):
    state = asleep(tiny)
    harness.save_state(state, tmp_path / "s")
    back = harness.load_state(tmp_path / "s", tiny)  # its last token is replayed, and proves itself
    assert "k is 8" in "".join(harness.resume(tiny, back, " what is k ?", steps=4))
    made = harness.judge(tiny, back, steps=8)
    assert made.verdict == "drifted" and "token 4 in layer 1" in made.reason, made
    assert made.diagnosis["cause"] != "cache" and made.diagnosis["token"] == 4
    monkeypatch.setattr(judge, "sleeper", lambda *_: None)
    assert harness.judge(tiny, back, steps=8).verdict == "equivalent"


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
    assert "`commit`" in made.diagnosis["evidence"]


def test_a_past_that_was_edited_on_purpose_says_so_itself(tiny):
    state = asleep(tiny)
    said = state.with_layers(state.layers, edited="one token is another's")
    assert harness.judge(tiny, said, steps=8).verdict == "equivalent"


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
        assert said in made.reason and said in made.diagnosis["evidence"]
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
