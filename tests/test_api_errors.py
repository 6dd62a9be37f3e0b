"""What goes wrong in the Python API is one plain error, in the words of Python."""

import copy
import warnings

import pytest
import torch

import harness
from harness.errors import (
    ConfigProblem,
    HarnessError,
    InputProblem,
    RestoreRefused,
    SnapshotInvalid,
)

PROMPT = "let k be 5 . the bird sang in the tree ."


@pytest.fixture(scope="module")
def model():
    return harness.load_model("tiny")


def test_mistakes_are_plain(model, tmp_path, monkeypatch) -> None:
    state = harness.capture_text(model, PROMPT)
    with pytest.raises(ConfigProblem, match=r"Did you mean 'sampling.temperature'"):
        harness.resume(model, state, sampling="sample", temprature=1)
    with pytest.raises(InputProblem, match="no such directory"):
        harness.load_state(tmp_path / "nowhere")
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputProblem, match=r"^runs/nothing: there is no such folder"):
        harness.load_model("runs/nothing")
    with pytest.raises(InputProblem, match="positions"):
        harness.resume(model, state, steps=100_000)
    manifest = harness.save_state(state, tmp_path / "s")
    payload = tmp_path / "s" / manifest["tensors"][0]["file"]
    data = bytearray(payload.read_bytes())
    data[-1] ^= 1
    payload.write_bytes(data)
    with pytest.raises(SnapshotInvalid):
        harness.load_state(tmp_path / "s", model, strict=False)


def test_another_model_is_refused(model, tmp_path, session) -> None:
    harness.save_state(harness.capture_text(model, PROMPT), tmp_path / "s")
    other = session("model=tiny_gpt2").loaded
    with pytest.raises(RestoreRefused, match=r"it was saved with: model=tiny\.$"):
        harness.load_state(tmp_path / "s", other)


@pytest.mark.parametrize(
    "wrong, says",
    [
        (lambda m, s, p: harness.save_state(s, p), "overwrite=true"),
        (lambda m, s, p: harness.save_state(s, p.parent / "file"), "choose another out="),
        (lambda m, s, p: harness.save_state(s, p / "new", "blosc2", codec="no"), "codec=no"),
        (lambda m, s, p: harness.load_state(p / "nowhere"), "no such directory"),
        (lambda m, s, p: harness.load_state(p.parent / "mein"), "/mine?"),
        (lambda m, s, p: harness.load_state(p, trusted=[p]), "trusted="),
        (lambda m, s, p: harness.load_model(device="cuda:99"), "device=auto"),
        (lambda m, s, p: harness.load_model(device="cuda:99"), "device=cuda:99"),
        (lambda m, s, p: harness.quantize_state(m, s, "int8"), "It takes quantize_state(state, quantizer"),
        (lambda m, s, p: harness.load_model(device="gpu"), "Did you mean 'cuda'"),
        (lambda m, s, p: harness.load_model(dtype="fp16"), "Did you mean 'float16'"),
        (lambda m, s, p: harness.load_model("tiny_gpt3"), "Did you mean 'tiny_gpt2'"),
        (lambda m, s, p: harness.load_model("./nowhere"), "no such directory"),
        (lambda m, s, p: harness.resume(m, s, cache="nope"), "'nope'"),
        (lambda m, s, p: harness.resume(m, s, sampling="sample", temperature=0), "sampling=greedy"),
        (lambda m, s, p: harness.resume(m, s, steps=10**6), "steps=N"),
        (lambda m, s, p: harness.resume(m, s, at=99), "at=99"),
    ],
)  # fmt: skip
def test_an_error_names_arguments_that_python_can_pass(model, tmp_path, wrong, says) -> None:
    state, place = harness.capture_text(model, PROMPT), tmp_path / "mine"
    harness.save_state(state, place)
    (tmp_path / "file").write_text("")
    with pytest.raises(HarnessError) as told:
        wrong(model, state, place)
    message = str(told.value)
    assert says in message


def test_what_breaks_while_a_save_is_checked_is_told(model, tmp_path, monkeypatch) -> None:
    """The twin: a fault of ours that was told as damage of a snapshot, without its cause."""
    from harness.snapshot.tables import TensorTable

    def broken(*args, **options):
        raise RuntimeError("pandera lost its mind")

    monkeypatch.setattr(TensorTable, "validate", broken)
    state = harness.capture_text(model, "let m be 7 .")
    with pytest.raises(SnapshotInvalid) as told:
        harness.save_state(state, tmp_path / "s")
    message = str(told.value)
    assert "pandera lost its mind" in message and "nothing was written" in message
    assert "backup" not in message and "restored" not in message and not (tmp_path / "s").exists()


def test_a_model_that_the_state_was_not_captured_from_is_warned_of(model) -> None:
    state = harness.capture_text(model, PROMPT)
    other = harness.wrap(copy.deepcopy(model.model), model.tokenizer)
    with torch.no_grad():
        other.model.model.layers[1].mlp.down_proj.weight.mul_(1.5)
    other = harness.wrap(other.model, model.tokenizer)
    for go in (
        lambda m: list(harness.resume(m, state, steps=1)),
        lambda m: harness.prune_state(m, state, "keydiff", ratio=0.5),
    ):
        with pytest.warns(UserWarning, match="not the one that the state was captured from"):
            go(other)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning)
            go(model)
