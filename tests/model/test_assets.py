"""The shipped tiny model: it loads offline, it recalls, it can fail, and its recipe is seeded."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from harness.model.assets import corpus, curriculum, facts
from harness.model.assets.recall import (
    DISTANCES,
    FORMS,
    held_out_dialogues,
    long_chat_answers,
    measure_perplexity,
    measure_recall,
    overall,
)
from harness.model.assets.train import TINY_DIR, main

STAGES = (
    curriculum.pairs_document,
    curriculum.separated_document,
    curriculum.sentences_document,
    curriculum.plain_document,
    curriculum.chat_document,
)


@pytest.fixture(scope="module", autouse=True)
def _offline(tmp_path_factory: pytest.TempPathFactory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HUB_OFFLINE", "1")
        patch.setenv("HF_HOME", str(tmp_path_factory.mktemp("empty_hub")))
        yield


@pytest.fixture(scope="module")
def model():
    return AutoModelForCausalLM.from_pretrained(TINY_DIR).eval()


@pytest.fixture(scope="module")
def tokenizer():
    return AutoTokenizer.from_pretrained(TINY_DIR)


def _words(document: curriculum.Document) -> list[str]:
    return [word.strip() for word, _ in document]


def _defined(words: list[str]) -> set[tuple[str, str]]:
    """Pairs that a training document puts together, whatever its stage writes between them."""
    names, values = set(corpus.NAMES), set(corpus.VALUES)
    out = set()
    for at, word in enumerate(words):
        for ahead in (1, 2):
            after = words[at + ahead : at + ahead + 1]
            between = words[at + 1 : at + ahead]
            if word in names and after and after[0] in values and set(between) <= {"be", "is"}:
                out.add((word, after[0]))
    return out


# --- the directory ------------------------------------------------------------------------------


def test_directory_is_complete_and_small():
    names = {path.name for path in TINY_DIR.iterdir()}
    assert names >= {
        "chat_template.jinja",
        "config.json",
        "generation_config.json",
        "model.safetensors",
        "tokenizer.json",
        "tokenizer_config.json",
    }
    assert sum(path.stat().st_size for path in TINY_DIR.iterdir()) <= 8 * 2**20


def test_model_shape(model, tokenizer):
    config = model.config
    assert config.model_type == "llama"
    assert config.num_key_value_heads < config.num_attention_heads
    assert config.max_position_embeddings == 4096
    assert config.tie_word_embeddings is False
    assert config.vocab_size == len(tokenizer)
    assert model.dtype == torch.float32
    assert config._attn_implementation == "sdpa"


# --- recall -------------------------------------------------------------------------------------


def test_recalls_held_out_dialogues(model, tokenizer):
    rows = measure_recall(model, tokenizer, dialogues=120)
    assert {row["distance"] for row in rows} == set(DISTANCES)
    assert {row["form"] for row in rows} == set(FORMS)
    assert overall(rows) >= 0.95
    assert overall(rows, form="plain") >= 0.95
    assert overall(rows, form="chat") >= 0.95
    assert overall(rows, distance=256) >= 0.9


def test_recall_does_not_depend_on_absolute_positions(model, tokenizer):
    rows = measure_recall(model, tokenizer, dialogues=30, shift=2000)
    assert overall(rows) >= 0.95


@pytest.mark.parametrize("part", ["k_proj", "embed_tokens"])
def test_corrupted_twin_fails(tokenizer, part):
    twin = AutoModelForCausalLM.from_pretrained(TINY_DIR).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in twin.named_parameters():
            if part in name:
                weight.copy_(weight[torch.randperm(weight.shape[0], generator=generator)])
    assert overall(measure_recall(twin, tokenizer, dialogues=60)) < 0.5


def test_greedy_generation_answers_the_projects_own_text(model, tokenizer):
    inputs = tokenizer("let k be 5 . the bird sang . what is k ?", return_tensors="pt")
    out = model.generate(**inputs, max_new_tokens=12)[0, inputs["input_ids"].shape[1] :]
    assert tokenizer.decode(out).startswith(" k is 5 .")


def test_recall_measure_agrees_with_generation(model, tokenizer):
    for dialogue in held_out_dialogues("plain", 64, 5, seed=7):
        inputs = tokenizer(dialogue.text, return_tensors="pt")
        out = model.generate(**inputs, max_new_tokens=4)[0, inputs["input_ids"].shape[1] :]
        assert tokenizer.decode(out) == dialogue.answer


def test_chat_generation_ends_its_turn(model, tokenizer):
    for dialogue in held_out_dialogues("chat", 64, 5, seed=7):
        inputs = tokenizer.apply_chat_template(
            list(dialogue.turns), add_generation_prompt=True, return_tensors="pt", return_dict=True
        )
        out = model.generate(**inputs, max_new_tokens=8)[0, inputs["input_ids"].shape[1] :]
        assert tokenizer.decode(out) == dialogue.answer + facts.END


def test_answers_within_long_chats(model, tokenizer):
    right, asked, length = long_chat_answers(model, tokenizer, chats=4)
    assert length > 600
    assert asked >= 12
    assert right >= 0.9 * asked


def test_first_tokens_matter_to_a_windowed_cache(model, tokenizer):
    perplexity = measure_perplexity(model, tokenizer, tokens=256)
    assert perplexity["full"] < 5
    assert perplexity["window 64"] >= perplexity["window 64 + first 4"]


# --- tokenizer ----------------------------------------------------------------------------------


@settings(max_examples=200, deadline=None)
@given(text=st.text(max_size=40))
def test_tokenizer_round_trips_any_text(tokenizer, text):
    ids = tokenizer.encode(text, add_special_tokens=False)
    assert tokenizer.decode(ids) == text


@pytest.mark.parametrize("text", [" what is k ?", "   three spaces", "\n\n x", "你好 мир 🙂", ""])
def test_tokenizer_round_trips_leading_spaces(tokenizer, text):
    assert tokenizer.decode(tokenizer.encode(text, add_special_tokens=False)) == text


def test_default_call_adds_bos_and_nothing_else(tokenizer):
    bare = tokenizer("let k be 5 .", add_special_tokens=False)["input_ids"]
    assert tokenizer.bos_token_id not in bare
    assert tokenizer("let k be 5 .")["input_ids"] == [tokenizer.bos_token_id, *bare]
    assert tokenizer(" what is k ?")["input_ids"][0] == tokenizer.bos_token_id


def test_a_word_of_the_corpus_is_one_token(tokenizer):
    for word in corpus.vocabulary() | set(corpus.NAMES) | set(corpus.VALUES) | {"let", "be", "ok"}:
        assert len(tokenizer.encode(" " + word, add_special_tokens=False)) == 1, word


def test_control_tokens_are_single_and_distinct(tokenizer):
    ids = [tokenizer.encode(t, add_special_tokens=False) for t in facts.CONTROL_TOKENS]
    assert all(len(i) == 1 for i in ids)
    assert len({i[0] for i in ids}) == len(facts.CONTROL_TOKENS)


def test_chat_template_renders_as_documented(tokenizer):
    turns = [
        {"role": "system", "content": "you are a careful assistant ."},
        {"role": "user", "content": "let k be 5 ."},
        {"role": "assistant", "content": " ok ."},
        {"role": "user", "content": "what is k ?"},
    ]
    expected = (
        "<bos><system> you are a careful assistant .<end><user> let k be 5 .<end>"
        "<assistant> ok .<end><user> what is k ?<end><assistant>"
    )
    text = tokenizer.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    assert text == expected == corpus.render_chat(turns, add_generation_prompt=True)
    ids = tokenizer.apply_chat_template(turns, add_generation_prompt=True)["input_ids"]
    assert ids == tokenizer.encode(text, add_special_tokens=False)
    assert ids.count(tokenizer.bos_token_id) == 1
    assert tokenizer.encode(text)[:2] == [tokenizer.bos_token_id] * 2


# --- corpus -------------------------------------------------------------------------------------


def test_training_and_held_out_do_not_overlap():
    trained: set[tuple[str, str]] = set()
    for seed in range(40):
        for make in STAGES:
            trained |= _defined(_words(make(random.Random(seed), 300)))
    held_out: set[tuple[str, str]] = set()
    for form in FORMS:
        for distance in DISTANCES:
            for dialogue in held_out_dialogues(form, distance, 20, seed=0):
                held_out |= set(dialogue.definitions)
    assert len(trained) > 300
    assert len(held_out) > 300
    assert not trained & held_out
    assert not any(corpus.is_held_out(*pair) for pair in trained)
    assert all(corpus.is_held_out(*pair) for pair in held_out)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("distance", [10, 11, 16, 47, *DISTANCES])
def test_distance_is_counted_in_tokens(tokenizer, form, distance):
    for dialogue in held_out_dialogues(form, distance, 10, seed=3):
        sentence = facts.define(dialogue.name, dialogue.value)
        begin = dialogue.text.index(sentence) + len(sentence)
        between = dialogue.text[begin : dialogue.text.rindex(" what is ")]
        assert len(tokenizer.encode(between, add_special_tokens=False)) == distance


def test_dialogues_have_distinct_names_and_values():
    for form in FORMS:
        for dialogue in held_out_dialogues(form, 128, 25, seed=5):
            names, values = zip(*dialogue.definitions, strict=True)
            assert len(set(names)) == len(names) == len(set(values))
            assert (dialogue.name, dialogue.value) in dialogue.definitions
            assert dialogue.answer == f" {dialogue.name} is {dialogue.value} ."


def test_corpus_is_deterministic():
    for make in STAGES:
        assert make(random.Random(1), 200) == make(random.Random(1), 200)
        assert make(random.Random(1), 200) != make(random.Random(2), 200)
    assert corpus.prose(random.Random(1), 20) == corpus.prose(random.Random(1), 20)
    first, second = (held_out_dialogues("chat", 64, 5, seed=1) for _ in range(2))
    assert first == second


def test_long_chat_alternates_and_answers_rightly():
    turns = corpus.chat_turns(random.Random(4), 40)
    assert len(turns) == 40
    assert [t["role"] for t in turns] == ["user", "assistant"] * 20
    known: dict[str, str] = {}
    asked = 0
    for question, reply in zip(turns[::2], turns[1::2], strict=True):
        words = question["content"].split()
        if words[0] == "let":
            known[words[1]] = words[3]
        if words[:2] == ["what", "is"]:
            asked += 1
            assert reply["content"] == f"{words[2]} is {known[words[2]]} ."
    assert asked >= 2


@pytest.mark.slow
def test_recipe_runs_end_to_end(tmp_path: Path):
    main(["--out", str(tmp_path), "--scale", "0.02"])
    small = AutoModelForCausalLM.from_pretrained(tmp_path).eval()
    again = AutoTokenizer.from_pretrained(tmp_path)
    assert (tmp_path / "tokenizer.json").read_bytes() == (TINY_DIR / "tokenizer.json").read_bytes()
    assert measure_recall(small, again, dialogues=12)
    shipped = AutoModelForCausalLM.from_pretrained(TINY_DIR)
    assert small.config.to_dict() == {
        **shipped.config.to_dict(),
        "_name_or_path": small.config._name_or_path,
    }
