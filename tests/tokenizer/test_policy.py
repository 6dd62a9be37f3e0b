"""One module adds tokens, and accounts for each; the length is the length of what is sent."""

import copy
import resource
import time
from functools import partialmethod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.confined import Confined
from harness.errors import InputProblem, UnsupportedModel
from harness.tokenizer import policy, state
from harness.tokenizer.policy import render

TURNS = [{"role": "user", "content": "let k be 5 ."}, {"role": "assistant", "content": "ok ."},
         {"role": "user", "content": "what is k ?"}]  # fmt: skip


@pytest.fixture
def tokenizer(session):
    return session().loaded.tokenizer


def test_explicit_places_one_bos_and_says_so(tokenizer) -> None:
    made = policy.encode("explicit", tokenizer, "let k be 5 .")
    assert made.ids.count(tokenizer.bos_token_id) == 1 and made.ids[0] == tokenizer.bos_token_id
    assert [(a["index"], a["id"]) for a in made.account] == [(0, tokenizer.bos_token_id)]
    assert "on purpose" in made.account[0]["why"]
    assert made.prefix == 1


def test_explicit_never_doubles_a_bos_that_is_typed(tokenizer) -> None:
    made = policy.encode("explicit", tokenizer, f"{tokenizer.bos_token}let k be 5 .")
    assert made.ids.count(tokenizer.bos_token_id) == 1
    assert made.account[0]["why"] == "written in the text itself"


def test_raw_adds_nothing(tokenizer) -> None:
    made = policy.encode("raw", tokenizer, "let k be 5 .")
    assert made.account == () and made.prefix == 0
    assert made.ids == policy.encode("explicit", tokenizer, "let k be 5 .").ids[1:]


def test_library_accounts_for_what_the_tokenizer_adds(tokenizer) -> None:
    made = policy.encode("library", tokenizer, "let k be 5 .")
    assert made.ids[0] == tokenizer.bos_token_id
    assert "behind your back" in made.account[0]["why"]
    doubled = policy.encode("library", tokenizer, f"{tokenizer.bos_token}let k be 5 .")
    assert doubled.ids[:2] == (tokenizer.bos_token_id,) * 2
    assert len(doubled.account) == 2


def test_chat_renders_the_template_and_adds_nothing_to_it(tokenizer) -> None:
    made = policy.encode("chat", tokenizer, "", TURNS)
    rendered = tokenizer.apply_chat_template(TURNS, tokenize=False, add_generation_prompt=True)
    assert made.text == rendered
    assert made.ids == tuple(tokenizer(rendered, add_special_tokens=False)["input_ids"])
    assert made.ids.count(tokenizer.bos_token_id) == 1
    assert all("template" in a["why"] for a in made.account)
    assert 0 < made.prefix < len(made.ids)


def test_a_continuation_never_starts_again(tokenizer) -> None:
    assert (
        tokenizer.bos_token_id not in policy.continuation("explicit", tokenizer, " what is k ?").ids
    )
    assert tokenizer.bos_token_id in policy.continuation("library", tokenizer, " what is k ?").ids


def test_a_model_without_a_template_is_refused_plainly(tokenizer) -> None:
    import copy

    bare = copy.deepcopy(tokenizer)
    bare.chat_template = None
    with pytest.raises(UnsupportedModel, match="no chat template"):
        policy.encode("chat", bare, "hello")


def test_an_empty_prompt_is_refused(tokenizer) -> None:
    with pytest.raises(InputProblem, match="empty"):
        policy.encode("raw", tokenizer, "")


@settings(max_examples=60, deadline=None)
@given(text=st.text(min_size=1, max_size=60))
def test_every_special_token_has_exactly_one_row(text: str) -> None:
    from transformers import AutoTokenizer

    from harness.model.build import SHIPPED

    tokenizer = AutoTokenizer.from_pretrained(SHIPPED["tiny"])
    for name in ("explicit", "raw", "library"):
        try:
            made = policy.encode(name, tokenizer, text)
        except InputProblem:
            continue
        special = [i for i, t in enumerate(made.ids) if t in set(tokenizer.all_special_ids)]
        assert [a["index"] for a in made.account] == special


def test_the_fingerprint_sees_rules_vocabulary_and_template(tokenizer) -> None:
    import copy

    base = state.document(tokenizer)
    other = copy.deepcopy(tokenizer)
    other.chat_template = (other.chat_template or "") + " "
    assert state.document(other)["template"] != base["template"]
    other = copy.deepcopy(tokenizer)
    other.add_tokens(["zzzz"])
    changed = state.document(other)
    assert changed["vocabulary"] != base["vocabulary"] and changed["rules"] != base["rules"]
    assert state.document(copy.deepcopy(tokenizer)) == base


