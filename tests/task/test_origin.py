"""A snapshot knows its model: no `model=` is needed, and another model is told before its weights."""

import json

import pytest

from harness.model.build import SHIPPED

TEXT = "text=let k be 5 ."


@pytest.fixture
def moved(place):
    import shutil

    shutil.copytree(SHIPPED["tiny"], place / "mine")
    return place / "mine"


def test_no_model_needs_to_be_named(harness, moved, place) -> None:
    made = harness(
        "task=save", "model=path", f"model.path={moved}", TEXT, "out=a", "dtype=bfloat16"
    )
    assert made.code == 0, made.out
    source = json.loads((place / "a" / "manifest.json").read_text())["documents"]["source"]
    assert source["path"] == str(moved) and source["parameters"] > 0
    done = harness("task=resume", "snapshot=a", "text= what is k ?", "steps=4", "out=b")
    assert done.code == 0, done.out
    assert done.result["environment"]["dtype"] == "bfloat16"
    assert done.result["model"]["option"] == "path"
    again = harness("task=resume", "snapshot=b", "steps=2")
    assert again.code == 0, again.out


def test_weights_stored_in_another_type_are_told(harness, moved) -> None:
    config = json.loads((moved / "config.json").read_text())
    told = []
    narrow, wide = "bfloat16", "float32"
    for stored, chosen in ((narrow, wide), (narrow, narrow), (wide, wide)):
        (moved / "config.json").write_text(json.dumps({**config, "dtype": stored}))
        done = harness("task=save", "model=path", f"model.path={moved}", TEXT, f"dtype={chosen}")
        assert done.code == 0, done.out
        told.append("stored as bfloat16, run in float32 (dtype=bfloat16" in done.out)
    assert told == [True, False, False]


def test_a_tokenizer_of_far_fewer_tokens_is_told(harness, place) -> None:
    from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

    tokenizer, told = AutoTokenizer.from_pretrained(SHIPPED["tiny"]), []
    for ids in (
        4 * len(tokenizer),
        len(tokenizer) + 8,
    ):  # another model's, and a table that is padded
        sizes = {"vocab_size": ids, "hidden_size": 16, "intermediate_size": 16}
        config = LlamaConfig(**sizes, num_hidden_layers=1, num_attention_heads=2)
        LlamaForCausalLM(config).save_pretrained(place / str(ids))
        tokenizer.save_pretrained(place / str(ids))
        done = harness("task=save", "model=path", f"model.path={place / str(ids)}", TEXT)
        assert done.code == 0, done.out
        told.append(f"knows {len(tokenizer):,} of the model's {ids:,} token ids" in done.out)
    assert told == [True, False]


def test_another_model_is_refused_before_a_weight_is_read(harness, moved, monkeypatch) -> None:
    assert harness("task=save", "model=path", f"model.path={moved}", TEXT, "out=a").code == 0

    def no_weights(*_, **__):
        raise AssertionError("weights were read")

    monkeypatch.setattr("harness.pipeline.session.load", no_weights)
    done = harness("task=resume", "snapshot=a", "model=tiny_gpt2", "steps=2")
    assert done.code == 3 and "-layer llama" in done.out and "tiny_gpt2" in done.out
    assert f"it was saved with: model=path model.path={moved}." in done.out
    config = json.loads((moved / "config.json").read_text())
    (moved.parent / "more").mkdir()
    (moved.parent / "more" / "config.json").write_text(
        json.dumps(config | {"num_hidden_layers": 9})
    )
    done = harness("task=resume", "snapshot=a", "model=path", "model.path=more", "steps=2")
    assert done.code == 3 and ", are a 9-layer llama at more" in done.out, done.out


def test_weights_that_are_gone_are_said_so(harness, moved) -> None:
    assert harness("task=save", "model=path", f"model.path={moved}", TEXT, "out=a").code == 0
    moved.rename(moved.with_name("elsewhere"))
    done = harness("task=resume", "snapshot=a", "steps=2")
    assert done.code == 2 and str(moved) in done.out and "model.path=DIR" in done.out
    done = harness("task=resume", "snapshot=a", "steps=2", "model=path", "model.path=elsewhere")
    assert done.code == 0, done.out


def test_other_weights_of_the_same_shape_are_refused_by_digest(harness, moved) -> None:
    """The corrupted twin: same path, same config, one weight changed."""
    from safetensors.torch import load_file, save_file

    assert harness("task=save", "model=path", f"model.path={moved}", TEXT, "out=a").code == 0
    weights = load_file(moved / "model.safetensors")
    name = next(n for n in weights if "down_proj" in n)
    weights[name][0, 0] += 1
    save_file(weights, moved / "model.safetensors", {"format": "pt"})
    done = harness("task=resume", "snapshot=a", "steps=2")
    assert done.code == 3 and "other_weights" in done.out
    assert "other weights (MLP, head, ...) of the model that is loaded are not what" in done.out
    assert "the configuration of the model" not in done.out


def test_nothing_is_built_on_a_snapshots_word(harness) -> None:
    made = harness("task=save", "model=tiny_gpt2", TEXT, "out=a")
    assert made.code == 0, made.out
    done = harness("task=resume", "snapshot=a", "steps=2")
    assert done.code == 2 and "model=tiny_gpt2" in done.out
    assert harness("task=resume", "snapshot=a", "model=tiny_gpt2", "steps=2").code == 0
