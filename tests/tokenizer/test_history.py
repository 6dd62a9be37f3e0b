"""A growing chat has the ids that tokenizing all of it gives, whatever its turns say."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from harness.tokenizer.history import History
from harness.tokenizer.policy import encode

BETWEEN = "{% for m in messages %}{{ m.content }}<s>{% endfor %}"
NOTHING = "{% for m in messages %}u:{{ m.content }}{% endfor %}"


@pytest.fixture(scope="module", params=["tiny", "tiny_gpt2", "tiny_gemma3"])
def tokenizer(request, session):
    return session(f"model={request.param}").loaded.tokenizer


def asked(texts):
    """The chat before each answer: user, assistant, user, and so on."""
    roles = ("user", "assistant")
    turns = [{"role": roles[i % 2], "content": text} for i, text in enumerate(texts)]
    return [turns[: i + 1] for i in range(0, len(turns), 2)]


class Counting:
    """A tokenizer that counts the characters it is given."""

    def __init__(self, tokenizer):
        self._tokenizer, self.characters = tokenizer, 0

    def __call__(self, text, **rest):
        self.characters += len(text)
        return self._tokenizer(text, **rest)

    def __getattr__(self, name):
        return getattr(self._tokenizer, name)


words = st.text(
    st.sampled_from("ab .?5  \n<>|s/\u00e9\u4e2d"), max_size=12
) | st.sampled_from(["<s>", "</s>", "what is k ?", " <s>", "the bird  sang"])  # fmt: skip


@settings(max_examples=60, deadline=None)
@given(texts=st.lists(words.map(lambda text: "k" + text), min_size=1, max_size=9))
def test_it_is_the_whole_chat_tokenized(tokenizer, texts):
    history = History(tokenizer)
    for turns in asked(texts):
        whole = encode("chat", tokenizer, "", turns)
        found = history.encode(turns)
        assert found.ids == whole.ids and found.text == whole.text


def test_a_long_chat_costs_what_its_last_turns_cost(tokenizer):
    counted = Counting(tokenizer)
    history, costs = History(counted), []
    for turns in asked(["the old man walked to the river ."] * 41):
        before = counted.characters
        history.encode(turns)
        costs.append(counted.characters - before)
    assert max(costs[2:]) <= 2 * min(costs[2:])
    assert costs[-1] < len(history._text) / 8


def test_a_chat_that_was_changed_is_tokenized_anew(tokenizer):
    history = History(tokenizer)
    turns = asked(["what is k ?", "5", "and m ?", "7", "the bird"])
    for one in turns:
        history.encode(one)
    other = [{**turns[-1][0], "content": "what is x ?"}, *turns[-1][1:]]
    assert history.encode(other).ids == encode("chat", tokenizer, "", other).ids
    assert history.encode(turns[0]).ids == encode("chat", tokenizer, "", turns[0]).ids


def test_ids_that_do_not_go_on_from_the_known_ones_are_not_trusted(tokenizer):
    history = History(tokenizer)
    turns = asked(["what is k ?", "5", "and m ?", "7", "the bird"])
    for one in turns[:2]:
        history.encode(one)
    history._ids = (*history._ids[:-1], history._ids[-1] + 1)
    assert history.encode(turns[2]).ids == encode("chat", tokenizer, "", turns[2]).ids


def built(normalizer=None, pre_tokenizer=None, template=BETWEEN, **flags):
    """A tokenizer of single characters, with one special token that knows `flags`."""
    known = {c: i for i, c in enumerate(["<unk>", *"\u2581abu: "])}
    one = Tokenizer(models.BPE(vocab=known, merges=[], unk_token="<unk>"))
    if normalizer:
        one.normalizer = normalizer
    if pre_tokenizer:
        one.pre_tokenizer = pre_tokenizer
    one.add_special_tokens([AddedToken("<s>", **flags)])
    made = PreTrainedTokenizerFast(tokenizer_object=one, unk_token="<unk>", bos_token="<s>")
    made.chat_template = template
    return made


ODD = {
    "unknown first": {"pre_tokenizer": pre_tokenizers.Metaspace()},
    "prepended": {"normalizer": normalizers.Prepend("\u2581")},
    "nothing between": {"normalizer": normalizers.Prepend("\u2581"), "template": NOTHING},
    "lstrip": {"lstrip": True, "pre_tokenizer": pre_tokenizers.Metaspace(prepend_scheme="first")},
    "rstrip": {"rstrip": True, "pre_tokenizer": pre_tokenizers.Metaspace()},
    "normalized": {"normalized": True, "normalizer": normalizers.Lowercase()},
    "stripped": {"normalizer": normalizers.Strip()},
    "single words": {"single_word": True},
}


@pytest.mark.parametrize("name", ODD)
@settings(max_examples=80, deadline=None)
@given(texts=st.lists(st.text("ab: \u2603", min_size=1, max_size=4), min_size=1, max_size=9))
def test_odd_tokenizers_are_not_taken_by_surprise(name, texts):
    odd = built(**ODD[name])
    history = History(odd)
    for turns in asked(texts):
        assert history.encode(turns).ids == encode("chat", odd, "", turns).ids
