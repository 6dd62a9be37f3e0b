"""The text of single tokens, for a person: of a byte-level vocabulary one may hold a part of a character."""

import re
from typing import Any

from transformers.convert_slow_tokenizer import bytes_to_unicode

from harness.tokenizer.shown import wordless

BROKEN = "\ufffd"  # what a part of a character is decoded to
LONG = 4  # bytes of a character, at most
PART = "\u2009"  # a thin space: its character stands with the last of its tokens
# A token that is a byte, where a vocabulary falls back to them.
BYTE = re.compile(r"<0x([0-9A-F]{2})>")


def text(tokenizer: Any, ids: list[int]) -> str:
    """Text of `ids`, special tokens shown."""
    return str(tokenizer.decode(ids, clean_up_tokenization_spaces=False))


def piece(tokenizer: Any, token: int) -> str:
    """Text of `token` alone; `<E6>` for each byte of a character that it holds only a part of, `<63425>` for one
    that has no text."""
    if wordless(tokenizer, token):
        return f"<{token}>"
    plain = text(tokenizer, [token])
    if BROKEN not in plain:
        return plain
    (raw,) = tokenizer.convert_ids_to_tokens([token])
    if fallback := BYTE.fullmatch(raw):
        return f"<{fallback[1]}>"
    letters = {letter: byte for byte, letter in bytes_to_unicode().items()}  # of byte-level BPE
    if not letters.keys() >= set(raw):
        return plain
    whole = bytes(letters[letter] for letter in raw).decode("utf-8", "surrogateescape")
    return "".join(f"<{ord(c) - 0xDC00:02X}>" if "\udc80" <= c <= "\udcff" else c for c in whole)


def pieces(tokenizer: Any, ids: list[int]) -> list[str]:
    """Text of each of `ids`. Of the tokens of one character the last has it, the others are PART."""
    made: list[str] = []
    while len(made) < len(ids):
        here = ids[len(made) :]
        texts = ((n, text(tokenizer, here[:n])) for n in range(1, min(LONG, len(here)) + 1))
        found = next((found for found in texts if BROKEN not in found[1]), None)
        many, said = found or (1, piece(tokenizer, here[0]))
        made += [PART] * (many - 1) + [said or piece(tokenizer, here[0])]
    return made