@pytest.mark.parametrize("call", [0, 1])
@pytest.mark.parametrize("kind", ["explicit", "raw"])
def test_a_tokenizer_that_adds_what_it_was_told_not_to_is_refused(tokenizer, kind, call) -> None:
    class Adding:
        """A wrapper that puts a BOS before every text from its second call on."""

        calls = 0

        def __getattr__(self, name):
            return getattr(tokenizer, name)

        def __call__(self, text, **named):
            encoding = tokenizer(text, **named)
            self.calls += 1
            first = [tokenizer.bos_token_id] if self.calls > call else []
            return {"input_ids": [*first, *encoding["input_ids"]]}

    with pytest.raises(InputProblem, match="although add_special_tokens=False"):
        policy.continuation(kind, Adding(), " what is k ?")
    assert policy.continuation(kind, tokenizer, " what is k ?").account == ()


@pytest.mark.parametrize(
    "add, account, honest",
    [
        ((1,), "", False),  # a BOS that nobody owns up to
        ((1,), "row", True),
        ((1, 1), "row", False),  # two, of which one is accounted for
        ((9,), "", False),  # a word that is not in the text
        ((), "row", False),  # a row for a token that is not there
        ((), "", True),
    ],
)
def test_the_account_explains_every_id(tokenizer, monkeypatch, add, account, honest) -> None:
    class Adding(policy.Encoder):
        def encode(self, tokenizer, text, turns):
            ids = (*add, *policy.plain(tokenizer, text))
            rows = ({"index": 0, "id": 1, "token": "<bos>", "why": "ours"},) if account else ()
            return policy.Encoded(ids, text, "adding", rows)

        def continuation(self, tokenizer, text):
            return self.encode(tokenizer, text, ())

    monkeypatch.setattr(policy, "encoder", lambda _: Adding(None))
    for ask in (policy.encode, policy.continuation):
        if honest:
            assert ask("adding", tokenizer, " what is k ?").ids[: len(add)] == add
        else:
            with pytest.raises(InputProblem, match="account"):
                ask("adding", tokenizer, " what is k ?")


def test_a_tokenizer_that_knows_nothing_of_the_text_is_not_an_empty_prompt():
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    nothing = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()))
    with pytest.raises(InputProblem, match="knows nothing of the text"):
        policy.encode("raw", nothing, "hello there")
    with pytest.raises(InputProblem, match="the prompt is empty"):
        policy.encode("raw", nothing, "")
    with pytest.raises(InputProblem, match="is only spaces"):
        policy.encode("raw", nothing, "   ")


def test_a_beginning_alone_is_not_what_a_text_says():
    """With a BOS before it nothing looked empty, and the model read none of the text."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    nothing = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(models.BPE()), bos_token="<s>")
    assert policy.encode("explicit", nothing, "").ids == (0,)
    with pytest.raises(InputProblem, match="knows nothing of the text"):
        policy.encode("explicit", nothing, "hello there")
    with pytest.raises(InputProblem, match="knows nothing of the text"):
        policy.continuation("explicit", nothing, "hello there")
    assert policy.continuation("explicit", nothing, "").ids == ()


def test_spaces_alone_are_a_text_where_there_are_tokens_for_them(tokenizer):
    assert (
        policy.encode("explicit", tokenizer, "   ").ids[1:] == policy.plain(tokenizer, "   ") != ()
    )


ENDLESS = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{% endfor %}{% endfor %}{% endfor %}"
DOUBLED = "{% set ns = namespace(x='a') %}{% for i in range(60) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}{{ ns.x }}"
WICKED = {
    "loops in loops": ENDLESS,
    "a long text": "{{ 'a' * 20000000000 }}",
    "a long text, folded": "{% set n = 20000000000 %}{{ 'a' * n }}",
    "a text doubled": DOUBLED,
    "a wide text": "{{ 'a'.center(20000000000) }}",
    "a macro that calls itself twice": "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ m(200) }}",
    "much text in little memory": "{% for i in range(99999) %}{{ 'a' * 2000 }}{% endfor %}",
    "parentheses": "{{ " + "(" * 50_000 + ")" * 50_000 + " }}",
    "a message of its own": "{{ raise_exception('no\x1b[2J') }}",
}


@pytest.mark.parametrize("template", WICKED.values(), ids=WICKED)
def test_a_template_that_takes_too_much_is_refused(tokenizer, monkeypatch, template) -> None:
    """A template is a program out of the model's folder: neither its time nor its memory is ours."""
    bare = copy.deepcopy(tokenizer)
    bare.chat_template = template
    monkeypatch.setattr(Confined, "ask", partialmethod(Confined.ask, seconds=2))
    start, before = time.monotonic(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(UnsupportedModel, match="the chat template refuses these turns: "):
        render(bare, TURNS, generate=True)
    assert time.monotonic() - start < 15
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 300 << 10


def test_what_a_template_says_comes_back_whole(tokenizer) -> None:
    bare = copy.deepcopy(tokenizer)
    bare.chat_template = "{{ messages[0]['content'] }}"
    for said in ("", "é\n\U0001f600\ud800 .", "a" * 3_000_000):
        turns = [{"role": "user", "content": said}]
        assert render(bare, turns, generate=False) == said
