"""Of a model that gives NaN or infinity nothing is captured; where it does, in which dtype, and the remedy."""

import copy
from dataclasses import replace

import pytest
import torch

import harness as api
from harness.capture import capture, finite, pad_left
from harness.capture.finite import check_finite
from harness.errors import InputProblem

KEYS = "model.layers.1.self_attn.k_proj.weight"
VALUES = "model.layers.1.self_attn.v_proj.weight"


def broken(session, name: str, value: float, dtype: torch.dtype = torch.float32):
    """The shipped model with one number of a weight replaced, wrapped."""
    loaded = session().loaded
    model = copy.deepcopy(loaded.model).to(dtype)
    with torch.no_grad():
        model.get_parameter(name)[0, 0] = value
    return api.wrap(model, loaded.tokenizer)


def refused(loaded) -> str:
    ids, mask = pad_left([[5, 6, 7]], pad=0)
    with pytest.raises(InputProblem) as problem:
        capture(loaded, ids, mask, {})
    return str(problem.value)


def test_weights_that_are_no_numbers_are_named(session) -> None:
    for value, called in ((float("nan"), "NaN"), (float("inf"), "infinity")):
        said = refused(broken(session, KEYS, value))
        assert "the keys of layer 1 are not finite after the prefill in float32" in said
        assert said.endswith(
            f"the weights hold {called}, first in {KEYS}. No dtype helps: give weights that are whole."
        )
    said = refused(broken(session, KEYS, float("inf"), torch.float16))  # the file may hold a number
    assert f"first in {KEYS}; beyond 65,504" in said and "unless their file holds infinity" in said


def test_what_overflows_is_refused_by_every_command_with_another_dtype(
    harness, session, place
) -> None:
    loaded = session().loaded
    model = copy.deepcopy(loaded.model)
    with torch.no_grad():
        values = model.get_parameter(VALUES)
        values.mul_(6e4 / values.abs().max())
    model.save_pretrained(place / "mine")
    loaded.tokenizer.save_pretrained(place / "mine")
    mine = ("model=path", "model.path=mine", "dtype=float16")
    for words in (["steps=2"], ["task=save", "text=let k be 5 .", "out=s"], ["task=chat"]):
        done = harness(*mine, *words)
        assert done.code == 2 and "fault of the harness" not in done.out
        assert done.out.count("the values of layer 1 are not finite after the prefill") == 1
        assert "in float16 (infinity)" in done.out and "the weights are finite" in done.out
        assert "Use dtype=bfloat16 or dtype=float32." in done.out
    assert not (place / "s").exists()


def test_padding_may_hold_anything_and_logits_are_looked_at(captured) -> None:
    session, made = captured("text='let k be 5 . the bird sang .'", "prompt.batch=2")
    state, loaded = made.state, session.loaded
    padded = (state.attention_mask[:, None, :, None] == 0).expand_as(state.layers[0].key)
    assert bool(padded.any())
    first, *rest = state.layers
    (segment,) = first.segments

    def holding(where: torch.Tensor):
        key = segment.key.masked_fill(where, torch.nan)
        return state.with_layers((replace(first, segments=(replace(segment, key=key),)), *rest))

    check_finite(loaded, state)
    check_finite(loaded, holding(padded))
    with pytest.raises(InputProblem, match="the keys of layer 0"):
        check_finite(loaded, holding(~padded))
    endless = replace(state, logits=state.logits.clone().fill_diagonal_(-torch.inf))
    with pytest.raises(InputProblem, match=r"the logits .* Use dtype=float64, or check"):
        check_finite(loaded, endless)


def test_weights_in_float8_can_be_looked_at() -> None:
    for value, sound in ((1.0, True), (torch.nan, False)):
        assert finite._finite(torch.tensor([0.5, value]).to(torch.float8_e4m3fn)) is sound


def test_from_python_such_a_state_is_judged_and_not_saved(session, tmp_path) -> None:
    loaded = broken(session, KEYS, float("nan"))
    state = api.capture_text(loaded, "let k be 5 .")
    assert api.judge(loaded, state, steps=2).verdict == "unsound"
    with pytest.raises(InputProblem, match="holds NaN or infinity"):
        api.save_state(state, tmp_path / "s")
