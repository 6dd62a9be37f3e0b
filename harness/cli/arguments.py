"""The command line before Hydra sees it: text arrives exactly as typed in the shell."""

import base64
import os
import re
from dataclasses import fields
from difflib import get_close_matches

from harness.config import Config
from harness.config.literal import TEXTS
from harness.errors import ConfigProblem, suggestion
from harness.variants import config_dirs

MULTIRUN = ("-m", "--multirun")
SPOKEN = {"from": "foreign"}  # a word of Python's own can be no field
PATH_KEYS = (
    "snapshot",
    "foreign",
    "out",
    "a",
    "b",
    "run",
    "name",
    "runs_dir",
    "prompt.path",
    "model.path",
)
VALUED = ("--cfg", "-c", "--info", "-i", "--config-name", "-cn", "--config-path", "-cp",
          "--config-dir", "-cd", "--package", "-p", "--experimental-rerun")  # fmt: skip
FLAGS = (*MULTIRUN, *VALUED, "--run", "-r", "--resolve", "--help", "-h", "--hydra-help", "--version",
         "--shell-completion", "-sc")  # fmt: skip
SHOWING = ("--cfg", "-c", "--info", "-i")
CFG = ("job", "hydra", "all")
INFO = ("--info", "-i")
INFOS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_BARE = re.compile(r"(?! )[\w./:+%@~ -]*(?<! )", re.ASCII)  # read by the grammar as it stands
_MEANT = re.compile(r"'.*'|\".*\"|.*\$\{.*|\w+\(.*\)", re.DOTALL)  # grammar on purpose
_ONE = r"""\s*(?:'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")\s*"""
_LIST = re.compile(rf"{_ONE}(?:,{_ONE})+", re.DOTALL)
_CHOICE = re.compile(rf"choice\(({_ONE}(?:,{_ONE})*)\)", re.DOTALL)
_SAFE = re.compile(r"[^'\\$\n\r?]*")


def check_flags(arguments: list[str]) -> None:
    """Raise ConfigProblem for a flag that there is not, with what was probably meant, and for a folder of
    options that there is not."""
    check_folder(arguments)
    for i, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag in ("--cfg", "-c"):
            package = value or "".join(arguments[i + 1 : i + 2])
            if package not in CFG:
                raise ConfigProblem(
                    f"{flag} {package} is not possible. There is: {', '.join(CFG)}."
                )
        if flag in INFO and value not in ("", *INFOS):
            raise ConfigProblem(f"{argument} is not possible. There is: {', '.join(INFOS)}.")
        if not argument.startswith("-") or flag in FLAGS:
            continue
        key = flag.lstrip("-").replace("-", "_")
        rest = value if equals else "".join(arguments[i + 1 : i + 2])
        known = [f.name for f in fields(Config)]
        if equals or key.partition(".")[0] in known:
            near = f" Keys have no dashes: {key}={rest or '...'}"
        else:
            near = suggestion(flag, FLAGS)
            if meant := get_close_matches(key, known, n=1, cutoff=0.7):
                near = f" Did you mean {meant[0]}={rest or '...'}?"
        raise ConfigProblem(f"{argument} is not a flag.{near}")


def check_trust(arguments: list[str]) -> None:
    """Raise ConfigProblem where somebody asks for a signature by no key: that would ask for none."""
    for argument in arguments:
        key, _, value = argument.partition("=")
        if key in ("trusted", "restore.trusted") and re.fullmatch(r"\[\s*\]", value.strip()):
            raise ConfigProblem(
                f"{argument} names no key, so nothing would have to be signed. Give the public keys, "
                f"as in {key}=[KEY.pub], or leave it out."
            )


def check_folder(arguments: list[str]) -> None:
    """Raise ConfigProblem where `--config-dir` names no folder, which Hydra passes over in silence."""
    for folder in config_dirs(arguments):
        if folder.is_dir():
            continue
        why = "that is no folder" if folder.exists() else "there is no such folder"
        above = next(p for p in folder.absolute().parents if p.is_dir())
        part = folder.absolute().relative_to(above).parts[0]
        beside = (
            [p.name for p in above.iterdir() if p.is_dir()] if os.access(above, os.R_OK) else []
        )
        near = get_close_matches(part, beside, n=1, cutoff=0.6)
        raise ConfigProblem(
            f"--config-dir {folder}: {why}.{f' Did you mean {above / near[0]}?' if near else ''} "
            "It is the folder that holds the groups' own, such as prune/ or cache/."
        )


