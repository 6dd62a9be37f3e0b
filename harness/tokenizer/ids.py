"""Texts of a model without a tokenizer (`harness/model/ids.py`), which are its ids."""

from typing import Any

from harness.errors import InputProblem
from harness.snapshot.tokenizer import NO_ID


def check(tokenizer: Any, text: str, ids: tuple[int, ...]) -> None:
    """Raise InputProblem where one of `ids`, which such a tokenizer made of `text`, is none."""
    if getattr(tokenizer, "unk_token", None) != NO_ID or tokenizer.unk_token_id not in ids:
        return
    known = tokenizer.unk_token_id
    word = next(word for word in text.split() if tokenizer.convert_tokens_to_ids(word) == known)
    raise InputProblem(
        f"'{word[:40]}' is no id: this model came without a tokenizer, so a text is its ids, from 0 to {known - 1}, "
        "with spaces between them ('5 17 300'). With a tokenizer it takes words."
    )
