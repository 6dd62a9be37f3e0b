"""Batches from Python: rows of unequal length, each with an end of its own."""

import pytest
import torch
from transformers import AutoTokenizer, DynamicCache, LlamaConfig, LlamaForCausalLM

import harness
from harness.errors import InputProblem
from harness.model.build import SHIPPED

TEXTS = ["let k be 5 . the bird sang in the tree .", "the man put the stone"]
STEPS = 8


@pytest.fixture(scope="module")
def model():
    return harness.load_model("tiny")


def alone(model, text: str, more: str = "", **options) -> list[int]:
    resumed = harness.resume(model, harness.capture_text(model, text), more, STEPS, **options)
    list(resumed)
    return resumed.ids


def test_each_row_says_what_it_says_alone(model, tmp_path) -> None:
    state = harness.capture_text(model, TEXTS)
    assert state.batch == 2 and not bool(state.attention_mask.all())
    harness.save_state(state, tmp_path / "two")
    back = harness.load_state(tmp_path / "two", model)
    resumed = harness.resume(model, back, " what is k ?", STEPS, eos_token_id=[])
    pieces = list(resumed)
    assert resumed.ids == [alone(model, t, " what is k ?", eos_token_id=[]) for t in TEXTS]
    assert tuple("".join(row) for row in zip(*pieces, strict=True)) == resumed.text
    assert harness.judge(model, resumed.state, steps=4).verdict in ("exact", "equivalent")


def test_a_row_that_ended_is_frozen_with_padding_and_stays_so(model) -> None:
    plain = [alone(model, text, eos_token_id=[]) for text in TEXTS]
    end = next(i for i in plain[0] if i not in plain[1])
    first = plain[0].index(end) + 1
    state = harness.capture_text(model, TEXTS, eos_token_id=[end])
    whole = harness.resume(model, state, steps=STEPS)
    list(whole)
    assert whole.rows == [plain[0][:first], plain[1]]
    pad = model.tokenizer.pad_token_id
    assert whole.state.token_ids[0, state.tokens + first :].tolist() == [pad] * (STEPS - first)
    half = harness.resume(model, state, steps=first)
    list(half)
    rest = harness.resume(model, half.state, steps=STEPS - first)
    list(rest)
    assert rest.rows == [[], plain[1][first:]]


def test_repetition_is_counted_without_the_padding(model) -> None:
    both = harness.capture_text(model, TEXTS, repetition_penalty=1.6, eos_token_id=[])
    resumed = harness.resume(model, both, steps=STEPS)
    list(resumed)
    asked = {"repetition_penalty": 1.6, "eos_token_id": []}
    assert resumed.ids == [alone(model, text, **asked) for text in TEXTS]


def test_texts_of_unequal_length_cannot_go_on_together(model) -> None:
    state = harness.capture_text(model, TEXTS)
    with pytest.raises(InputProblem, match="grow by the same number"):
        harness.resume(model, state, [" what", " what is k ?"])
    with pytest.raises(InputProblem, match="3 texts for the 2 rows"):
        harness.resume(model, state, ["a", "b", "c"])
    told = harness.resume(model, state, [" what", " the"], steps=2)
    list(told)
    assert told.state.token_ids[0, state.tokens] != told.state.token_ids[1, state.tokens]


def test_a_padded_cache_goes_in_and_out_and_generates_the_same(model) -> None:
    state = harness.capture_text(model, TEXTS)
    ids, mask, inner = state.token_ids, state.attention_mask, model.model
    cache = DynamicCache(config=inner.config)
    with torch.no_grad():
        where = (mask.cumsum(1) - 1).clamp(min=0)
        inner(ids, attention_mask=mask, position_ids=where, past_key_values=cache)
    mine = harness.from_cache(model, cache, ids, mask)
    again = harness.resume(model, mine, steps=STEPS, eos_token_id=[])
    list(again)
    assert again.ids == [alone(model, text, eos_token_id=[]) for text in TEXTS]
    asked = {"max_new_tokens": STEPS - 1, "do_sample": False, "eos_token_id": None}
    first = mine.logits.argmax(-1, keepdim=True)
    told = inner.generate(
        torch.cat([ids, first], 1), attention_mask=torch.cat([mask, torch.ones_like(first)], 1),
        past_key_values=harness.to_cache(mine, model), pad_token_id=2, **asked,
    )  # fmt: skip
    assert told[:, ids.shape[1] :].tolist() == again.ids


def test_ids_without_text_are_counted_at_the_end() -> None:
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED["tiny"])
    config = LlamaConfig(
        vocab_size=1200, hidden_size=32, intermediate_size=32, num_hidden_layers=1,
        num_attention_heads=2, tie_word_embeddings=False,
    )  # fmt: skip
    inner = LlamaForCausalLM(config).eval()
    with torch.no_grad():
        inner.lm_head.weight.zero_()
        inner.lm_head.weight[1150] = torch.ones(32)  # one of these two is the most likely
        inner.lm_head.weight[1151] = -torch.ones(32)
    model = harness.wrap(inner, tokenizer)
    run = harness.resume(model, harness.capture_text(model, "let k be 5 ."), steps=3)
    with pytest.warns(UserWarning, match="3 of 3 generated ids have no text"):
        assert list(run) == [] and set(run.ids) <= {1150, 1151}