def one_point(arguments: list[str]) -> list[str]:
    """`-m ... --cfg job` (or `--info`): the arguments for the first point of the sweep, which is what
    is shown; a comment says so. Anything else is left alone."""
    showing = any(a.partition("=")[0] in SHOWING for a in arguments)
    if not showing or not any(a in MULTIRUN for a in arguments):
        return arguments
    from hydra.core.override_parser.overrides_parser import OverridesParser

    from harness.config.compose import values

    parser, points, single = OverridesParser.create(), 1, []
    for i, argument in enumerate(arguments):
        flag = argument.startswith("-") or (i and arguments[i - 1] in VALUED)
        swept = None if flag else parser.parse_override(argument)
        if swept is None or not swept.is_sweep_override():
            single.append(argument)
            continue
        chosen = [swept.value().start] if swept.is_interval_sweep() else values(swept)
        if not chosen:
            raise ConfigProblem(f"{argument} gives no point: it has no value.")
        points *= 0 if swept.is_interval_sweep() else len(chosen)  # 0: nobody knows how many
        single.append(f"{swept.input_line.partition('=')[0]}={chosen[0]}")
    print(f"# the first of {points} points" if points else "# a point of the search")
    return [a for a in single if a not in MULTIRUN]


def ordered(arguments: list[str]) -> list[str]:
    """Flags first, overrides after: `name=x -m cache=a,b` works as well as `-m name=x cache=a,b`."""
    flags, overrides = parted(arguments)
    return flags + overrides


def parted(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The flags with their values, and the overrides."""
    flags: list[str] = []
    overrides: list[str] = []
    for i, argument in enumerate(arguments):
        value = i and arguments[i - 1] in VALUED and "=" not in argument
        flag = argument.startswith("-") or value
        if argument in INFO and "".join(arguments[i + 1 : i + 2]) not in INFOS:
            argument = f"{argument}=all"  # or it takes the next argument for its value
        (flags if flag else overrides).append(argument)
    return flags, overrides


def literal_text(arguments: list[str]) -> list[str]:
    """Protect text, and paths where they need it, from the override grammar (commas, quotes, braces,
    other scripts). In a sweep a comma between paths still separates points, and so it does between texts
    that are all in quotes: `"a","b"` or `choice("a","b")`.

    Plain text is quoted, so the record stays readable; anything else travels as base64 through the
    `literal` resolver. Other arguments are left alone.
    """
    many = any(a in MULTIRUN for a in arguments)
    # older argparse wants them before the overrides
    flags = [a for a in arguments if a in MULTIRUN]
    return flags + [_protect(a, many) for a in arguments if a not in MULTIRUN]


def _protect(argument: str, many: bool) -> str:
    key, equals, value = argument.partition("=")
    key = SPOKEN.get(key, key)
    argument, name = f"{key}{equals}{value}", key.lstrip("+")
    if not equals or value == "null":
        return argument
    if name in TEXTS:
        texts = _texts(value) if many else [value]
        return f"{key}={','.join(map(_quoted, texts))}"
    if name not in PATH_KEYS or _MEANT.fullmatch(value):
        return argument
    paths = value.split(",") if many else [value]
    return f"{key}={','.join(p if _BARE.fullmatch(p) else _quoted(p) for p in paths)}"


def _texts(value: str) -> list[str]:
    """The texts that a sweep goes through: those of a list that are all in quotes, a backslash before a
    quotation mark inside; anything else is one text, exactly as typed."""
    chosen = _CHOICE.fullmatch(value)
    if not chosen and not _LIST.fullmatch(value):
        return [value]
    quoted = re.findall(_ONE, chosen[1] if chosen else value, re.DOTALL)
    return [re.sub(r"\\(['\"])", r"\1", one.strip()[1:-1]) for one in quoted]


def _quoted(value: str) -> str:
    """`value` as one string of the override grammar."""
    if _SAFE.fullmatch(value):
        return f"'{value}'"
    encoded = base64.urlsafe_b64encode(value.encode("utf-8", "surrogatepass")).decode()
    return f"'${{literal:\"{encoded}\"}}'"
