"""The command line before Hydra sees it: text arrives exactly as typed in the shell."""

import re
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

from harness.config.literal import MULTIRUN, TEXTS, quoted, quoted_texts
from harness.config.place import near
from harness.config.schema import KEYS
from harness.errors import ConfigProblem
from harness.variants import conf_dir, config_dirs, searched

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
          "--config-dir", "-cd", "--package", "-p")  # fmt: skip
FLAGS = (*MULTIRUN, *VALUED, "--run", "-r", "--resolve", "--help", "-h", "--hydra-help", "--version",
         "--shell-completion", "-sc")  # fmt: skip
RERUN = "--experimental-rerun"
PRIMARY = {"--config-name": "name", "-cn": "name", "--config-path": "path", "-cp": "path"}
INFO = ("--info", "-i")
INFOS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_BARE = re.compile(r"(?! )[\w./:+%@~ -]*(?<! )", re.ASCII)  # read by the grammar as it stands
_MEANT = re.compile(r"'.*'|\".*\"|.*\$\{.*|\w+\(.*\)", re.DOTALL)  # grammar on purpose


def check_flags(arguments: list[str]) -> None:
    """Raise ConfigProblem for an unknown flag, with the nearest one, and for a folder of options that is missing."""
    check_folder(arguments)
    for argument in arguments:
        flag, _, value = argument.partition("=")
        if not flag.startswith("-") or flag in FLAGS:
            continue
        key = flag.lstrip("-").replace("-", "_")
        near = get_close_matches(flag, FLAGS, n=1, cutoff=0.7)
        hint = f" Did you mean '{near[0]}'?" if near else " `--help` lists them."
        if flag == RERUN:
            hint = " Nothing here reads a pickle; a run's page says the command that runs it again."
        elif key.partition(".")[0] in KEYS:
            hint = f" Keys have no dashes: {key}={value or '...'}"
        raise ConfigProblem(f"{argument} is not a flag.{hint}")


def _other(word: str) -> bool:
    """Whether it is the next argument, and no value of the flag before it."""
    return word.startswith("-") or ("=" in word and not Path(word).exists())


def unplussed(arguments: list[str]) -> list[str]:
    """`+experiment=NAME`, as it is typed where the group has no default, is `experiment=NAME` here, and
    `experiment=null`, which is that default, is nothing."""
    bare = (re.sub(r"^\+{1,2}(?=experiment=)", "", a) for a in arguments)
    return [a for a in bare if a != "experiment=null"]


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
    """Raise ConfigProblem where `--config-dir` or `hydra.searchpath` names no folder, and where an option in it has
    the name of a shipped one: Hydra passes over either in silence."""
    places = dict.fromkeys(config_dirs(arguments), "--config-dir")
    places |= {p: "hydra.searchpath" for p in searched(arguments) if "$" not in str(p)}
    for folder, flag in places.items():
        if not folder.is_dir():
            raise ConfigProblem(f"{flag} {folder}: there is no such folder.{near(folder)}")
        for ours in conf_dir().glob("*/*.yaml") if "path" not in chosen_primary(arguments) else ():
            own = folder / ours.relative_to(conf_dir())
            if own.is_file() and own.read_bytes() != ours.read_bytes():
                raise ConfigProblem(
                    f"{own} has the name of a shipped option and would not be read: {ours} would. Rename it."
                )


def chosen_primary(arguments: list[str]) -> dict[str, str]:
    """`path` and `name` of the primary configuration, as far as flags choose another than the shipped one."""
    chosen = {}
    for argument, after in pairwise([*arguments, ""]):
        flag, equals, value = argument.partition("=")
        if key := PRIMARY.get(flag):
            chosen[key] = value if equals else after
    return chosen


def ordered(arguments: list[str]) -> list[str]:
    """Flags first, overrides after: `name=x -m cache=a,b` works as well as `-m name=x cache=a,b`."""
    flags, overrides = parted(arguments)
    return flags + overrides


def parted(arguments: list[str]) -> tuple[list[str], list[str]]:
    """The flags with their values, and the overrides."""
    flags: list[str] = []
    overrides: list[str] = []
    for i, argument in enumerate(arguments):
        value = i and arguments[i - 1] in VALUED and not _other(argument)
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
    if name in TEXTS and equals:
        return f"{key}={quoted_texts(value, many)}"
    placed = name in ("name", "runs_dir")  # Hydra makes a folder of them
    if name not in PATH_KEYS or value in ("", "null", *["???"] * placed) or _MEANT.fullmatch(value):
        return argument
    paths = value.split(",") if many else [value]
    return f"{key}={','.join(p if _BARE.fullmatch(p) else quoted(p) for p in paths)}"
