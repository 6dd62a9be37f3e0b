"""Composition errors as one plain message: what is wrong, and what was probably meant."""

import re
from dataclasses import fields, is_dataclass
from itertools import takewhile

from harness import extras, keys, variants
from harness.config.key import wanted
from harness.config.option import UNREAD, readable, schemas
from harness.config.schema import Config
from harness.errors import MissingExtra, suggestion
from harness.variants import folders, options

SUBMITIT = ("submitit_local", "submitit_local_packed", "submitit_slurm", "submitit_slurm_packed")
PLUGINS = {"launcher": ("basic", "joblib", "ray", *SUBMITIT), "sweeper": ("basic", "optuna")}
_NOT_READ = ("no viable alternative", "mismatched input", "extraneous input", "token recognition")

VALUE = re.compile(r"nan|inf|true|false|null|[\d._]+(e\d+)?", re.I)  # as Hydra reads an argument


def explain(problem: Exception, argv: list[str]) -> str | None:
    """One plain message for a Hydra or OmegaConf composition error; None for any other exception."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import MarkedYAMLError

    text = str(problem).strip()
    no_name = isinstance(problem, ValueError) and "group override must be a string" in text
    if isinstance(problem, MarkedYAMLError) and problem.problem_mark:
        return keys.unreadable(problem.problem_mark.name, problem)
    if not no_name and not isinstance(problem, HydraException | OmegaConfBaseException):
        return None
    if missing := re.search(r"Could not find 'hydra/(launcher|sweeper)/(\w+)'", text):
        kind, name = missing[1], missing[2]
        if name in extras.NEEDS:
            return str(MissingExtra(f"hydra/{kind}={name}", name, f"hydra-{name}-{kind}"))
        return f"hydra/{kind}={name} is not installed.{suggestion(name, PLUGINS[kind])}"
    for argument in argv:
        key, equals, value = argument.partition("=")
        key = key.lstrip("+~")
        if not equals or key.startswith("hydra"):
            continue
        if any((folder / key).is_dir() for folder in folders()):
            for option in value.split(","):
                if option not in options(key) and (no_name or f"'{key}/{option}'" in text):
                    return f"{argument}: '{option}' is not an option of {key}.{option_meant(key, option)}"
                if no_name and VALUE.fullmatch(option):
                    return (
                        f"{argument}: Hydra reads '{option}' as a value, not as a name: call the option "
                        "something else, its YAML too."
                    )
        elif (near := _unknown_key(key, value)) is not None:
            return f"{argument}: '{key}' is not a key of the configuration.{near}"
    named = _named_in_yaml(text, argv)
    return named or _plain(text, str(problem.__cause__ or problem).strip(), argv)


def _named_in_yaml(text: str, argv: list[str]) -> str | None:
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
    path = next((p for f in folders() if (p := f / f"{where}.yaml").is_file()), None)
    if path is None:
        return None
    if any((folder / group).is_dir() for folder in folders()):
        return (
            f"{where.replace('/', '=')}: {path} names {group}: {option}, and '{option}' is not an option "
            f"of {group}.{suggestion(str(option), options(group))}"
        )
    keys = [f.name for f in fields(Config) if f.name not in schemas()]
    near = suggestion(group, [*schemas(), *keys])
    if any(f"mean '{key}'" in near for key in keys):
        near += " That is a key, not a group: it stands outside of `defaults`."
    return f"{where.replace('/', '=')}: {path} names a group '{group}', which there is not.{near}"


def _plain(text: str, cause: str, argv: list[str]) -> str:
    """What Hydra says, without its trimmings, with a remedy where it has none."""
    first, line = cause.splitlines()[0], text.splitlines()[0]
    line = line.removeprefix("Error merging override ")
    if line.startswith("Error parsing override"):
        return _no_pair(line.split(maxsplit=3)[-1], argv)
    if line.startswith("Ambiguous value for argument"):
        several = line.split(maxsplit=4)[-1].strip("'")
        key, _, value = several.partition("=")
        return (
            f"{several} names several values: `-m {several}` runs one after the other; a comma that "
            f"belongs to one value needs quotes: {key}=\"'{value}'\""
        )
    if meant := wanted(text + first):
        return f"{line.partition(': ')[0]} is not possible: give {meant}."
    if line.startswith("LexerNoViableAlt"):
        key, _, value = line.partition(": ")[2].partition("=")
        return f"{key}={value}: other scripts need quotes of their own: \"{key}='{value}'\""
    if any(sign in line for sign in _NOT_READ):
        return f"brackets, quotes or commas do not match: {line}. Put the whole of it in quotes: 'key=[...]'"  # fmt: skip
    if new := re.search(r"Could not override '(model\.config)\.(\w+)'", line):
        return (
            f"{new[1]}.{new[2]}: this model's own keys do not include it. If '{new[2]}' is right, add it "
            f"with a plus: +{new[1]}.{new[2]}=..."
        )
    told = line if first in line else f"{line.rstrip('.')}: {first}"
    if new := re.search(r"'hydra\.(launcher|sweeper)\.(\w+)': Key '\2' not in '(\w+)'", told):
        return (
            f"hydra.{new[1]}.{new[2]}: this {new[1]} has no such key.{_plugin_key(*new.groups())}"
        )
    return told


def _plugin_key(kind: str, key: str, name: str) -> str:
    """Which of Hydra's plugins have `key`; where none has, what the one whose configuration is of the class
    `name` has in its place. kind: launcher or sweeper."""
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    store = ConfigStore.instance()
    files = [file for file in store.list(f"hydra/{kind}") if file.endswith(".yaml")]
    nodes = {f.removesuffix(".yaml"): store.load(f"hydra/{kind}/{f}").node for f in files}
    if able := [plugin for plugin, node in nodes.items() if key in node]:
        return f" It is one of {' and '.join(f'hydra/{kind}={plugin}' for plugin in sorted(able))}."
    mine = [n for n in nodes.values() if getattr(OmegaConf.get_type(n), "__name__", "") == name]
    known = [str(k) for n in mine for k in n if k != "defaults" and not str(k).startswith("_")]
    return suggestion(key, known) if known else " It has none."


def _no_pair(word: str, argv: list[str]) -> str:
    """What to do about an argument without an equals sign, which Hydra gives in quotes."""
    bare = word.strip("'")
    at = argv.index(bare) if bare in argv else 0
    first = next((i for i in range(at - 1, -1, -1) if "=" in argv[i]), 0)
    if at and argv[first].startswith(("text=", "prompt.text=")):
        more = takewhile(lambda a: "=" not in a and not a.startswith("-"), argv[first + 1 :])
        text = " ".join([argv[first].replace("'", ""), *more])
        return f'{word} is not key=value. A text with blanks needs quotes: "{text}"'
    if bare in options("task"):
        return f"{word} is not key=value. Did you mean task={bare}?"
    if bare in (*schemas(), "experiment"):
        return (
            f"{word} is not key=value: {bare}=OPTION. `python -m harness {bare} --help` lists them."
        )
    if bare == "help":
        return f"{word} is not key=value. Did you mean --help?"
    return (
        f"{word} is not key=value. Is something left out, or is a value with blanks or brackets in "
        "need of quotes?"
    )


def option_meant(group: str, option: str) -> str:
    if group == "model" and ("/" in option or option.startswith((".", "~"))):
        return f" Did you mean model=path model.path={option}?"
    hint = " For words of your own: text='...'." if group == "prompt" else ""
    return suggestion(option, options(group)) + hint


def _unknown_key(key: str, value: str) -> str | None:
    """A suggestion when `key` (dotted) is no common key; None when it is one, or a group's own."""
    schema: type = Config
    parts = key.split(".")
    if parts[0] in schemas():
        return None
    for i, part in enumerate(parts):
        known = {f.name: f.type for f in fields(schema)}
        if part not in known:
            if i == 0 and parts[1:] and (near := _of_a_task(parts)):
                return near
            return _meant(part, value) if i == 0 else _nested(parts[:i], part, list(known))
        inner = known[part]
        if not (isinstance(inner, type) and is_dataclass(inner)):
            return None
        schema = inner
    return None


