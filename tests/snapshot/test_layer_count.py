"""How many layers a snapshot must have is read from its model's config, where that tells it for sure."""

from dataclasses import replace

import pytest
from transformers import CONFIG_MAPPING, DynamicCache

import harness
from harness.errors import SnapshotInvalid
from harness.model.identity import _clean
from harness.snapshot.documents import layers_configured

# plain, aliased keys, windows, hybrid, recurrent, nested, shared layers, an encoder beside it
FAMILIES = ["llama", "gpt2", "gemma3_text", "qwen3_next", "mamba", "gemma3", "gemma3n_text", "bart"]
UNSURE = {"gemma3n_text", "bart"}


@pytest.mark.parametrize("family", FAMILIES)
def test_it_is_what_the_library_makes_or_it_is_not_said(family) -> None:
    config = CONFIG_MAPPING[family]()
    said = layers_configured({"model_config": {"config": _clean(config.to_dict())}})
    assert said == (None if family in UNSURE else len(DynamicCache(config=config).layers))


def test_a_state_that_is_one_layer_short_throughout_is_not_whole(session, tmp_path) -> None:
    state = harness.capture_text(session("model=tiny").loaded, "let k be 5 .")
    described = state.documents["kv_format"]["layers"]
    short = replace(state, layers=state.layers[:-1]).document("kv_format", layers=described[:-1])
    with pytest.raises(SnapshotInvalid, match="1 layers are stored, the model's config has 2"):
        harness.save_state(short, tmp_path / "short")
