"""Whether the tokenizer files of a state are the tokenizer that its element 10 describes.

Element 10 keeps a digest of the rules as `to_str()` gives them; `tokenizer.json` is the same text, indented.
So the text is compared and nothing of it is run; only a file that was written otherwise is read by the
library and written again. Of the chat template it keeps a digest too, which is that of the template's text.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from harness import foreign
from harness.snapshot.digest import digest_bytes, digest_document

NO_ID = "<no id>"  # of a model that came without a tokenizer: what stands for every word that is no id of it

FILE, TEMPLATE, CONFIG = "tokenizer.json", "chat_template.jinja", "tokenizer_config.json"
SLOW = digest_bytes(b"no fast tokenizer")  # the rules of one that has none
_KEY = re.compile(r'^ *("(?:[^"\\\n]|\\.)*"): ', re.MULTILINE)
_CALLED = re.compile(  # how its last call truncated and padded, which is no part of the rules
    r'^(\{"version":"[^"]*",)"truncation":.*?,"padding":.*?(,"added_tokens":)', re.DOTALL
)


def digest(rules: str) -> str:
    """Of a fast tokenizer's compact rules, but for how its last call truncated and padded."""
    bare = _CALLED.sub(r'\1"truncation":null,"padding":null\2', rules, count=1)
    return digest_bytes(bare.encode("utf-8"))


def template_digest(template: Any) -> str:
    """Of a chat template; of its texts by name where there are several."""
    if isinstance(template, str | None):
        return digest_bytes((template or "").encode())
    return digest_document(template)


def faults(documents: Mapping[str, Any], files: Mapping[str, bytes]) -> list[str]:
    """What is wrong with `files` (name -> bytes), as plain sentences; empty where they are the tokenizer
    of `documents`, or where that says nothing of its rules."""
    document = documents.get("tokenizer")
    if not isinstance(document, Mapping):
        return []
    rules, described = document.get("rules"), document.get("template")
    if rules is None or (rules == SLOW and not files):
        return []
    problems = []
    if rules != SLOW and FILE not in files:
        problems.append(f"tokenizer/{FILE} is missing: element 10 describes its rules")
    elif rules != SLOW and rules not in (_written(files[FILE]), _read(files[FILE])):
        other = "is not the tokenizer that element 10 describes: it has other rules"
        problems.append(f"tokenizer/{FILE} {other}")
    if files and described is not None and described != _template(files):
        name = TEMPLATE if TEMPLATE in files else CONFIG
        problems.append(f"tokenizer/{name} has another chat template than element 10 describes")
    return problems


def _template(files: Mapping[str, bytes]) -> str | None:
    """The digest of the chat template that the library reads from `files`; None where it cannot."""
    try:
        if TEMPLATE in files:
            return template_digest(files[TEMPLATE].decode("utf-8"))
        template = foreign.parsed(files.get(CONFIG, b"{}"), foreign.Budget()).get("chat_template")
        if isinstance(template, list):
            template = {row["name"]: row["template"] for row in template}
        return template_digest(template)
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


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