def _of_a_task(parts: list[str]) -> str:
    """For `port` and `ui.port`: that is `task.port`, which task=ui reads."""
    *above, key = parts
    tasks = [
        t
        for t in variants.sound("task")
        if key in variants.signature("task", t) and above in ([], [t])
    ]
    if not tasks or key in ("name", "reads", UNREAD):
        return ""
    return f" Did you mean 'task.{key}'? {' and '.join(f'task={t}' for t in tasks[:4])} read{'s' * (len(tasks) == 1)} it."


def _nested(above: list[str], part: str, known: list[str]) -> str:
    return suggestion(part, known).replace("mean '", f"mean '{'.'.join(above)}.")


def _meant(part: str, value: str) -> str:
    """Also `temperature` for `sampling.temperature`, and `format=gzip` for `save=gzip`, where only
    one group fits."""
    top = [*(f.name for f in fields(Config)), "experiment"]
    owners: dict[str, list[str]] = {}
    for group in schemas():
        known = set().union(*(readable(group, option) for option in variants.sound(group)))
        for inner in known if group != "task" else ():
            owners.setdefault(inner, []).append(group)
    if part not in (*owners, *top) and (near := _of_a_task([part])):
        return near
    nested = {k: f"{o[0]}.{k}" for k, o in owners.items() if len(o) == 1}
    groups = [n for n in schemas() if value in options(n) and value != "none"]
    if part not in nested and part.lower() not in top and len(groups) == 1:
        return f" Did you mean '{groups[0]}={value}'?"
    near = suggestion(part, [*top, *(k for k in nested if k not in top)])
    for key, full in nested.items():
        if key not in top:
            near = near.replace(f"'{key}'", f"'{full}'")
    return near if "Did you mean" in near else suggestion(part, top)
