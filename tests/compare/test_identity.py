"""Identity: every difference, and first the one that the others follow from."""

import pytest

from harness.compare.identity import Difference, differences, explained, fits
from harness.present.refusal import sentences

LLAMA = {
    "attention_weights": {"digest": "a"},
    "model_config": {"config": {"attention_bias": 0, "hidden_size": 8, "model_type": "llama"}},
}
GPT2 = {
    "attention_weights": {"digest": "b"},
    "model_config": {"config": {"attention_bias": 1, "hidden_size": 9, "model_type": "gpt2"}},
}


def test_the_architecture_explains_its_sizes_and_weights() -> None:
    found = differences(LLAMA, GPT2, "float32", "float32")
    assert [d.field.rpartition(".")[2] for d in found] == [
        "model_type", "hidden_size", "attention_bias", "digest",
    ]  # fmt: skip
    assert explained(found) == "It is another architecture, which explains the other 3."


def test_the_dtype_explains_the_digests() -> None:
    found = differences(
        LLAMA, {**LLAMA, "attention_weights": {"digest": "b"}}, "float32", "float16"
    )
    assert found[0].field == "dtype" and "dtype=float32" in explained(found)


def test_nothing_is_explained_that_stands_alone() -> None:
    changed = {**LLAMA, "attention_weights": {"digest": "b"}}
    assert explained(differences(LLAMA, changed, "float32", "float32")) == ""
    assert explained([]) == ""


CONFIG = {
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "hidden_size": 64,
}


@pytest.mark.parametrize(
    "other, able",
    [
        ({"num_hidden_layers": 3}, False),
        ({"num_key_value_heads": 4}, False),
        ({"head_dim": 32}, False),
        ({"head_dim": 16, "vocab_size": 9, "intermediate_size": 7}, True),
        ({"text_config": {"num_hidden_layers": 3}}, False),
        ({"hidden_size": None}, True),
    ],
)
def test_a_waiver_is_of_use_only_where_the_model_could_take_such_keys_and_values(
    other, able
) -> None:
    assert fits(CONFIG, CONFIG | other) is able
    assert fits(CONFIG, {"n_layer": 2, "n_head": 4, "n_embd": 64}) is False, "4 KV heads"


def test_several_were_and_one_was() -> None:
    field = "its keys and values"
    assert str(Difference("logits", field, "within 1", "off by 2")).endswith(
        "its keys and values were within 1, are off by 2"
    )
    row = {"element": "+1 logits", "field": field, "saved": "within 1", "found": "off by 2"}
    told = {"verdict": "refused", "reason": "x", "differences": [row]}
    assert "its keys and values were within 1, are off by 2" in sentences(told)[0]
    row["field"] = "proof"
    assert "proof was within 1, is off by 2" in sentences(told)[0]


@pytest.mark.parametrize(
    "field, says",
    [
        ("config.rms_norm_eps", "the configuration of the model that is loaded is not"),
        ("other_weights.digest", "other weights (MLP, head, ...) of the model that is loaded are not"),
        ("waived earlier: other_weights.digest", "other weights (MLP, head, ...) of the model"),
        ("buffers.digest", "the buffers of the model that is loaded are not"),
        ("adapters.active", "the adapters of the model that is loaded are not"),
    ],
)  # fmt: skip
def test_what_element_6_holds_beside_the_configuration_is_called_by_its_name(field, says) -> None:
    row = {"element": "6 model_config", "field": field, "saved": "a", "found": "b"}
    told = sentences({"verdict": "refused", "reason": "x", "differences": [row]})[0]
    assert told.startswith(f"Not restored: {says}")
