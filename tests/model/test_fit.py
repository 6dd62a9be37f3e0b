"""Weights, config.json and tokenizer that do not belong together: nothing is drawn at random or read in silence."""

import json
import re

import pytest
from safetensors.torch import load_file, save_file

from harness.errors import InputProblem
from harness.model.loaded import load

FILE = "model.safetensors"


@pytest.fixture
def folder(compose, place):
    """The shipped model in a folder of its own: two layers, 21 tensors."""
    tiny = load(compose("model=tiny").model, "float32", "cpu")
    tiny.model.save_pretrained(place / "mine")
    tiny.tokenizer.save_pretrained(place / "mine")
    return place / "mine"


def declare(folder, **values) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def opened(compose, folder):
    return load(compose("model=path", f"model.path={folder}").model, "float32", "cpu")


def small(compose, kind, *more):
    config = ",".join(
        ("hidden_size:32", "num_attention_heads:2", "max_position_embeddings:64", *more)
    )
    asked = ("model=shape", f"model.architecture={kind}", f"+model.config={{{config}}}")
    return load(compose(*asked).model, "float32", "cpu")


def rename(folder, new) -> None:
    tensors = {new(name): tensor for name, tensor in load_file(folder / FILE).items()}
    save_file({n: t for n, t in tensors.items() if n}, folder / FILE, {"format": "pt"})


def test_layers_that_no_file_holds_are_refused(harness, folder) -> None:
    declare(folder, num_hidden_layers=5)
    done = harness("task=save", "model=path", f"model.path={folder}", "text=let k be 5 .")
    assert done.code == 2 and "fault of the harness" not in done.out
    assert f"model.path={folder}: the weights lack 27 of the 48 tensors" in done.out
    assert "the first is model.layers.2.input_layernorm.weight" in done.out
    assert "the weights have 2 layers (model.layers), config.json asks for 5" in done.out


def test_one_missing_tensor_is_named(compose, folder) -> None:
    lost = "model.layers.1.mlp.down_proj.weight"
    rename(folder, lambda name: "" if name == lost else name)
    with pytest.raises(
        InputProblem, match=rf"lack 1 of the 2\d tensors .* the first is {lost}\. Give"
    ):
        opened(compose, folder)


def test_names_with_something_before_them_are_told_so(compose, folder) -> None:
    rename(folder, lambda name: f"wrapped.{name}")
    with pytest.raises(InputProblem, match=r"they are there with `wrapped\.` before each name"):
        opened(compose, folder)


def test_a_tensor_of_another_shape_is_told_with_both(harness, folder) -> None:
    declare(folder, intermediate_size=48)
    done = harness("task=save", "model=path", f"model.path={folder}", "text=let k be 5 .")
    assert done.code == 2 and "fault of the harness" not in done.out
    shape = list(load_file(folder / FILE)["model.layers.0.mlp.down_proj.weight"].shape)
    assert (
        f"model.layers.0.mlp.down_proj.weight has shape {shape} in the weights and [{shape[0]}, 48] "
        "by config.json, and 5 more do not fit" in done.out
    )


def test_layers_that_the_config_leaves_out_are_noted(harness, folder) -> None:
    declare(folder, num_hidden_layers=1)
    done = harness("task=save", "model=path", f"model.path={folder}", "text=let k be 5 .")
    said = (
        "the weights have 2 layers (model.layers), config.json asks for 1, the others are not read"
    )
    assert done.code == 0 and done.out.count(said) == 1
    assert done.result["model"]["unread"] == said


def test_a_tensor_that_the_model_has_no_place_for_is_noted(compose, folder) -> None:
    tensors = load_file(folder / FILE)
    save_file(tensors | {"model.gate.weight": tensors["model.norm.weight"].clone()}, folder / FILE, {"format": "pt"})  # fmt: skip
    said = "1 tensor of the weights is not read by this model, the first is model.gate.weight"
    assert opened(compose, folder).source["unread"] == said


@pytest.mark.parametrize("kind", ["gpt2", "qwen3", "gemma3_text"])
def test_a_head_that_is_tied_to_the_embeddings_is_not_missed(compose, place, kind) -> None:
    built = small(compose, kind, "tie_word_embeddings:true")
    built.model.save_pretrained(place / "tied", max_shard_size="100KB")
    built.tokenizer.save_pretrained(place / "tied")
    assert len(list((place / "tied").glob("model-*"))) > 1
    again = opened(compose, place / "tied")
    assert "unread" not in again.source and again.parameters == built.parameters


@pytest.mark.parametrize("kind", ["gpt2", "gemma3_text", "mistral"])
def test_a_folder_without_tokenizer_files_is_refused(compose, place, kind) -> None:
    """For some families the library makes a tokenizer of no file, which knows no word."""
    built = small(compose, kind)
    built.model.save_pretrained(place / "mine")
    said = f"no tokenizer could be loaded from {place / 'mine'}: there are no tokenizer files"
    with pytest.raises(InputProblem, match=re.escape(said)):
        opened(compose, place / "mine")
    built.tokenizer.save_pretrained(place / "beside")
    cfg = compose(
        "model=path", f"model.path={place / 'mine'}", f"model.tokenizer={place / 'beside'}"
    )
    assert load(cfg.model, "float32", "cpu").tokenizer.get_vocab() == built.tokenizer.get_vocab()
