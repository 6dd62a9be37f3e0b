"""The proof: the last token, fed again over the past without it, must give the stored logits."""

from dataclasses import replace

import pytest
import torch

from harness.cache import library
from harness.fault import edit
from harness.pipeline import restore
from harness.pipeline.restore import blamed, floors_now, one_step_back, proof


@pytest.mark.parametrize("dtype", ("float32", "bfloat16"))
def test_healthy_states_prove_themselves(captured, dtype):
    session, made = captured(f"dtype={dtype}", "prompt.batch=2", "text='let k be 5 . let m be 42 . what is k ?'")  # fmt: skip
    assert proof(session.loaded, made.state) == []


def test_a_damaged_value_or_logit_breaks_the_proof(captured):
    session, made = captured("text='let k be 5 . what is k ?'")
    damaged = edit.layers(made.state, value=lambda v: v + 0.01 * v.std())
    assert proof(session.loaded, damaged)
    other = replace(
        made.state,
        logits=made.state.logits + 100 * floors_now(session.loaded, made.state)["logits"],
    )
    assert proof(session.loaded, other)


@pytest.mark.parametrize("part", ["key", "value"])
def test_the_last_token_s_keys_and_values_are_each_held_against_the_replay(captured, part):
    """Which makes both anew, so that no logit says what the stored ones are."""
    session, made = captured("text='let k be 5 . what is k ?'")

    def last(tensor):
        return torch.cat([tensor[:, :, :-1], tensor[:, :, -1:] + 0.01 * tensor.std()], 2)

    found = proof(session.loaded, edit.layers(made.state, **{part: last}, only=1))
    assert [difference.field for difference in found] == ["proof: its keys and values"]


def test_the_state_is_only_read(captured):
    session, made = captured("text='let k be 5 . what is k ?'")
    before = [(name, t.clone()) for name, t in made.state.tensors()]
    proof(session.loaded, made.state)
    assert all((t == old).all() for (_, old), (_, t) in zip(before, made.state.tensors()))


def test_where_the_past_is_not_whole_no_proof_is_asked_for(captured):
    _, made = captured("text='let k be 5 . what is k ?'")
    assert one_step_back(edit.select(made.state, torch.arange(3, made.state.tokens))) is None
    _, slid = captured("model=tiny_gemma3", "cache=cloned", f"text='{'let k be 5 . ' * 12}'")
    assert one_step_back(slid.state) is None


def test_the_floor_is_measured_at_the_capture_and_one_step_proves(captured, monkeypatch):
    """No floor is measured again at the restore: the stored one is enough, and it is not generous."""
    session, made = captured("text='let k be 5 . what is k ?'")
    stored = made.state.documents["proof"]
    assert 0 < stored["logits"] < 1e-3 and 0 < stored["kv"] < 1e-3
    steps = []
    real = session.loaded.once
    monkeypatch.setattr(
        session.loaded, "once", lambda ids, *a: steps.append(ids.shape) or real(ids, *a)
    )
    assert proof(session.loaded, made.state) == []
    assert steps == [(1, 1)]
    healthy = made.state.logits + 2 * stored["logits"]
    assert proof(session.loaded, replace(made.state, logits=healthy)) == []
    off = made.state.logits + 20 * stored["logits"]
    assert proof(session.loaded, replace(made.state, logits=off))


def test_nothing_more_is_measured_where_the_proof_holds_whatever_it_is(captured, monkeypatch):
    """Off by more than 8 roundings, as real models are, and within what was measured at the capture."""
    session, made = captured("text='let k be 5 . what is k ?'")
    rounding = torch.finfo(torch.float32).eps * float(made.state.logits.abs().max())
    documents = {**made.state.documents, "proof": {"logits": 5 * rounding, "kv": 5 * rounding}}
    state = replace(made.state, documents=documents)
    measured = []
    monkeypatch.setattr(
        restore,
        "floors_now",
        lambda *a: measured.append(a) or {"logits": rounding, "kv": rounding},
    )
    far = replace(state, logits=state.logits + 20 * rounding)
    assert proof(session.loaded, far) == [] and not measured
    assert proof(session.loaded, replace(state, logits=state.logits + 100 * rounding)) and measured


def test_the_floor_is_that_of_a_past_that_lies_otherwise_in_memory_too(captured, monkeypatch):
    """Where a file is mapped nothing is aligned, and kernels round otherwise: the floor has seen it."""
    session, made = captured("text='let k be 5 . what is k ?'")
    seen = []
    real = library.LibraryDecoder.step

    def step(self, ids):
        kept = [la.update(None, None) for la in self.cache.layers]
        off = {t.data_ptr() % 16 for pair in kept for t in pair}
        seen.append(off)
        return real(self, ids) + (1e-3 if off != {0} else 0)

    monkeypatch.setattr(library.Replay, "step", step)
    assert restore.floor(session.loaded, made.state)["logits"] == pytest.approx(1e-3, rel=0.05)
    assert len(seen) == 2


def test_an_old_snapshot_has_its_floor_measured(captured):
    session, made = captured("text='let k be 5 . what is k ?'")
    documents = {k: v for k, v in made.state.documents.items() if k != "proof"}
    assert proof(session.loaded, replace(made.state, documents=documents)) == []
    off = replace(made.state, documents=documents, logits=made.state.logits + 1)
    assert proof(session.loaded, off)


@pytest.mark.parametrize("device", [{}, {"device": "cuda"}])
def test_a_snapshot_does_not_excuse_itself(captured, device):
    """Whatever floor it says was measured: what is off is held against the noise of here."""
    session, made = captured("text='let k be 5 . what is k ?'")
    generous = {"logits": 1000.0, "kv": 1000.0, **device}
    documents = {**made.state.documents, "proof": generous}
    assert proof(session.loaded, replace(made.state, documents=documents)) == []
    off = replace(made.state, documents=documents, logits=made.state.logits + 1)
    assert proof(session.loaded, off)
    damaged = edit.layers(made.state, value=lambda v: v + 0.01 * v.std())
    assert proof(session.loaded, replace(damaged, documents=documents))


def test_no_claim_of_an_edit_or_of_a_narrower_type_opens_the_proof(captured):
    session, made = captured("text='let k be 5 . what is k ?'")
    silent = edit.layers(made.state, value=lambda v: v + 0.01 * v.std())
    for claim in ({}, {"edited": "values moved by a hundredth"}, {"rounded_to": "bfloat16"}):
        assert proof(session.loaded, made.state.with_layers(silent.layers, **claim))


def test_a_refusal_blames_the_state_or_the_model_where_a_prefill_can_tell(captured):
    """Both, where the model computes otherwise altogether: that may be the state's logits just as well."""
    session, made = captured("text='let k be 5 . what is k ?'")
    layer, state = session.loaded.model.model.layers[0], made.state
    damaged = edit.layers(state, value=lambda v: v + v.std())
    assert blamed(session.loaded, damaged) == "state"
    hook = layer.register_forward_hook(lambda _, a, out: out + 0.05 * (out.shape[1] == 1))
    assert proof(session.loaded, state) and blamed(session.loaded, state) == "model"
    hook.remove()
    hook = layer.register_forward_hook(lambda _, a, out: out * 1.05)
    assert proof(session.loaded, state) and blamed(session.loaded, state) == ""
    hook.remove()
    assert proof(session.loaded, state) == []
