"""Text that the override grammar cannot carry travels as base64 through the `literal` resolver."""

import base64
import re
import shlex

_MARK = "\0literal:"
_CARRIED = re.compile(r"""'?\$\{literal:"([\w=-]*)"\}'?""")


def decode_literal(encoded: str) -> str:
    """Inverse of the encoding above; registered as the `literal` resolver.

    `???` means "missing" to omegaconf wherever it appears, so it keeps a mark until `plain`.
    """
    text = base64.urlsafe_b64decode(encoded.encode()).decode("utf-8", "surrogatepass")
    return f"{_MARK}{text}" if text == "???" else text


def plain(text: str | None) -> str | None:
    """`text` without the mark."""
    return text.removeprefix(_MARK) if text else text


def typed(argument: str) -> str:
    """An argument of a recorded command as a person types it in a shell: no base64 in it."""
    readable = _CARRIED.sub(lambda found: plain(decode_literal(found[1])) or "", argument)
    return argument if readable == argument else shlex.quote(readable)


def spelled(override: str) -> str:
    """An override without quotes, escapes and spaces: Hydra writes a point's overrides anew, so
    that only this much of them is what was typed."""
    return "".join(c for c in override if c not in "\\'\" ")
