"""The sampler chooses what the library's `generate` chooses, and a pause in the middle changes nothing."""

import pytest
import torch
from transformers import GenerationConfig

import harness
from harness.config import SamplingConfig
from harness.errors import ConfigProblem, InputProblem
from harness.model.ending import Ended, Ending
from harness.model.sampler import Sampler

PROMPT = "let k be 5 . the bird sang in the tree . the bird sang ."
STEPS = 14
GREEDY = {
    "repetition_penalty": {"repetition_penalty": 1.8},
    "no_repeat_ngram_size": {"no_repeat_ngram_size": 2},
    "bad_words_ids": {"bad_words_ids": "pairs"},
    "suppress_tokens": {"suppress_tokens": "few"},
    "begin_suppress_tokens": {"begin_suppress_tokens": "few"},
    "sequence_bias": {"sequence_bias": "biased"},
    "min_new_tokens": {"min_new_tokens": 9, "eos_token_id": "few"},
    "min_length": {"min_length": 30, "eos_token_id": "few"},
    "exponential_decay": {"exponential_decay_length_penalty": [2, 3.0], "eos_token_id": [4]},
    "all": {"repetition_penalty": 1.2, "no_repeat_ngram_size": 3, "suppress_tokens": "few",
            "sequence_bias": "biased", "renormalize_logits": True, "remove_invalid_values": True},
}  # fmt: skip
SAMPLED = {
    "temperature": {"temperature": 1.7},
    "top_k": {"top_k": 5, "temperature": 1.5},
    "top_p": {"top_p": 0.7, "temperature": 2.0},
    "min_p": {"min_p": 0.2, "temperature": 2.0},
    "top_h": {"top_h": 0.5, "temperature": 2.0},
    "typical_p": {"typical_p": 0.6, "temperature": 1.5},
    "epsilon_cutoff": {"epsilon_cutoff": 0.02, "temperature": 1.5},
    "eta_cutoff": {"eta_cutoff": 0.02, "temperature": 1.5},
    "all": {"temperature": 1.4, "top_k": 40, "top_p": 0.95, "min_p": 0.02, "typical_p": 0.97,
            "repetition_penalty": 1.3, "no_repeat_ngram_size": 2, "suppress_tokens": "few"},
}  # fmt: skip
CASES = [("greedy", c) for c in GREEDY.items()] + [("sample", c) for c in SAMPLED.items()]


@pytest.fixture(scope="module", params=["tiny", pytest.param("tiny_gpt2", marks=pytest.mark.slow)])
def paused(request, session):
    """`(model, state, what it says unasked)`."""
    model = session(f"model={request.param}").loaded
    state = harness.capture_text(model, PROMPT)
    plain = harness.resume(model, state, steps=STEPS, eos_token_id=[])
    list(plain)
    return model, state, plain.ids


def asked(values: dict, plain: list[int]) -> dict:
    """The case's values, with ids that this model would really choose."""
    named = {"pairs": [[plain[0], plain[1]], [plain[3]]], "few": [plain[0], plain[2]],
             "biased": [[[plain[0]], -9.0], [[plain[1], plain[2]], -9.0], [[7], 1.5]]}  # fmt: skip
    return {k: named.get(v, v) if isinstance(v, str) else v for k, v in values.items()}


@pytest.mark.parametrize(("name", "case"), CASES, ids=lambda v: v if isinstance(v, str) else v[0])
def test_generate_chooses_the_same_and_so_does_a_resumed_half(paused, tmp_path, name, case) -> None:
    model, state, plain = paused
    values = {"eos_token_id": [], **asked(case[1], plain)}
    ends = {**values, "eos_token_id": values["eos_token_id"] or None}
    config = GenerationConfig(
        do_sample=name == "sample", max_new_tokens=STEPS, pad_token_id=0, **{"top_k": 0, **ends}
    )
    model.model.generation_config.eos_token_id, kept = (
        None,
        model.model.generation_config.eos_token_id,
    )
    try:
        torch.manual_seed(7)
        whole = model.model.generate(
            state.token_ids, attention_mask=state.attention_mask, generation_config=config
        )
    finally:
        model.model.generation_config.eos_token_id = kept
    whole = whole[0, state.tokens :].tolist()
    ours = harness.resume(model, state, steps=STEPS, sampling=name, seed=7, **values)
    list(ours)
    assert ours.ids == whole
    assert name == "sample" or ours.ids != plain  # the case moves something here

    half = harness.resume(model, state, steps=3, sampling=name, seed=7, **values)
    list(half)
    harness.save_state(half.state, tmp_path / "half")
    rest = harness.resume(model, harness.load_state(tmp_path / "half", model), steps=STEPS - 3)
    list(rest)
    assert rest.sampler.startswith("sampler: as saved (")
    assert half.ids + rest.ids == whole
    assert torch.equal(rest.state.rng, ours.state.rng)


