"""The state of a model object of Python is taken up by a command, once that model is a folder."""

from transformers import AutoTokenizer, LlamaConfig, LlamaForCausalLM

from harness import api
from harness.model.build import SHIPPED


def test_a_model_that_no_command_knows_is_named_by_its_folder_once(harness, place) -> None:
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED["tiny"])
    size = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 2}  # fmt: skip
    model = LlamaForCausalLM(LlamaConfig(vocab_size=len(tokenizer), **size)).eval()
    mine = api.wrap(model, tokenizer)
    api.save_state(api.capture_text(mine, "let k be 5 ."), "made")
    resumed = ("task=resume", "text= what", "steps=1")
    unknown = harness(*resumed, "snapshot=made", "out=on")
    assert unknown.code == 2 and "model=wrapped" not in unknown.out
    assert "was saved from a LlamaForCausalLM of Python" in unknown.out
    model.save_pretrained("mine")
    tokenizer.save_pretrained("mine")
    first = harness(*resumed, "snapshot=made", "out=on", "model=path", "model.path=mine")
    assert first.code == 0, first.out
    assert "task=resume snapshot=on" in first.out  # what it prints goes on by itself
    again = harness(*resumed, "snapshot=on")
    assert again.code == 0 and f"model {place / 'mine'}" in again.out, again.out
