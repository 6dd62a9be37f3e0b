"""Which YAML holds what Hydra cannot compose, and what was probably meant in it."""

import re
import sys
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

from harness import keys, variants
from harness.config import chain
from harness.config.key import wanted
from harness.config.literal import MULTIRUN
from harness.config.option import readable, schemas
from harness.config.schema import KEYS
from harness.config.unknown import hydra_key, plugin_key, unknown_key
from harness.errors import suggestion
from harness.variants import folders, options

PACKAGE = "# @package _global_"
HEADER = re.compile(r"\s*#\s*@package\b")  # which Hydra reads in the first line alone


def in_yaml(text: str, argv: list[str]) -> str | None:
    """One plain message for a mistake that lies in a file; None for any other. text: what Hydra says."""
    where = said[1] if (said := re.match(r"In '([\w/.-]+)': ", text)) else ""
    if (path := file(where)) is None:
        return _chosen_twice(text, argv) or _named_in_defaults(text, argv)
    called = "=".join(where.rsplit("/", 1))
    group = where.rpartition("/")[0]
    said = re.search(r"Key '.+?' not in '(\w+)'\n *full_key: (\S+)", text)
    below = group == "experiment" or (said is not None and said[2] == group.partition("/")[0])
    if below and not HEADER.match(path.read_text("utf-8")):
        return (
            f"{called}: {path} has no `{PACKAGE}` as its first line, so what it sets would lie below "
            f"`{group}`. Write it there."
        )
    if said:
        name, key = said.groups()
        near = _of_hydra(key, name) if key.startswith("hydra.") else unknown_key(key, "")
        return (
            f"{called}: {path} sets '{key}', which is not a key of the configuration.{near or ''}"
        )
    value = re.search(r"Value '(.*?)' .*\n *full_key: (\S+)", text)
    if value and (meant := wanted(text)):
        return f"{called}: {path} sets {value[2]} to '{value[1]}', which is not possible: give {meant}."
    return _named_in_defaults(text, argv)


def _of_hydra(key: str, name: str) -> str:
    """What is meant by a `hydra.` key that there is not. name: of the class which was looked in."""
    above, _, last = key.removeprefix("hydra.").rpartition(".")
    plugin = above in ("launcher", "sweeper", "sweeper.sampler")
    near = plugin_key(above, last, name) if plugin else hydra_key(above, last)
    return near or " Hydra has no such key; `--cfg hydra` shows its own."


def setter(key: str) -> str:
    """`FILE: ` of the YAML of this job that gives `group.key`; empty where none does."""
    return next((f"{path}: " for path, _ in _given(key)), "")


def giver(setting: str) -> str:
    """`FILE: ` of the YAML of this job that gives `KEY=VALUE`; empty where none does, as of what is typed."""
    key, _, value = setting.partition("=")
    return next((f"{path}: " for path, held in _given(key) if str(held) == value), "")


def _given(key: str) -> Iterator[tuple[Path, Any]]:
    """The YAMLs of this job that give `key`, of a group or by itself, the last one first, each with its value."""
    group, dot, inner = key.partition(".")
    for where, package in chain.files(sys.argv[1:]):
        if (path := file(where)) is None or package not in ("", group):
            continue
        tree = keys.tree(path)
        held = tree if package or not dot else tree.get(group)
        if isinstance(held, dict) and (inner or key) in held:
            yield path, held[inner or key]


def reference(text: str) -> str | None:
    """One plain message for a `${...}` that leads nowhere, with the key that holds it, and its file; None for any other
    mistake. text: what omegaconf says."""
    if (said := re.search(r"\n *full_key: (\S+)", text)) is None:
        return None
    absent = re.match(r"Interpolation key '(.+?)' not found", text)
    if text.startswith("Recursive interpolation"):
        sign, why = "${", "it leads back to itself. Give it a value, or name another key in it."
    elif resolver := re.match(r"Unsupported interpolation type (\S+)", text):
        sign = f"${{{resolver[1]}:"
        why = f"there is no resolver {resolver[1]}. A reference to a key has no colon: ${{KEY}}."
    elif absent:
        sign = f"${{{absent[1]}}}"
        why = f"{sign} names no key of the configuration.{_referred_to(absent[1])}"
    else:
        return None
    folder = said[1] in ("hydra.run.dir", "hydra.sweep.dir")  # which is made of both
    for key in ("name", "runs_dir", said[1]) if folder else (said[1],):
        typed = [a for a in sys.argv[1:] if a.lstrip("+").startswith(f"{key}=")]
        held = [
            f"{path}: {key}={value}"
            for path, value in _given(key)
            if variants.conf_dir() not in path.parents
        ]
        if sign in (whole := next(iter((*reversed(typed), *held)), "")):  # what is typed counts
            return f"{whole}: {why}"
    return None if absent else f"{said[1]}: {why}"  # it may be the harness's own that is missing


