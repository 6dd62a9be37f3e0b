"""The ids of a chat that grows, without tokenizing all of it again at every turn."""

from collections.abc import Sequence
from typing import Any

from harness.tokenizer.policy import Encoded, render


class History:
    """Renders a growing chat and tokenizes the last turns only, where that gives the same ids.

    A tokenizer splits a text at its added tokens before it looks at anything else, so what lies
    before one has the same ids whatever follows. From the first added token of the latest turn on,
    everything is tokenized anew, and must begin with the ids known from the time before: if it does
    not, or if the text before it changed, all is tokenized as if it were new.
    """

    def __init__(self, tokenizer: Any):
        self._tokenizer = tokenizer
        self._text = ""
        self._ids: tuple[int, ...] = ()
        self._cut = (0, 0)  # characters and ids before what is tokenized anew

    def encode(self, turns: Sequence[Any]) -> Encoded:
        """The chat as the template renders it, with the ids that tokenizing all of it gives. No
        account of its special tokens. Raises UnsupportedModel as `render` does."""
        text = render(self._tokenizer, turns, generate=turns[-1]["role"] != "assistant")
        at, count = self._cut
        known = self._ids[count:]
        ids, offsets = self._tokenized(text[at:])
        if at and not (text.startswith(self._text) and ids[: len(known)] == known):
            at = count = 0
            ids, offsets = self._tokenized(text)
        end = len(self._text)
        self._text, self._ids, self._cut = text, (*self._ids[:count], *ids), (0, 0)
        added = self._tokenizer.added_tokens_decoder
        for index, (token, (start, stop)) in enumerate(zip(ids, offsets, strict=False)):
            if at + start >= max(end, 1) and _splits(
                added.get(token), text[at + start : at + stop]
            ):
                self._cut = (at + start, count + index)
                break
        return Encoded(self._ids, text, "chat", turns=tuple(turns))

    def _tokenized(self, text: str) -> tuple[tuple[int, ...], Sequence[tuple[int, int]]]:
        """Ids, and where each is in `text`; no places from a tokenizer that cannot tell."""
        fast = self._tokenizer.is_fast
        encoding = self._tokenizer(
            text, add_special_tokens=False, return_offsets_mapping=fast, verbose=False
        )
        return tuple(encoding["input_ids"]), encoding["offset_mapping"] if fast else ()


def _splits(token: Any, piece: str) -> bool:
    """Whether `token` stands here because its own text does, and splits wherever it does. An unknown
    piece becomes an added token too, without splitting anything."""
    if token is None or token.normalized or token.single_word:
        return False
    return piece.strip() == token.content.strip()
