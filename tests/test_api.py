"""The Python API: streaming, stopping midway, saving, what is said of a state."""

import copy
import pickle
from dataclasses import replace

import pytest
import torch
from rich.console import Console

import harness
from harness.errors import ConfigProblem, InputProblem, RestoreRefused, Untrusted
from harness.present.messages import worded
from harness.report.terminal.bar import Bar

PROMPT = "let k be 5 . the bird sang in the tree ."


@pytest.fixture(scope="module")
def model():
    return harness.load_model("tiny")


def test_a_session_is_picked_up_where_it_was_left(model, tmp_path) -> None:
    state = harness.capture_text(model, PROMPT)
    harness.save_state(state, tmp_path / "mine")
    back = harness.load_state(tmp_path / "mine", model)
    resumed = harness.resume(model, back, " what is k ?", steps=4)
    assert "".join(resumed) == " k is 5 ."
    assert state.tokens == back.tokens < resumed.state.tokens
    assert harness.judge(model, back).verdict in ("exact", "equivalent")


@pytest.mark.parametrize("cache", ["manual", "cloned", "dynamic"])
def test_every_cache_says_the_same(model, cache) -> None:
    state = harness.capture_text(model, PROMPT)
    before = state.layers[0].key.clone()
    assert "".join(harness.resume(model, state, " what is k ?", 4, cache=cache)) == " k is 5 ."
    assert torch.equal(state.layers[0].key, before)


def test_a_second_turn_is_written_as_a_segment(model, tmp_path) -> None:
    state = harness.capture_text(model, PROMPT)
    harness.save_state(state, tmp_path / "one")
    first = harness.resume(model, harness.load_state(tmp_path / "one", model), " what is k ?", 4)
    "".join(first)
    manifest = harness.save_state(first.state, tmp_path / "two")
    back = harness.load_state(tmp_path / "two", model)
    assert manifest["parent"] and back.token_ids.tolist() == first.state.token_ids.tolist()
    again = "".join(harness.resume(model, back, " what is k ?", 4))
    assert again == " k is 5 ."


def test_sampling_goes_on_with_the_saved_generator(model) -> None:
    state = harness.capture_text(model, PROMPT, seed=3)
    whole = "".join(harness.resume(model, state, "", 12, sampling="sample", temperature=0.9))
    half = harness.resume(model, state, "", 6, sampling="sample", temperature=0.9)
    start = "".join(half)
    rest = "".join(harness.resume(model, half.state, "", 6, sampling="sample", temperature=0.9))
    assert start + rest == whole


def test_chat_turns_go_through_the_template(model) -> None:
    turns = [{"role": "user", "content": "let k be 5 ."}]
    state = harness.capture_text(model, turns=turns, policy="chat")
    assert state.documents["prompt_meta"]["policy"] == "chat"


def test_judging_is_counted_on_a_terminal(model, monkeypatch) -> None:
    begun: list[str] = []
    monkeypatch.setattr(Console, "is_terminal", True)
    monkeypatch.setattr(Bar, "begin", lambda self, what, total: begun.append(what))
    monkeypatch.setattr(Bar, "advance", lambda *_: None)
    state = harness.capture_text(model, PROMPT)
    assert begun == []
    assert harness.judge(model, state, steps=1).good and "prefill again" in begun


@pytest.mark.parametrize("sampling", ["greedy", "sample"])
def test_a_loop_left_early_goes_on_where_it_was(model, sampling) -> None:
    state = harness.capture_text(model, PROMPT, seed=3)

    def resumed():
        return harness.resume(model, state, " what is k ?", steps=8, sampling=sampling)

    whole = resumed()
    text = "".join(whole)
    parted, pieces = resumed(), []
    for _ in range(3):
        for piece in parted:
            pieces.append(piece)
            break
    pieces += parted
    assert "".join(pieces) == text and parted.ids == whole.ids
    assert torch.equal(parted.state.token_ids, whole.state.token_ids)
    assert torch.equal(parted.state.logits, whole.state.logits)
    assert torch.equal(parted.state.rng, whole.state.rng)
    assert list(parted) == []  # it has reached its end


