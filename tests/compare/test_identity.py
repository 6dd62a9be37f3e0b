"""Identity: every difference, and first the one that the others follow from."""

from harness.compare.identity import differences, explained

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