def test_a_sampler_that_forgets_where_it_began_chooses_otherwise() -> None:
    model = harness.load_model("tiny")
    state = harness.capture_text(model, PROMPT)
    first = harness.resume(model, state, steps=4, eos_token_id=[])
    list(first)
    values = {"begin_suppress_tokens": [first.ids[3]], "eos_token_id": []}
    whole = harness.resume(model, state, steps=STEPS, **values)
    list(whole)
    half = harness.resume(model, state, steps=3, **values)
    list(half)
    forgetful = half.state.document("generation", begun=None)
    rest = harness.resume(model, forgetful, steps=STEPS - 3)
    list(rest)
    assert half.ids + rest.ids != whole.ids


def test_a_value_that_the_library_refuses_is_a_plain_message(paused) -> None:
    model, state, _ = paused
    with pytest.raises(ConfigProblem, match="vocabulary"):
        list(harness.resume(model, state, steps=2, sequence_bias=[[[10**6], 1.0]]))
    with pytest.raises(ConfigProblem, match="pairs of ids and bias"):
        SamplingConfig("greedy", sequence_bias=[[5, 1.0]])


def test_a_stop_text_is_seen_across_tokens_and_across_a_pause(paused) -> None:
    model, state, plain = paused
    said = [model.tokenizer.decode(plain[: n + 1]) for n in range(STEPS)]
    stop = said[6][len(said[3]) - 1 :]  # the last letter of one token and three whole ones
    whole = harness.resume(model, state, steps=STEPS, stop=[stop], eos_token_id=[])
    list(whole)
    first = next(n for n, text in enumerate(said) if stop in text)
    assert whole.ids == plain[: first + 1] and whole.text.endswith(stop)
    half = harness.resume(model, state, steps=first - 1, stop=[stop], eos_token_id=[])
    list(half)
    rest = harness.resume(model, half.state, steps=STEPS)
    list(rest)
    assert half.ids + rest.ids == whole.ids
    more = harness.resume(model, rest.state, steps=2)  # it has ended: what follows is a new one
    list(more)
    assert len(more.ids) == 2


def test_what_a_person_typed_ends_nothing() -> None:
    model = harness.load_model("tiny")
    state = harness.capture_text(model, "the man sang . the bird sang .")
    asked = harness.resume(model, state, " the man", steps=6, stop=["man"], eos_token_id=[])
    list(asked)
    assert len(asked.ids) == 6 or asked.text.count("man") == 1


def test_rows_end_for_themselves() -> None:
    ids = torch.tensor([[9, 1, 2, 3], [9, 3, 3, 1]])
    assert Ended(Ending(frozenset({2})), 1).rows(ids).tolist() == [True, False]
    assert Ended(Ending(frozenset({9})), 1).rows(ids).tolist() == [False, False]
    sampler = Sampler(SamplingConfig("greedy"), ending=Ending(frozenset({2}), pad=5))
    sampler._begin(1, None)
    logits = torch.nn.functional.one_hot(torch.tensor([7, 7]), 10).float()
    assert sampler.choose(logits, ids).tolist() == [[5], [7]]


def test_of_logits_that_are_no_numbers_nothing_is_drawn() -> None:
    ids, logits = torch.tensor([[9, 1, 2]]), torch.zeros(1, 10, dtype=torch.float16)
    sampler = Sampler(SamplingConfig("sample"))
    sampler.choose(logits.index_fill(1, torch.tensor([4]), -torch.inf), ids)  # ruled out, no more
    for value in (torch.nan, torch.inf):
        with pytest.raises(InputProblem, match=r"^after 3 tokens .* in float16, .*dtype=bfloat16"):
            sampler.choose(logits.index_fill(1, torch.tensor([4]), value), ids)


DECLARED = {
    "sampled": {"do_sample": True, "temperature": 1.6, "top_k": 9, "min_p": 0.01},
    "sampled, as the library fills it up": {"do_sample": True},
    "greedy": {"repetition_penalty": 1.6, "no_repeat_ngram_size": 2},
}


@pytest.mark.parametrize("values", DECLARED.values(), ids=list(DECLARED))
def test_a_folder_says_how_it_wants_to_be_sampled(tmp_path, session, values) -> None:
    """By `generate` with no argument of its own, and by the folder's file once more changed."""
    tiny = session("model=tiny").loaded
    tiny.model.save_pretrained(tmp_path / "model")
    tiny.tokenizer.save_pretrained(tmp_path / "model")
    GenerationConfig(pad_token_id=0, **values).save_pretrained(tmp_path / "model")
    model = harness.load_model(str(tmp_path / "model"))
    state = harness.capture_text(model, PROMPT)

    def ours() -> list[int]:
        resumed = harness.resume(model, state, steps=STEPS, sampling="generation_config", seed=7)
        list(resumed)
        return resumed.ids

    torch.manual_seed(7)
    whole = model.model.generate(
        state.token_ids, attention_mask=state.attention_mask, max_new_tokens=STEPS
    )
    assert ours() == whole[0, state.tokens :].tolist()
    model.model.generation_config.suppress_tokens = [int(whole[0, state.tokens])]
    assert ours() != whole[0, state.tokens :].tolist()