def test_what_is_there_is_replaced_on_request_and_nobodys_file_ever(model, tmp_path) -> None:
    state = harness.capture_text(model, PROMPT)
    harness.save_state(state, tmp_path / "s")
    with pytest.raises(InputProblem, match="overwrite=true"):
        harness.save_state(state, tmp_path / "s")
    harness.save_state(state, tmp_path / "s", overwrite=True)
    (tmp_path / "s" / "notes.txt").write_text("mine")
    with pytest.raises(InputProblem, match="left alone"):
        harness.save_state(state, tmp_path / "s", overwrite=True)
    assert (tmp_path / "s" / "notes.txt").read_text() == "mine"


def test_signed_and_encrypted_from_python(model, tmp_path) -> None:
    import subprocess

    for name in "ab":
        make = f"openssl ecparam -name prime256v1 -genkey -noout -out {name}.pem"
        show = f"openssl ec -in {name}.pem -pubout -out {name}.pub"
        done = f"{make} && {show}"
        subprocess.run(done, shell=True, check=True, capture_output=True, cwd=tmp_path)
    key = tmp_path / "key"
    key.write_bytes(bytes(range(32)))
    state, place = harness.capture_text(model, PROMPT), tmp_path / "s"
    harness.save_state(state, place, sign=tmp_path / "a.pem", encrypt=key)
    asked = {"trusted": [tmp_path / "a.pub"], "decrypt": key}
    assert harness.load_state(place, model, **asked).token_ids.equal(state.token_ids)
    assert "".join(harness.resume(model, place, " what is k ?", 4, **asked)) == " k is 5 ."
    for change in ({"decrypt": None}, {"trusted": [tmp_path / "b.pub"]}):
        with pytest.raises(Untrusted):
            harness.load_state(place, model, **{**asked, **change})
        with pytest.raises(Untrusted):
            harness.resume(model, place, **{**asked, **change})
    assert not [p for p in place.rglob("*") if p.is_file() and b"bird" in p.read_bytes()]


def test_a_thought_goes_back_to_say_something_else(model, tmp_path) -> None:
    state = harness.capture_text(model, PROMPT)
    harness.save_state(state, tmp_path / "one")
    first = harness.resume(model, state, " what is k ?", 4)
    assert "".join(first) == " k is 5 ."
    place = {"at": state.tokens, "source": tmp_path / "one"}
    again = harness.resume(model, first.state, " what is k ?", 4, **place)
    assert "".join(again) == " k is 5 ." and again.ids == first.ids
    with pytest.raises(InputProblem, match="is not a place"):
        harness.resume(model, state, at=state.tokens + 1)


def test_objects_are_one_line_and_travel(model) -> None:
    state = harness.capture_text(model, PROMPT)
    resumed = harness.resume(model, state, " what is k ?", steps=4)
    judgement = harness.judge(model, state, steps=4)
    for shown in (model, state, resumed, judgement):
        assert "\n" not in repr(shown) and len(repr(shown)) < 160
    assert str(judgement).startswith("Same thought") and not judgement.diagnosis
    for other in (copy.deepcopy(state), pickle.loads(pickle.dumps(state))):
        assert all(
            torch.equal(a, b)
            for (_, a), (_, b) in zip(state.tensors(), other.tensors(), strict=True)
        )
        assert other.documents == state.documents
        with pytest.raises(TypeError):
            other.documents["prompt_meta"] = {}
    assert copy.deepcopy(model).documents == model.documents


def test_a_worse_verdict_is_explained(model) -> None:
    state = harness.capture_text(model, PROMPT)
    layer = state.layers[0]
    turned = tuple(replace(s, key=-s.key) for s in layer.segments)
    wrong = replace(state, layers=(replace(layer, segments=turned), *state.layers[1:]))
    judgement = harness.judge(model, wrong, steps=4)
    assert judgement.verdict in ("drifted", "diverged")
    assert judgement.diagnosis["layer"] == 0 and judgement.diagnosis["evidence"] in str(judgement)


