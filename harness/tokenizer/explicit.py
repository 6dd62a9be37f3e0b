"""`tokenizer=explicit`: nothing implicit. One BOS, placed once, on purpose; the rest is the text."""

from collections.abc import Sequence
from typing import Any

from harness.tokenizer.policy import Encoded, Encoder, account, plain


class Explicit(Encoder):
    """`tokenizer.bos=false` leaves the BOS out; a text that begins with one gets no second."""

    def encode(self, tokenizer: Any, text: str, turns: Sequence[Any]) -> Encoded:
        ids, first = plain(tokenizer, text), tokenizer.bos_token_id
        if not self.settings.bos or first is None or ids[:1] == (first,):
            return Encoded(ids, text, "explicit", account(tokenizer, ids, {}), 0)
        why = {0: "placed once, on purpose, by tokenizer=explicit"}
        ids = (first, *ids)
        return Encoded(ids, text, "explicit", account(tokenizer, ids, why), 1)
