"""Whether the tokenizer files of a state are the tokenizer that its element 10 describes.

Element 10 keeps a digest of the rules as `to_str()` gives them; `tokenizer.json` is the same text, indented.
So the text is compared and nothing of it is run; only a file that was written otherwise is read by the
library and written again.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from harness.snapshot.digest import digest_bytes

FILE = "tokenizer.json"
SLOW = digest_bytes(b"no fast tokenizer")  # the rules of one that has none
_KEY = re.compile(r'^ *("(?:[^"\\\n]|\\.)*"): ', re.MULTILINE)
_CALLED = re.compile(  # how its last call truncated and padded, which is no part of the rules
    r'^(\{"version":"[^"]*",)"truncation":.*?,"padding":.*?(,"added_tokens":)', re.DOTALL
)


def digest(rules: str) -> str:
    """Of a fast tokenizer's compact rules, but for how its last call truncated and padded."""
    bare = _CALLED.sub(r'\1"truncation":null,"padding":null\2', rules, count=1)
    return digest_bytes(bare.encode("utf-8"))


def faults(documents: Mapping[str, Any], files: Mapping[str, bytes]) -> list[str]:
    """What is wrong with `files` (name -> bytes), as plain sentences; empty where they are the tokenizer
    of `documents`, or where that says nothing of its rules."""
    document = documents.get("tokenizer")
    rules = document.get("rules") if isinstance(document, Mapping) else None
    if rules is None or rules == SLOW:
        return []
    if FILE not in files:
        return [f"tokenizer/{FILE} is missing: element 10 describes its rules"]
    data = files[FILE]
    if rules == _written(data) or rules == _read(data):
        return []
    return [f"tokenizer/{FILE} is not the tokenizer that element 10 describes: it has other rules"]


@lru_cache(maxsize=2)
def _written(data: bytes) -> str | None:
    """The digest of the rules in `data`, as they stand there; None for what is no text."""
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError:
        return None
    text = text.replace('": ', '":') if r"\": " not in text else _KEY.sub(r"\1:", text)
    return digest("".join(line.lstrip(" ") for line in text.split("\n")))


@lru_cache(maxsize=2)
def _read(data: bytes) -> str | None:
    """The digest of the rules that the library reads in `data`; None where it cannot."""
    from tokenizers import Tokenizer

    try:
        return digest(Tokenizer.from_str(data.decode("utf-8")).to_str())
    except Exception:  # the library raises plain Exception for rules that it cannot read
        return None
