"""`tokenizer=library`: whatever the tokenizer adds by default, accounted for token by token."""

from collections.abc import Sequence
from typing import Any

from harness.tokenizer.policy import Encoded, Encoder, account, plain


class Library(Encoder):
    """What is not in the plain ids was added; a continuation gets it again."""

    def encode(self, tokenizer: Any, text: str, turns: Sequence[Any]) -> Encoded:
        ids, bare = tuple(tokenizer(text)["input_ids"]), plain(tokenizer, text)
        start = next((i for i in range(len(ids) + 1) if ids[i : i + len(bare)] == bare), 0)
        added = set(range(len(ids))) - set(range(start, start + len(bare)))
        why = dict.fromkeys(added, "added behind your back by the tokenizer's own defaults")
        return Encoded(ids, text, "library", account(tokenizer, ids, why), start)

    def continuation(self, tokenizer: Any, text: str) -> Encoded:
        return self.encode(tokenizer, text, ())
