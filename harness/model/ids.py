"""The tokenizer of a model that came without one: a text is its ids, as numbers between spaces (`5 17 300`)."""

from typing import Any

from harness.snapshot.tokenizer import NO_ID

IDS = "ids"  # what `model.tokenizer` says of such a model


def numbers(rows: int) -> Any:
    """A tokenizer of the library's for a model with an embedding of `rows` tokens: the text of id 17 is `17`."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {str(token): token for token in range(rows)} | {NO_ID: rows}
    backend = Tokenizer(models.WordLevel(words, unk_token=NO_ID))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # type: ignore[assignment]
    return PreTrainedTokenizerFast(tokenizer_object=backend, unk_token=NO_ID)
