"""The text of ids for a person: an id that the tokenizer has no text for stands there as `<63425>`, never as nothing."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.tokenizer.policy import decode
from harness.tokenizer.stream import Stream


def wordless(tokenizer: Any, token: int) -> bool:
    """Whether the tokenizer does not know `token`. One that holds a part of a character is known."""
    return tokenizer.convert_ids_to_tokens(int(token)) is None


class Shown(Stream):
    """What `add` gives says every id; `text` is what the tokenizer makes of them all."""

    def add(self, token: int) -> str:
        said = super().add(token)
        return f"{said}<{int(token)}>" if wordless(self._tokenizer, token) else said


def shown(tokenizer: Any, ids: Sequence[int]) -> str:
    """Text of `ids`, special tokens shown, each unknown one by its id."""
    if not any(wordless(tokenizer, token) for token in {*ids}):
        return decode(tokenizer, ids)
    stream = Shown(tokenizer)
    return "".join(map(stream.add, ids)) + stream.rest()


def added(tokenizer: Any, ids: Sequence[int]) -> list[str]:
    """What each of `ids` adds to the text before it, spaces between words too (`pieces` are tokens alone); a
    character of several is that of the last of them."""
    stream = Shown(tokenizer)
    said = [stream.add(token) for token in ids]
    return [*said[:-1], said[-1] + stream.rest()] if said else []


def parted(tokenizer: Any, ids: Sequence[int], other: Sequence[int]) -> dict[str, Any]:
    """What a result's `text` says of two runs of ids that differ: the first two, and the pieces of text of both, step
    by step; nothing where none does."""
    both = next(([a, b] for a, b in zip(ids, other) if a != b), None)
    if both is None:
        return {}
    said = {"continuation": added(tokenizer, ids), "restored": added(tokenizer, other)}
    return {"apart_ids": both, "pieces": said}


def record(tokenizer: Any, texts: Mapping[str, Iterable[int]]) -> dict[str, Any]:
    """What a result's `text` says of ids: each of `texts` as the tokenizer makes it; where some have no text also
    `without_text`, those that occur, and `shown`, each of `texts` with them."""
    said = {name: [int(token) for token in ids] for name, ids in texts.items()}
    every = sorted({token for ids in said.values() for token in ids})
    without = [token for token in every if wordless(tokenizer, token)]
    made: dict[str, Any] = {name: tokenizer.decode(ids) for name, ids in said.items()}
    if not without:
        return made
    return made | {
        "without_text": without,
        "shown": {name: shown(tokenizer, ids) for name, ids in said.items()},
    }


def continued(tokenizer: Any, ids: list[int], restored: list[int]) -> dict[str, Any]:
    """What a result's `text` says of the ids of the uninterrupted run and of those that the `restored` one chose."""
    said = record(tokenizer, {"continuation": ids, "restored": restored})
    return said | {"token_ids": ids, "restored_ids": restored} | parted(tokenizer, ids, restored)
