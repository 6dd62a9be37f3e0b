"""The command line before Hydra sees it: text arrives exactly as typed in the shell."""

import os
import re
import shlex
import sys
from difflib import get_close_matches
from itertools import pairwise, takewhile
from pathlib import Path

from harness.config.chain import PRIMARY
from harness.config.literal import MULTIRUN, TEXTS, quoted, quoted_texts, unquoted
from harness.config.schema import KEYS
from harness.errors import ConfigProblem, suggestion
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
SHOWING = ("--cfg", "-c", "--info", "-i")
CFG = ("job", "hydra", "all")
INFO = ("--info", "-i")
INFOS = ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath")
_BARE = re.compile(r"(?! )[\w./:+%@~ -]*(?<! )", re.ASCII)  # read by the grammar as it stands
_MEANT = re.compile(r"'.*'|\".*\"|.*\$\{.*|\w+\(.*\)", re.DOTALL)  # grammar on purpose


def check_flags(arguments: list[str]) -> None:
    """Raise ConfigProblem for a flag that there is not, with what was probably meant, and for a folder of
    options that there is not."""
    check_folder(arguments)
    flags = {argument.partition("=")[0] for argument in arguments}
    if flags & {"--package", "-p"} and not flags & {"--cfg", "-c"}:
        raise ConfigProblem(
            "--package says which part `--cfg job` is to show. Give both, or neither."
        )
    for i, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag in ("--cfg", "-c") and (equals or arguments[i + 1 : i + 2]):
            package = value or "".join(arguments[i + 1 : i + 2])
            if package not in CFG:
                raise ConfigProblem(
                    f"{flag} {package} is not possible. There is: {', '.join(CFG)}."
                )
        info = value or "".join(arguments[i + 1 : i + 2])
        if flag in INFO and info not in ("", *INFOS) and (equals or not _other(info)):
            raise ConfigProblem(f"{flag} {info} is not possible. There is: {', '.join(INFOS)}.")
        if flag in VALUED and flag not in INFO and not equals and _other(info or "-"):
            raise ConfigProblem(f"{flag} needs a value after it.")
        if flag in ("--help", "-h") and equals:
            raise ConfigProblem(
                f"{argument}: {flag} takes no value. Of a task: task={value or 'NAME'} {flag}"
            )
        if not argument.startswith("-") or flag in FLAGS:
            continue
        if flag == RERUN:
            raise ConfigProblem(
                f"{RERUN} reads a pickle, which nothing here does. What a run says under `Run it again` runs "
                "it again, and `task=audit run=DIR` compares the two."
            )
        key = flag.lstrip("-").replace("-", "_")
        rest = value if equals else "".join(arguments[i + 1 : i + 2])
        known = KEYS
        if flag.startswith("-m") and flag[2:].partition(".")[0] in known:
            near = f" Apart: -m {argument[2:]}"
        elif equals or key.partition(".")[0] in known:
            near = f" Keys have no dashes: {key}={rest or '...'}"
        else:
            near = " `python -m harness --help` lists what there is."
            if meant := get_close_matches(flag, FLAGS, n=1, cutoff=0.7):
                near = f" Did you mean '{meant[0]}'?"
            if meant := get_close_matches(key, known, n=1, cutoff=0.7):
                near = f" Did you mean {meant[0]}={rest or '...'}?"
        raise ConfigProblem(f"{argument} is not a flag.{near}")


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


def check_blanks(arguments: list[str]) -> None:
    """Raise ConfigProblem for `key = value`, which a shell hands on as three arguments (or as two)."""
    for i, (before, after) in enumerate(pairwise(arguments)):
        key, equals, value = before.partition("=")
        apart = after.startswith("=") if not equals else not value and "=" not in after
        if not apart or before.startswith("-") or after.startswith("-"):
            continue
        rest = takewhile(lambda a: a.startswith("=") or not _other(a), arguments[i + 1 :])
        typed = " ".join([before, *rest])
        meant = shlex.quote(f"{key}={typed.partition('=')[2].strip()}")
        raise ConfigProblem(f"{typed} has blanks around its equals sign. Without them: {meant}")


