"""What Hydra and OmegaConf refuse, as one line: their own message, with the key or the file it is about.

Restated are only unknown options and unknown keys, with a suggestion."""

import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any

from harness import extras, keys, variants
from harness.config.option import schemas
from harness.config.unknown import unknown_key, unknown_option
from harness.errors import MissingExtra, suggestion

PLUGINS = {
    "launcher": ("basic", "joblib", "ray", "submitit_local", "submitit_local_packed", "submitit_slurm",
                 "submitit_slurm_packed"),
    "sweeper": ("basic", "optuna"),
}  # fmt: skip
_OPTION = re.compile(r"Could not (?:find|load) '(\w+(?:/\w+)*?)/([^']+)'")
_KEY = re.compile(r"Key '[^']*' (?:not in '\w+'|is not in struct)\s+full_key: (\S+)")
_FILE = re.compile(r"In '([^']+)': ")
_DETAILS = ("full_key:", "object_type=", "reference_type=", "^")


def explain(problem: Exception, argv: list[str]) -> str | None:
    """One line for an error of Hydra's or OmegaConf's; None for any other exception."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import MarkedYAMLError

    if isinstance(problem, MarkedYAMLError) and problem.problem_mark:
        return keys.unreadable(problem.problem_mark.name, problem)
    if isinstance(problem, RecursionError):
        return "a defaults list leads back to itself." if _raised_by_hydra(problem) else None
    if not isinstance(problem, HydraException | OmegaConfBaseException):
        if not _raised_by_hydra(problem):
            return None
        typed = " ".join(a for a in argv if a.lstrip("+~").startswith("hydra"))
        text = one_line(problem) or type(problem).__name__
        return f"{typed}: {text}" if typed else text
    text = f"{problem}\n{problem.__cause__ or ''}"
    said = _option(text, argv) or _key(text, argv) or one_line(problem)
    return f"{_about(text, argv)}{_FILE.sub('', said)}"


def one_line(problem: BaseException) -> str:
    """An error and its cause as Hydra and OmegaConf word them, without their lists and details."""
    found = [str(one).strip().partition("\n\n")[0] for one in (problem, problem.__cause__) if one]
    lines = [line.strip() for text in found for line in text.splitlines()]
    lines = [line for line in lines if line and not line.startswith(_DETAILS)]
    ends = [line if line[-1] in ".:?!" else f"{line}:" for line in lines]
    text = " ".join([*ends[:-1], *lines[-1:]])
    key = getattr(problem, "full_key", None)
    override = getattr(problem, "override", None)
    about = next((str(one) for one in (key, override) if one and str(one) not in text), "")
    return f"{about}: {text}" if about else text


def holder(key: str) -> str:
    """`FILE: ` of the user's own YAML, of those that the command line chooses, that gives `group.key` or a common
    `key`; empty where none does."""
    typed = [a.lstrip("+").partition("=") for a in sys.argv[1:]]
    if any(name == key for name, _, _ in typed):
        return ""
    group, _, inner = key.partition(".")
    for name, _, value in typed:
        if name not in (group, "experiment"):
            continue
        for option in value.strip("[]").split(","):
            path = variants.written(name, option.strip())
            if path is None or variants.conf_dir() in path.parents:
                continue
            tree: Any = keys.tree(path)
            held = tree if name == group else tree.get(group)
            if key in tree or (inner and isinstance(held, dict) and inner in held):
                return f"{path}: "
    return ""


def installed(kind: str) -> list[str]:
    """The launchers or sweepers that can be chosen here. kind: launcher or sweeper."""
    named = ((name, name.partition("_")[0]) for name in PLUGINS[kind])
    here = [n for n, extra in named if extra not in extras.NEEDS or not extras.missing(extra)]
    return [*here, *variants.outside(f"hydra/{kind}")]


def _option(text: str, argv: list[str]) -> str | None:
    """An option that there is not."""
    if (found := _OPTION.search(text)) is None:
        return None
    group, option = found.groups()
    if group == "hydra":  # hydra/launcher, hydra/sweeper/sampler
        kind, _, option = option.rpartition("/")
        if kind not in PLUGINS:
            return None
        if option in extras.NEEDS:
            return str(MissingExtra(f"hydra/{kind}={option}", option, f"hydra-{option}-{kind}"))
        return f"hydra/{kind}={option} is not installed.{suggestion(option, installed(kind))}"
    if group not in (*schemas(), "experiment"):
        return None
    typed = next((a for a in argv if a.lstrip("+").startswith(f"{group}=")), "")
    return f"{typed and f'{typed}: '}{unknown_option(group, option)}"


def _key(text: str, argv: list[str]) -> str | None:
    """A key that there is not; Hydra names its own."""
    found = _KEY.search(text)
    if found is None or found[1].startswith("hydra"):
        return None
    typed = (argument.partition("=")[0].lstrip("+~") for argument in argv)
    return unknown_key(next((key for key in typed if key.startswith(f"{found[1]}.")), found[1]))


def _about(text: str, argv: list[str]) -> str:
    """`FILE: ` where the message is about a YAML of the user's own."""
    name = found[1] if (found := _FILE.search(text)) else ""
    home = [Path(a.partition("=")[2]) for a in argv if a.startswith(("--config-path=", "-cp="))]
    files = (folder / f"{name}.yaml" for folder in (*variants.folders(), *home))
    path = next((file for file in files if file.is_file()), None)
    return "" if path is None or variants.conf_dir() in path.parents else f"{path}: "


def _raised_by_hydra(problem: Exception) -> bool:
    """Whether Hydra or OmegaConf raised it by itself, over something typed."""
    import hydra
    import omegaconf

    circle = isinstance(problem, RecursionError)  # whose last frame may be anybody's
    last = [frame.filename for frame in traceback.extract_tb(problem.__traceback__)[-50 if circle else -1 :]]  # fmt: skip
    homes = tuple(f"{Path(str(module.__file__)).parent}{os.sep}" for module in (hydra, omegaconf))
    return 2 * sum(name.startswith(homes) for name in last) > len(last)