def _referred_to(key: str) -> str:
    """The key that was probably meant by a reference to `key`, or where all are shown."""
    group, _, inner = key.partition(".")
    near = unknown_key(key, "") or ""
    if group in schemas() and inner:
        known = {k for o in variants.sound(group) for k in readable(group, o)}
        near = suggestion(inner, sorted(known)).replace("mean '", f"mean '{group}.")
    return near if "Did you mean" in near else " `--cfg job` shows all of them."


def in_brackets(setting: str) -> str:
    """What to add where a sweep that a file declares gives a key a list in place of several values; empty for any other
    `KEY=VALUE`."""
    key, _, value = setting.partition("=")
    typed = any(a.lstrip("+").startswith(f"{key}=") for a in sys.argv[1:])
    if typed or not value.startswith("[") or not {*MULTIRUN} & {*sys.argv}:
        return ""
    return f" The values of a file's sweep stand without brackets: `{key}: {value.strip('[]')}`."


def file(where: str) -> Path | None:
    """The YAML that Hydra calls by the name `where`."""
    places = (*folders(), chain.home(sys.argv[1:]))
    return next((p for f in places if (p := f / f"{where}.yaml").is_file()), None)


def _chosen_twice(text: str, argv: list[str]) -> str | None:
    """A YAML that chooses an option of a group which is chosen already, and does not say `override`."""
    if (said := re.match(r"Multiple values for ([\w/]+)\.", text)) is None:
        return None
    pairs = [a.lstrip("+").partition("=")[::2] for a in argv]
    names = [
        f"{g}/{o}"
        for g, v in pairs
        if g in ("experiment", "task")
        for o in v.strip("[]").split(",")
    ]
    names += [after for flag, after in pairwise(argv) if chain.PRIMARY.get(flag) == "name"]
    names += [value for flag, value in pairs if chain.PRIMARY.get(flag) == "name" and value]
    for path in filter(None, map(file, names)):
        for entry in keys.tree(path).get("defaults") or []:
            for key, option in entry.items() if isinstance(entry, dict) else ():
                if str(key).lstrip("/") == said[1]:
                    return (
                        f"{path} chooses {said[1]}: {option}, and an option of {said[1]} is chosen already. Write "
                        f"`override /{said[1]}: {option}`."
                    )
    return None


def _referred(argv: list[str], group: str, option: str) -> str | None:
    """What is wrong with a typed `group=${...}` that turns out to be `option`; None where nothing of that kind is."""
    typed = next((a for a in argv if a.lstrip("+").startswith(f"{group}=${{")), "")
    near = suggestion(option, options(group))
    return f"{typed} is {option}, which is not an option of {group}.{near}" if typed else None


def _named_in_defaults(text: str, argv: list[str]) -> str | None:
    """A YAML whose defaults list names a group or an option that there is not: which, and what is meant."""
    said = re.match(r"In '([\w/.-]+)': Could not (?:override|find|load) '(\w+)(?:/([^']+))?'", text)
    if said is None:
        return None
    where, group, option = said.groups()
    if where == "config":  # Hydra speaks of the whole where an override of an option's YAML fails
        pairs = (a.lstrip("+").partition("=")[::2] for a in argv)
        chose = [(g, o) for g, o in pairs if g in ("experiment", "task")]
        texts = {f"{g}/{o}": str(variants.defaults(g, o)) for g, o in chose}
        where = next(
            (w for w, list_ in texts.items() if group in list_ and str(option) in list_), ""
        )
    if (path := file(where)) is None:
        return _referred(argv, group, str(option))
    inner, _, chosen = str(option).partition("/")
    if chosen and inner in schemas():  # looked for below the file's own group
        return (
            f"{where.replace('/', '=')}: {path} names `{inner}: {chosen}`, which Hydra looks for below {group}/. Write "
            f"`override /{inner}: {chosen}`."
        )
    if any((folder / group).is_dir() for folder in folders()):
        return (
            f"{where.replace('/', '=')}: {path} names {group}: {option}, and '{option}' is not an option "
            f"of {group}.{suggestion(str(option), options(group))}"
        )
    if (
        option is None and "Could not load" in text
    ):  # a whole configuration, as the harness's own is
        if group == "config" and any(
            chain.PRIMARY.get(a.partition("=")[0]) == "path" for a in argv
        ):
            return (
                f"{where}: {path} names '{group}', the harness's own, and --config-path replaces the folder that it lies in. "
                f"With --config-dir {path.parent} in its place, both are found."
            )
        near = suggestion(group, sorted({p.stem for f in folders() for p in f.glob("*.yaml")}))
        return f"{where}: {path} names '{group}', and there is no such file.{near}"
    single = [key for key in KEYS if key not in schemas()]
    near = suggestion(group, [*schemas(), *single])
    if any(f"mean '{key}'" in near for key in single):
        near += " That is a key, not a group: it stands outside of `defaults`."
    return f"{where.replace('/', '=')}: {path} names a group '{group}', which there is not.{near}"
