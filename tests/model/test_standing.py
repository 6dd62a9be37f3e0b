"""A model in use that is changed between two looks at it: what was derived from it goes with it."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

import harness
from harness.errors import InputProblem, RestoreRefused
from harness.model.build import SHIPPED
from harness.model.standing import standing

TEXT = "let k be 5 . the old man walked to the river ."
SMALL = {
    "vocab_size": 1144, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8, "initializer_range": 0.15,
    "max_position_embeddings": 256,
}  # fmt: skip
STEPS = 6


@pytest.fixture
def made():
    """A wrapped model of a family, seeded."""

    def make(family: str, **values):
        torch.manual_seed(0)
        config = AutoConfig.for_model(family, **{**SMALL, **values})
        model = AutoModelForCausalLM.from_config(config).eval()
        return harness.wrap(model, AutoTokenizer.from_pretrained(SHIPPED["tiny"]))

    return make


def verdict(model, state) -> str:
    return harness.judge(model, state, steps=STEPS).verdict


def steered(model) -> None:
    layer = model.model.model.layers[0].mlp
    layer.register_forward_hook(lambda module, inputs, out: out * 1.02)


def written(model) -> None:
    model.model.model.layers[0].mlp.down_proj.weight.data.mul_(1.02)  # as adapters are merged


def rescaled(model) -> None:
    for layer in model.model.model.layers:
        layer.self_attn.scaling *= 1.02


@pytest.mark.parametrize("change", [steered, written, rescaled])
def test_a_state_of_before_is_not_equivalent_after_a_change(made, change) -> None:
    model = made("llama")
    state = harness.capture_text(model, TEXT)
    assert verdict(model, state) in ("exact", "equivalent")
    change(model)
    assert verdict(model, state) in ("drifted", "diverged")
    anew = harness.capture_text(model, TEXT)  # and is sound on the model as it is now
    assert verdict(model, anew) in ("exact", "equivalent")


def test_the_oracle_and_the_digests_are_kept_while_nothing_changes(made) -> None:
    model = made("llama")
    oracle, twin, documents = model.oracle, model.twin, model.documents
    harness.capture_text(model, TEXT)
    assert model.oracle is oracle and model.twin is twin and model.documents is documents


def test_training_mode_is_told_wherever_the_model_is_asked(made) -> None:
    model = made(
        "gpt2", n_embd=32, n_layer=2, n_head=4
    )  # a stray num_key_value_heads means nothing
    state = harness.capture_text(model, TEXT)
    assert verdict(model, state) in ("exact", "equivalent")
    model.model.transformer.h[1].attn.train()
    for ask in (lambda: verdict(model, state), lambda: harness.capture_text(model, TEXT)):
        with pytest.raises(InputProblem, match=r"training mode \(transformer.h.1.attn.*eval"):
            ask()


def test_a_config_edited_in_place_is_another_identity(made, tmp_path) -> None:
    model = made("gemma2", sliding_window=6)  # windows let go, so that no proof stands in for it
    harness.save_state(harness.capture_text(model, TEXT), tmp_path / "mine")
    harness.load_state(tmp_path / "mine", model)
    model.model.config.final_logit_softcapping = 3.0
    with pytest.raises(RestoreRefused, match="final_logit_softcapping"):
        harness.load_state(tmp_path / "mine", model)


def test_a_buffer_that_is_saved_with_the_weights_is_one(made, tmp_path) -> None:
    values = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16,
              "first_k_dense_replace": 1, "n_group": 1, "topk_group": 1}  # fmt: skip
    model = made("glm4_moe", **values)
    state = harness.capture_text(model, TEXT)
    harness.save_state(state, tmp_path / "mine")
    name, bias = next(
        (n, b) for n, b in model.model.named_buffers() if n.endswith("correction_bias")
    )
    assert name in model.model.state_dict()
    with torch.no_grad():
        bias[0] += 1e-6  # no proof would see it
    with pytest.raises(RestoreRefused, match="buffers"):
        harness.load_state(tmp_path / "mine", model)


@pytest.mark.parametrize("tokens", [8, 40])
def test_what_ran_last_is_no_part_of_the_identity(made, tokens) -> None:
    """Longrope writes the frequencies of the latest context into its buffer."""
    factors = {"short_factor": [1.0] * 4, "long_factor": [2.0, 3.0, 4.0, 5.0]}
    rope = {"rope_type": "longrope", "rope_theta": 10000.0, "factor": 16.0, **factors}
    rope["original_max_position_embeddings"] = 16
    fresh, used = (made("phi3", rope_parameters=rope, pad_token_id=0) for _ in range(2))
    used.uncached(torch.arange(3, 3 + tokens)[None], 1)
    assert used.documents == fresh.documents
    scaled = made("phi3", rope_parameters={**rope, "short_factor": [1.5] * 4}, pad_token_id=0)
    assert scaled.documents["positions"] != fresh.documents["positions"]


def test_a_forward_leaves_a_model_standing_as_it_stood(made) -> None:
    model = made("llama")
    before = standing(model.model)
    state = harness.capture_text(model, TEXT)
    verdict(model, state)
    assert standing(model.model) == before
    assert verdict(model, replace(state, logits=state.logits * 1.01)) == "drifted"
