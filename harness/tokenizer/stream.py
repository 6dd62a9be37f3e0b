"""Text of ids that come one by one: each is decoded with its neighbours only, never with all before.

The pieces joined are what decoding all ids at once gives. A piece is held back while what is said so
far could still change: a character of which only some bytes have come, and a run of byte tokens
(`<0xE2>`), which a sentencepiece decoder reads as a whole or not at all.
"""

import re
from typing import Any

from harness.tokenizer.policy import decode

BYTE = re.compile(r"<0x[0-9A-Fa-f]{2}>")
UNFINISHED = "\ufffd"


class Stream:
    """tokenizer: the library's. `text`: everything that was said. Ids before the last whole piece are
    kept only as far as the next one's spaces depend on them. after: the id that comes before all of them, where there
    is one: its text is said already."""

    def __init__(self, tokenizer: Any, after: int | None = None):
        self._tokenizer = tokenizer
        begun = after is not None and after not in tokenizer.all_special_ids
        # of the last piece: how a word joins it depends on them
        self._context: list[int] = [after] if begun and after is not None else []
        self._pending: list[int] = []
        self.text = ""

    def add(self, token: int) -> str:
        """What can be said now that `token` has come; often nothing, while it is held back."""
        self._pending.append(int(token))
        name = self._tokenizer.convert_ids_to_tokens(int(token))
        if isinstance(name, str) and BYTE.fullmatch(name):
            return ""
        piece = self._piece()
        return "" if piece.endswith(UNFINISHED) else self._said(piece)

    @property
    def whole(self) -> str:
        """Everything that was said and what is held back, as it stands."""
        return self.text + (self._piece() if self._pending else "")

    def rest(self) -> str:
        """What was held back, as it is: no further token comes."""
        return self._said(self._piece()) if self._pending else ""

    def _piece(self) -> str:
        before = decode(self._tokenizer, self._context)
        return decode(self._tokenizer, self._context + self._pending)[len(before) :]

    def _said(self, piece: str) -> str:
        self._context, self._pending = self._pending, []
        self.text += piece
        return piece