def test_what_was_done_on_purpose_is_not_told_as_an_accident(model) -> None:
    state = harness.capture_text(model, PROMPT)
    pruned = str(harness.judge(model, harness.prune_state(model, state, ratio=0.5), steps=4))
    assert "Pruning: " in pruned and "with 8 of 15 tokens kept" in pruned and "\n" not in pruned
    coded = str(harness.judge(model, harness.quantize_state(state, "int4"), steps=4))
    assert "Quantizing: " in coded and "thought" not in coded


def test_an_error_ends_at_the_line_of_the_caller(model) -> None:
    with pytest.raises(InputProblem) as problem:
        harness.judge(model, "runs/mine")
    files = [entry.path.name for entry in problem.traceback]
    assert [f for f in files if f not in ("test_api.py", "python.py")] == ["api_errors.py"], files


def test_a_state_is_made_smaller_by_name_and_by_a_class_of_ones_own(model, tmp_path) -> None:
    from harness.prune import Policy
    from harness.quantize import Quantizer, symmetric

    class EveryOther(Policy):
        def score(self, layer, rank, keep):
            return (rank % self.settings.every == 0).double()

    class Plain(Quantizer):
        def encode(self, tensor, part):
            return symmetric(tensor, (1, 8), torch.int8)

    state = harness.capture_text(model, PROMPT)
    for policy, more in (("keydiff", {}), ("tova", {}), (EveryOther, {"every": 2})):
        small = harness.prune_state(model, state, policy, ratio=0.5, **more)
        assert 0 < small.kept_tokens < state.kept_tokens and state.kept_tokens == state.tokens
        harness.save_state(small, tmp_path / "small", overwrite=True)
        back = harness.load_state(tmp_path / "small", model)
        assert "".join(harness.resume(model, back, " what is k ?", steps=2))
    for quantizer in ("int8", Plain):
        assert harness.quantize_state(state, quantizer).kv_bytes < 0.5 * state.kv_bytes
    with pytest.raises(ConfigProblem, match=r"give ratio=R|ratio"):
        harness.prune_state(model, state, EveryOther, every=2)
    with pytest.raises(ConfigProblem, match="Did you mean 'keydiff'"):
        harness.prune_state(model, state, "keydif", ratio=0.5)
    with pytest.raises(ConfigProblem, match=r"class below harness\.prune\.Policy"):
        harness.prune_state(model, state, Plain, ratio=0.5)


def test_a_waiver_travels_with_the_state(model, tmp_path) -> None:
    other = copy.deepcopy(model.model)
    with torch.no_grad():
        other.model.embed_tokens.weight[3, 3] += 1e-3
    other = harness.wrap(other, model.tokenizer)
    state = harness.capture_text(model, PROMPT)
    assert "waived" not in harness.save_state(state, tmp_path / "s")["documents"]

    def on(by, state):
        return list(run := harness.resume(by, state, steps=2)) and run.state

    waived = harness.load_state(tmp_path / "s", other, strict=False)
    assert harness.judge(other, waived, steps=2).verdict == "drifted"
    for grown in (
        on(other, waived),
        on(other, harness.load_state(tmp_path / "s")),
        on(other, state),
    ):
        judged = harness.judge(model, grown, steps=2)
        assert judged.verdict == "drifted" and "waived earlier" in worded(judged.reason)
        harness.save_state(grown, tmp_path / "w", overwrite=True)
        for either in (model, other):
            with pytest.raises(RestoreRefused, match="token_embeddings"):
                harness.load_state(tmp_path / "w", either)
        back = harness.load_state(tmp_path / "w", model, strict=False)
        assert back.documents["waived"] == grown.documents["waived"]
    documents = {k: v for k, v in grown.documents.items() if k != "waived"}
    laundered = replace(grown, documents=documents)  # the document is all that holds it
    assert harness.judge(model, laundered, steps=2).verdict == "equivalent"
    assert "waived" not in on(model, state).documents