def check_folder(arguments: list[str]) -> None:
    """Raise ConfigProblem where `--config-dir` or `hydra.searchpath` names no folder, which Hydra passes over in
    silence, and for a whole configuration in a folder of options, which it does not read."""
    _check_whole(arguments)
    places = dict.fromkeys(config_dirs(arguments), "--config-dir")
    places |= {
        folder: "hydra.searchpath" for folder in searched(arguments) if "$" not in str(folder)
    }
    for folder, said in places.items():
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
            f"{said} {folder}: {why}.{f' Did you mean {above / near[0]}?' if near else ''} "
            "It is the folder that holds the groups' own, such as prune/ or cache/."
        )
    if "path" not in chosen_primary(arguments):
        for folder, said in places.items():
            _check_names(folder, said)


def _check_names(folder: Path, said: str) -> None:
    """Raise ConfigProblem where an option of `folder` has the name of a shipped one, which Hydra would read in its
    place. said: the flag that names the folder."""
    for ours in conf_dir().glob("*/*.yaml"):
        own = folder / ours.relative_to(conf_dir())
        if own.is_file() and own.read_bytes() != ours.read_bytes():
            raise ConfigProblem(
                f"{said} {folder}: {own} has the name of a shipped option and would not be read: {ours} would. Give it "
                "a name that is not taken, and its `name:`, where it has one, the same."
            )


def chosen_primary(arguments: list[str]) -> dict[str, str]:
    """`path` and `name` of the primary configuration, as far as flags choose one that is not the shipped one."""
    said = {}
    for argument, after in pairwise([*arguments, ""]):
        flag, equals, value = argument.partition("=")
        if key := PRIMARY.get(flag):
            said[key] = value if equals else after
    return said


def check_primary(arguments: list[str]) -> None:
    """Raise ConfigProblem where `--config-name` names no file of the folders in which one is looked for."""
    said = chosen_primary(arguments)
    name = said.get("name", "").removesuffix(".yaml")
    places = [Path(said["path"]) if "path" in said else conf_dir(), *config_dirs(arguments)]
    if name and not any((folder / f"{name}.yaml").is_file() for folder in places):
        stems = sorted({file.stem for folder in places for file in folder.glob("*.yaml")})
        raise ConfigProblem(
            f"--config-name {name}: there is no {name}.yaml in {' or '.join(map(str, places))}.{suggestion(name, stems)}"
        )


def _check_whole(arguments: list[str]) -> None:
    """Raise ConfigProblem where `--config-name` means a file of the `--config-dir`: the shipped one of that name
    would be read."""
    said = chosen_primary(arguments)
    name = said.get("name", "").removesuffix(".yaml")
    places = [Path(said["path"])] if "path" in said else []
    places += config_dirs(arguments) if name else []
    for folder in places:
        if (folder / "overrides.yaml").is_file() and (folder / "hydra.yaml").is_file():
            from harness.config.launched import of_point

            raise ConfigProblem(
                f"{folder} is what Hydra kept of a run, whose command runs it again: {of_point(folder.absolute().parent)}"
            )
    for folder in config_dirs(arguments) if name else ():
        file = f"{name}.yaml"
        if (folder / file).is_file() and (conf_dir() / file).is_file():
            raise ConfigProblem(
                f"--config-dir {folder} adds options to the shipped {file}, and its own {file} would not be read. "
                f"That is: --config-path={folder.absolute()} --config-name {said['name']}"
            )


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
    that are all in quotes: `"a","b"` or `choice("a","b")`; of one text in quotes a note says that they are no part of it.

    Plain text is quoted, so the record stays readable; anything else travels as base64 through the
    `literal` resolver. Other arguments are left alone.
    """
    many = any(a in MULTIRUN for a in arguments)
    # older argparse wants them before the overrides
    flags = [a for a in arguments if a in MULTIRUN]
    for said in filter(None, map(unquoted, arguments if many else ())):
        print(f"note: {said}", file=sys.stderr)
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
