"""Text that the override grammar cannot carry travels as base64 through the `literal` resolver."""

import base64
import re
import shlex
from collections.abc import Iterable

TEXTS = ("text", "prompt.text")  # keys whose value arrives exactly as typed
_MARK = "\0literal:"
_QUOTED = re.compile(r"'[^'\\$]*'")
_EACH = re.compile(r"""'[^'\\$]*'|'\$\{literal:"[\w=-]*"\}'""")  # text of a sweep
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
    key = argument.partition("=")[0]
    if several := texts(argument):
        return shlex.quote(f"{key}={','.join(map(listed, several))}")
    return shlex.quote(_carried(argument))


def texts(argument: str) -> list[str]:
    """The texts that a sweep goes through, as typed; none where there is only one."""
    key, _, value = argument.partition("=")
    each = _EACH.findall(value) if key.lstrip("+") in TEXTS else []
    return [decoded(f"text={text}").partition("=")[2] for text in each] if each[1:] else []


def listed(text: str) -> str:
    """A text as one of several that a sweep goes through."""
    escaped = text.replace('"', '\\"')
    return f'"{escaped}"'


def command(overrides: Iterable[str], flags: Iterable[str] = ()) -> str:
    """What runs a job of these overrides by itself, as a person types it in a shell."""
    words = (*map(shlex.quote, flags), *(shlex.quote(decoded(o)) for o in overrides))
    return " ".join(("python -m harness", *words))


def decoded(override: str) -> str:
    """One of Hydra's own overrides as a person reads it: text without base64 and quotation marks."""
    key, _, value = override.partition("=")
    if key.lstrip("+") in TEXTS and _QUOTED.fullmatch(value):
        return f"{key}={value[1:-1]}"
    return _carried(override)


def _carried(override: str) -> str:
    return _CARRIED.sub(lambda match: plain(decode_literal(match[1])) or "", override)


def spelled(override: str) -> str:
    """An override without quotes, escapes and spaces, its number or truth in one form: Hydra writes a
    point's overrides anew, so that only this much of them is what was typed."""
    key, equals, value = "".join(c for c in override if c not in "\\'\" ").partition("=")
    try:
        return f"{key}{equals}{float(value)}"
    except ValueError:
        same = value.lower() in ("true", "false", "null")
        return f"{key}{equals}{value.lower() if same else value}"
