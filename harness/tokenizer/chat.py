"""`tokenizer=chat`: the chat template renders the turns; nothing is added to what it renders."""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from harness.errors import UnsupportedModel
from harness.tokenizer.policy import (
    Encoded,
    Encoder,
    Exchange,
    account,
    explained,
    plain,
    render,
)


class Chat(Encoder):
    """A text without turns is one turn of the user's."""

    def encode(self, tokenizer: Any, text: str, turns: Sequence[Any]) -> Encoded:
        turns = tuple(dict(t) for t in turns) or ({"role": "user", "content": text},)
        rendered = render(tokenizer, turns, generate=turns[-1]["role"] != "assistant")
        content = next((t["content"] for t in turns if t["role"] != "system"), "")
        ids, at = plain(tokenizer, rendered), rendered.find(content.strip())
        prefix = _before(tokenizer, ids, rendered[: max(at, 0)])
        return _encoded(tokenizer, ids, rendered, prefix, turns)

    def exchange(self, tokenizer: Any, context: str, question: str, answer: str) -> Exchange:
        """Context and question are one turn of the user's, cut where the question begins: a token that
        holds a part of both belongs to the question. White space before the answer is the template's."""
        asked = {"role": "user", "content": context + question}
        whole = explained(tokenizer, self.encode(tokenizer, "", [asked]))
        at = whole.text.find(asked["content"].strip())
        if at < 0:
            raise UnsupportedModel(
                "the chat template writes what the user says in other words, so where its question begins "
                "is not known. Use tokenizer=explicit."
            )
        at += len(context.lstrip())
        cut = _before(tokenizer, whole.ids, whole.text[:at])
        told = render(tokenizer, [asked, {"role": "assistant", "content": answer}], generate=False)
        rest = told[len(whole.text) :] if told.startswith(whole.text) else ""
        space = rest[: len(rest) - len(rest.lstrip())]
        return (
            _encoded(tokenizer, whole.ids[:cut], whole.text[:at], whole.prefix),
            _encoded(tokenizer, whole.ids[cut:], whole.text[at:]),
            explained(tokenizer, self.continuation(tokenizer, space + answer.lstrip())),
        )


def _before(tokenizer: Any, ids: tuple[int, ...], head: str) -> int:
    """How many of `ids` say nothing but `head`, which the text of them all begins with."""
    both = zip(plain(tokenizer, head), ids, strict=False)
    return len([*takewhile(lambda pair: pair[0] == pair[1], both)])


def _encoded(
    tokenizer: Any, ids: tuple[int, ...], text: str, prefix: int = 0, turns: tuple[Any, ...] = ()
) -> Encoded:
    known = set(tokenizer.all_special_ids)
    special = [i for i, t in enumerate(ids) if t in known]
    why = dict.fromkeys(special, "rendered by the chat template")
    return Encoded(ids, text, "chat", account(tokenizer, ids, why), prefix, turns)
