"""A LoRA adapter over a wrapped model is part of the identity: which, how built, switched on or off."""

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

import harness
from harness.errors import RestoreRefused, UnsupportedModel
from harness.model.build import SHIPPED

peft = pytest.importorskip("peft")
TEXT, STEPS = "let k be 5 . the bird sang .", 6


def lora() -> object:
    return peft.LoraConfig(
        r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False, task_type="CAUSAL_LM"
    )


@pytest.fixture
def adapted(tmp_path):
    """`(model, wrapped, place of its snapshot)`."""
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(SHIPPED["tiny"]).eval()
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED["tiny"])
    model = peft.get_peft_model(base, lora()).eval()
    wrapped = harness.wrap(model, tokenizer)
    harness.save_state(harness.capture_text(wrapped, TEXT), tmp_path / "mine")
    return model, wrapped, tmp_path / "mine"


def test_restored_it_says_what_generate_says(adapted) -> None:
    model, wrapped, place = adapted
    state = harness.load_state(place, wrapped)
    resumed = harness.resume(wrapped, state, steps=STEPS, eos_token_id=[])
    list(resumed)
    ids, mask = state.token_ids, state.attention_mask
    asked = {"max_new_tokens": STEPS, "do_sample": False, "eos_token_id": None}
    whole = model.generate(ids, attention_mask=mask, **asked)[0, state.tokens :].tolist()
    with model.disable_adapter():
        plain = model.generate(ids, attention_mask=mask, **asked)[0, state.tokens :].tolist()
    assert resumed.ids == whole != plain
    assert harness.judge(wrapped, state, steps=4).verdict in ("exact", "equivalent")


def test_what_was_switched_is_refused_by_name(adapted) -> None:
    model, wrapped, place = adapted
    with model.disable_adapter(), pytest.raises(RestoreRefused, match=r"adapters\.disabled"):
        harness.load_state(place, wrapped, verify="identity")
    model.add_adapter("other", lora())
    harness.load_state(place, wrapped)  # it lies there and computes nothing
    model.set_adapter("other")
    with pytest.raises(RestoreRefused, match=r"adapters\.active was \['default'\], is \['other'\]"):
        harness.load_state(place, wrapped, verify="identity")
    model.set_adapter("default")
    model.eval()
    harness.load_state(place, wrapped)
    model.merge_adapter()
    with pytest.raises(RestoreRefused, match=r"adapters\.merged"):
        harness.load_state(place, wrapped, verify="identity")


def test_virtual_tokens_are_refused() -> None:
    base = AutoModelForCausalLM.from_pretrained(SHIPPED["tiny"]).eval()
    settings = peft.PromptTuningConfig(num_virtual_tokens=3, task_type="CAUSAL_LM")
    with pytest.raises(UnsupportedModel, match="virtual tokens"):
        harness.wrap(peft.get_peft_model(base, settings).eval(), None)
