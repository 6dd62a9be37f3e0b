"""Greedy with a repetition penalty chooses what `generate` chooses."""

import torch

import harness


def test_a_penalty_is_not_recorded_and_ignored() -> None:
    model = harness.load_model("tiny")
    state = harness.capture_text(model, "let k be 5 . the bird sang in the tree .")
    asked = {"max_new_tokens": 12, "do_sample": False, "repetition_penalty": 1.8}
    whole = model.model.generate(state.token_ids, **asked)[0, state.tokens :].tolist()
    resumed = harness.resume(model, state, steps=12, repetition_penalty=1.8)
    list(resumed)
    plain = harness.resume(model, state, steps=12)
    list(plain)
    assert resumed.ids == whole != plain.ids
    assert resumed.state.documents["generation"]["sampler"]["repetition_penalty"] == 1.8
    assert torch.equal(state.token_ids, plain.state.token_ids[:, : state.tokens])
