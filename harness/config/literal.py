"""Text that the override grammar cannot carry travels as base64 through the `literal` resolver."""

import base64
import re
import shlex
from collections.abc import Iterable, Sequence
from typing import Any

MULTIRUN = ("-m", "--multirun")
TEXTS = ("text", "prompt.text")  # keys whose value arrives exactly as typed
NULL = "'${literal:\"bnVsbA==\"}'"  # the text null: the word alone means that there is none
MARK = "\0literal:"
_QUOTED = re.compile(r"'[^'\\$]*'")
_EACH = re.compile(r"""'[^'\\$]*'|'\$\{literal:"[\w=-]*"\}'""")  # text of a sweep
_WHOLE = re.compile(r"""\$\{literal:"([\w=-]*)"\}""")
CARRIED = re.compile(r"""'?\$\{literal:"([\w=-]*)"\}'?""")
_ONE = r"""\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*"""
_LIST = re.compile(rf"{_ONE}(?:,{_ONE})*", re.DOTALL)
_CHOICE = re.compile(rf"choice\(({_ONE}(?:,{_ONE})*)\)", re.DOTALL)
_SAFE = re.compile(r"[^'\\$\n\r?]*")
_ESCAPE = re.compile(r"\\(.)")
_ESCAPED = re.compile(r"""\\+(?=['"]|\Z)""")  # a backslash that means itself stands twice there
_BEFORE = re.compile(r"""(\\*)(['"]|\Z)""")


def quoted(value: str) -> str:
    """`value` as one string of the override grammar, readable where that can be."""
    if _SAFE.fullmatch(value):
        return f"'{value}'"
    return f"'{_encoded(value)}'"


def _encoded(value: str) -> str:
    encoded = base64.urlsafe_b64encode(value.encode("utf-8", "surrogatepass")).decode()
    return f'${{literal:"{encoded}"}}'


def carried(text: str) -> str:
    """`text` as a value of OmegaConf, which would resolve variables in it and take `???` for none."""
    bare = text.removeprefix(MARK)
    return _encoded(bare) if "${" in bare or bare == "???" else bare


def uncarried(value: str) -> str | None:
    """Inverse of `carried` where it encoded; None for any other value."""
    try:
        return (
            decode_literal(found[1]).removeprefix(MARK)
            if (found := _WHOLE.fullmatch(value))
            else None
        )
    except ValueError:  # no base64, or no text
        return None


def quoted_texts(value: str, many: bool) -> str:
    """What was typed after `text=` as the override grammar takes it. many: in a sweep, where what is all in quotes is
    the texts inside, one or several; anything else is one text, exactly as typed."""
    if value in ("null", NULL):
        return value
    return ",".join(map(quoted, _several(value) if many else [value]))


def _several(value: str) -> list[str]:
    """The texts of a list in quotes, a backslash before a quotation mark inside; else the one that it is."""
    chosen = _CHOICE.fullmatch(value)
    if not chosen and not _LIST.fullmatch(value):
        return [value]
    each = re.findall(_ONE, chosen[1] if chosen else value, re.DOTALL)
    return [_ESCAPED.sub(lambda m: m[0][: len(m[0]) // 2], one.strip()[1:-1]) for one in each]


def decode_literal(encoded: str) -> str:
    """Inverse of `quoted`; registered as the `literal` resolver.

    `???` means "missing" to omegaconf wherever it appears, so it keeps a mark until `plain`.
    """
    text = base64.urlsafe_b64decode(encoded.encode()).decode("utf-8", "surrogatepass")
    return f"{MARK}{text}" if text == "???" else text


def plain(text: str | None) -> str | None:
    """`text` without the mark."""
    return text.removeprefix(MARK) if text else text


def typed(argument: str, many: bool = False) -> str:
    """An argument of a recorded command as a person types it, before the shell's own quotes: the inverse of
    `quoted_texts`. many: of a sweep."""
    key, equals, value = argument.partition("=")
    if not equals or key.lstrip("+") not in TEXTS:
        return _carried(argument)
    if several := texts(argument):
        return f"{key}={','.join(map(listed, several))}"
    text = decoded(argument).partition("=")[2]
    if text == "null" != value:
        return f"{key}={NULL}"
    return f"{key}={text if _several(text) == [text] or not many else f'choice({listed(text)})'}"


def texts(argument: str) -> list[str]:
    """The texts that a sweep goes through, as typed; none where there is only one."""
    key, _, value = argument.partition("=")
    each = _EACH.findall(value) if key.lstrip("+") in TEXTS else []
    return [decoded(f"text={text}").partition("=")[2] for text in each] if each[1:] else []


def listed(text: str) -> str:
    """A text as one of several that a sweep goes through."""
    escaped = _BEFORE.sub(lambda m: 2 * m[1] + "\\" * (m[2] == '"') + m[2], text)
    return f'"{escaped}"'


def command(arguments: Iterable[str]) -> str:
    """What runs a job or a sweep of these flags and recorded overrides, as a person types it in a shell: every
    printed command is spelled here, and gives back the very texts."""
    return whole(["python", "-m", "harness", *arguments])


def whole(words: Sequence[str]) -> str:
    """The same of a command that was recorded with the program before it."""
    many = any(word in MULTIRUN for word in words[3:])
    return shlex.join([typed(word, many) for word in words])


def decoded(override: str) -> str:
    """One of Hydra's own overrides as a person reads it: text without base64 and quotation marks."""
    key, _, value = override.partition("=")
    if key.lstrip("+") in TEXTS and _QUOTED.fullmatch(value):
        return f"{key}={value[1:-1]}"
    return _carried(override)


def _carried(override: str) -> str:
    return CARRIED.sub(lambda match: plain(decode_literal(match[1])) or "", override)


def unescaped(override: str) -> str:
    """An override of a point as a person types it, where that says the same: an address without the escapes that Hydra
    writes into it, and `false` for its `False`."""
    key, _, value = override.partition("=")
    if value in ("True", "False") and key.lstrip("+") not in TEXTS:
        return f"{key}={value.lower()}"  # as a person types it
    bare = _ESCAPE.sub(r"\1", value)
    if bare == value or set(value) & set("'\"$") or key.lstrip("+") in TEXTS:
        return override
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        own, other = OverridesParser.create().parse_overrides([override, f"{key}={bare}"])
    except HydraException:  # the grammar does not take it
        return override
    same = isinstance(own.value(), str) and own.value() == other.value()
    return f"{key}={bare}" if same and not other.is_sweep_override() else override


def values(typed: str) -> list[Any] | None:
    """The values of a list as it was typed; None of what is no list."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        held = OverridesParser.create().parse_override(f"key={typed}").value()
    except HydraException:  # the grammar does not take it
        return None
    return held if isinstance(held, list) else None


def spelled(override: str) -> str:
    """An override without quotes, escapes and spaces, its number or truth in one form: Hydra writes a
    point's overrides anew, so that only this much of them is what was typed."""
    key, equals, value = "".join(c for c in override if c not in "\\'\" ").partition("=")
    if key.startswith("~") and value in ("", "null"):  # which Hydra adds
        return key
    try:
        return f"{key}{equals}{float(value)}"
    except ValueError:
        same = value.lower() in ("true", "false", "null")
        return f"{key}{equals}{value.lower() if same else value}"
