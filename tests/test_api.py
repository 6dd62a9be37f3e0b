"""The Python API: six names, streaming, errors, and rooms that are modules and functions at once."""

import pytest
import torch

import harness
from harness.errors import InputProblem, RestoreRefused, SnapshotInvalid

PROMPT = "let k be 5 . the bird sang in the tree ."


@pytest.fixture(scope="module")
def model():
    return harness.load_model("tiny")


def test_a_session_is_picked_up_where_it_was_left(model, tmp_path) -> None:
    state = harness.capture(model, PROMPT)
    harness.save(state, tmp_path / "mine")
    back = harness.load(tmp_path / "mine", model)
    resumed = harness.resume(model, back, " what is k ?", steps=4)
    assert "".join(resumed) == " k is 5 ."
    assert state.tokens == back.tokens < resumed.state.tokens
    assert harness.compare(model, back).verdict in ("exact", "equivalent")


@pytest.mark.parametrize("cache", ["manual", "cloned", "dynamic"])
def test_every_cache_says_the_same(model, cache) -> None:
    state = harness.capture(model, PROMPT)
    before = state.layers[0].key.clone()
    assert "".join(harness.resume(model, state, " what is k ?", 4, cache=cache)) == " k is 5 ."
    assert torch.equal(state.layers[0].key, before)


def test_a_second_turn_is_written_as_a_segment(model, tmp_path) -> None:
    state = harness.capture(model, PROMPT)
    harness.save(state, tmp_path / "one")
    first = harness.resume(model, harness.load(tmp_path / "one", model), " what is k ?", 4)
    "".join(first)
    manifest = harness.save(first.state, tmp_path / "two")
    back = harness.load(tmp_path / "two", model)
    assert manifest["parent"] and back.token_ids.tolist() == first.state.token_ids.tolist()
    again = "".join(harness.resume(model, back, " what is k ?", 4))
    assert again == " k is 5 ."


def test_sampling_goes_on_with_the_saved_generator(model) -> None:
    state = harness.capture(model, PROMPT, seed=3)
    whole = "".join(harness.resume(model, state, "", 12, sampling="sample", temperature=0.9))
    half = harness.resume(model, state, "", 6, sampling="sample", temperature=0.9)
    start = "".join(half)
    rest = "".join(harness.resume(model, half.state, "", 6, sampling="sample", temperature=0.9))
    assert start + rest == whole


def test_chat_turns_go_through_the_template(model) -> None:
    turns = [{"role": "user", "content": "let k be 5 ."}]
    state = harness.capture(model, turns=turns, policy="chat")
    assert state.documents["prompt_meta"]["policy"] == "chat"


def test_mistakes_are_plain(model, tmp_path) -> None:
    state = harness.capture(model, PROMPT)
    with pytest.raises(InputProblem, match="Did you mean 'temperature'"):
        harness.resume(model, state, sampling="sample", temprature=1)
    with pytest.raises(InputProblem, match="no such directory"):
        harness.load(tmp_path / "nowhere")
    with pytest.raises(InputProblem, match="positions"):
        harness.resume(model, state, steps=100_000)
    manifest = harness.save(state, tmp_path / "s")
    payload = tmp_path / "s" / manifest["tensors"][0]["file"]
    data = bytearray(payload.read_bytes())
    data[-1] ^= 1
    payload.write_bytes(data)
    with pytest.raises(SnapshotInvalid):
        harness.load(tmp_path / "s", model, strict=False)


def test_another_model_is_refused(model, tmp_path, session) -> None:
    harness.save(harness.capture(model, PROMPT), tmp_path / "s")
    other = session("model=tiny_gpt2").loaded
    with pytest.raises(RestoreRefused):
        harness.load(tmp_path / "s", other)


def test_rooms_are_modules_and_functions() -> None:
    from harness.save import store

    assert callable(harness.save) and harness.save.store is store
    assert set(harness.__all__) == {"load_model", "capture", "save", "load", "resume", "compare"}
    with pytest.raises(AttributeError):
        _ = harness.nothing
