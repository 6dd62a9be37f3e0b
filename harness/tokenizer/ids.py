"""The tokenizer of a model that came without one: a text is its ids, as numbers between spaces (`5 17 300`)."""

from typing import Any

from harness.errors import InputProblem
from harness.snapshot.tokenizer import NO_ID


def numbers(rows: int) -> Any:
    """A tokenizer of the library's for a model with an embedding of `rows` tokens: the text of id 17 is `17`."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {str(token): token for token in range(rows)} | {NO_ID: rows}
    backend = Tokenizer(models.WordLevel(words, unk_token=NO_ID))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=NO_ID)


def check(tokenizer: Any, text: str, ids: tuple[int, ...]) -> None:
    """Raise InputProblem where one of `ids`, which a tokenizer of `numbers` made of `text`, is none."""
    if getattr(tokenizer, "unk_token", None) != NO_ID or tokenizer.unk_token_id not in ids:
        return
    known = tokenizer.unk_token_id
    word = next(word for word in text.split() if tokenizer.convert_tokens_to_ids(word) == known)
    raise InputProblem(
        f"'{word[:40]}' is no id: this model came without a tokenizer, so a text is its ids, from 0 to {known - 1}, "
        "with spaces between them ('5 17 300'). harness.wrap(model, tokenizer) takes words."
    )
