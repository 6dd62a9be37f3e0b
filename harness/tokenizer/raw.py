"""`tokenizer=raw`: the text alone, no special token at all."""

from collections.abc import Sequence
from typing import Any

from harness.tokenizer.policy import Encoded, Encoder, account, plain


class Raw(Encoder):
    """What the text itself spells as a special token is one, and is accounted for."""

    def encode(self, tokenizer: Any, text: str, turns: Sequence[Any]) -> Encoded:
        ids = plain(tokenizer, text)
        return Encoded(ids, text, "raw", account(tokenizer, ids, {}))
