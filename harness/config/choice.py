"""What a command line chooses, read from the command line and the YAML alone: before anything is
composed, and for a whole sweep at once."""

import fnmatch
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from harness import machine, variants
from harness.config import chain
from harness.config.explain import option_meant
from harness.config.key import ungiven
from harness.config.literal import unescaped
from harness.config.option import NAMES, UNREAD, misread, readable, readers, schemas, shared
from harness.config.schema import MISSING, Config
from harness.config.tracking import check_uri
from harness.config.unknown import block
from harness.errors import ConfigProblem, suggestion

MANY = 64  # choices of a sweep that are composed to see what they lead to
LASTING = "{} cannot be taken away: a run without it would go by its default. Leave it out, or set it: {}=..."
_NAMES = re.compile(r"[\w,]+")
_CHOICE = re.compile(r"choice\(([\w, ]+)\)")
_GLOB = re.compile(r"glob\(([\w*?]+)\)")


def chosen(group: str, overrides: Sequence[str]) -> list[str]:
    """The options of `group` that these overrides may lead to: what is typed, else what the chosen
    task or experiment overrides, else the default. All of them where that cannot be told."""
    values = [v for key, v in map(_pair, overrides) if key == group and not v.startswith("{")]
    if not values and group != "experiment":
        values = chain.varied(group, chosen("experiment", overrides))
    if values:
        if shape := _GLOB.fullmatch(values[-1]):
            return fnmatch.filter(variants.options(group), shape[1])
        if listed := _CHOICE.fullmatch(values[-1]):
            return [name.strip() for name in listed[1].split(",")]
        plain = _NAMES.fullmatch(values[-1])
        return values[-1].split(",") if plain else variants.options(group)
    if deep := _composed(group, overrides):
        return deep
    named = [] if group in ("task", "experiment") else [
        option for other in ("experiment", "task") for name in chosen(other, overrides)
        if (option := _overrides(other, name).get(group))
    ]  # fmt: skip
    if group == "task":
        named = [t for e in chosen("experiment", overrides) if (t := _overrides("experiment", e).get(group))]  # fmt: skip
    return named or [option for option in [_defaults().get(group)] if option]


def _pair(override: str) -> tuple[str, str]:
    key, _, value = override.partition("=")
    return key.lstrip("+"), value


def _composed(group: str, overrides: Sequence[str]) -> list[str]:
    """The options of `group` as Hydra composes them; none where our own look at the files is enough. A sweep's
    experiments and tasks one after the other."""
    places = (*schemas(), "experiment")
    typed = [(key, v) for key, v in map(_pair, overrides) if key in places and _NAMES.fullmatch(v)]
    named = [(key, option) for key, v in typed for option in v.split(",")]
    if not chain.needed(named):
        return []
    ways: list[tuple[str, ...]] = [tuple(o for o in overrides if o.startswith("hydra.searchpath="))]
    for key, value in typed:
        ways = [(*way, f"{key}={option}") for way in ways for option in value.split(",")]
    found = [chain.choices(tuple(sys.argv[1:]), way).get(group) for way in ways[:MANY]]
    return list(dict.fromkeys(filter(None, found)))


def check_typed(overrides: Sequence[str]) -> None:
    """Raise ConfigProblem for an option that there is not; then, since what a key is read by hangs on the
    options, for a `group.key=value` that no option which is chosen would read, for a new key below one of
    them that has no plus before it, and for what none of the chosen tasks reads."""
    overrides = [one for override in overrides for one in _spread(override)]
    for override in overrides:
        check_option(override)
    for override in overrides:
        typed, equals, value = override.partition("=")
        group, dot, rest = typed.lstrip("+").partition(".")
        if problem := _ignored(override, group, value, overrides):
            raise ConfigProblem(problem)
        if typed.startswith("~"):
            _check_taken(override, overrides)
        if not equals or not dot or group not in schemas():
            continue
        key, _, inner = rest.partition(".")
        options = [o for o in chosen(group, overrides) if o in variants.options(group)]
        if not options:
            continue
        if problem := misread(group, options, [key]):
            if typed == "model.path" and not any(o.startswith("model=") for o in overrides):
                problem = (
                    f"{override} is read by model=path alone: add that, model=path {override}."
                )
            raise ConfigProblem(problem)
        _check_inner(typed, group, key, inner, options)
        if typed == "track.uri" and not set(value) & set("'\"$,") and value != "null":
            check_uri(unescaped(override).partition("=")[2])
    budgets = [o for o in overrides if o.startswith(("prune.tokens=", "prune.ratio="))]
    budgets = [o for o in budgets if not o.endswith("=null")]
    if len({o.partition("=")[0] for o in budgets}) > 1:
        raise ConfigProblem(f"{' and '.join(budgets)} are two budgets. Give one of them.")


def _check_taken(override: str, overrides: Sequence[str]) -> None:
    """Raise ConfigProblem for a key that is to be taken away and has a default all the same: the run would go by it,
    and its record would not say so."""
    group, _, key = override.lstrip("~").partition("=")[0].partition(".")
    usual: dict[str, Any] = block(group)
    if group in schemas():
        options = [o for o in chosen(group, overrides) if o in variants.options(group)]
        own = [variants.signature(group, option) for option in options]
        usual = {k: v for keys in own for k, v in keys.items()} | shared(group)
    if usual.get(key) is not None:
        raise ConfigProblem(LASTING.format(override, f"{group}.{key}"))


def _spread(override: str) -> list[str]:
    """`group={a:1,b:2}` as the keys that it gives, `group.a=1` and so on, of a sweep those of all its values;
    anything else as it is."""
    typed, _, value = override.partition("=")
    if typed.lstrip("+") not in schemas() or "{" not in value:
        return [override]
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.core.override_parser.types import ChoiceSweep
    from hydra.errors import HydraException

    try:
        held = OverridesParser.create().parse_override(override).value()
    except HydraException:  # it says so itself
        return [override]
    each = held.list if isinstance(held, ChoiceSweep) else [held]
    keys = [(k, v) for one in each if isinstance(one, dict) for k, v in one.items()]
    rest = [str(one) for one in each if not isinstance(one, dict)]
    given = [f"{typed}={','.join(rest)}"] * bool(rest)
    return given + list(dict.fromkeys(f"{typed}.{k}={'null' if v is None else v}" for k, v in keys))


def check_option(override: str) -> None:
    """Raise ConfigProblem for a group without an option, with several, or with one that there is not, and for
    what the harness itself or Hydra has in a place."""
    typed, _, value = override.partition("=")
    group = typed.lstrip("+")
    if MISSING in value.split(","):
        raise ConfigProblem(ungiven(override))
    if not group.lstrip("~"):
        raise ConfigProblem(
            f"{override} names no key: {f'{typed}KEY' if typed else f'KEY{override}'}."
        )
    if group in ("hydra.launcher", "hydra.sweeper") and not value.startswith("{"):
        kind = group.partition(".")[2]
        raise ConfigProblem(f"{override}: a {kind} is chosen with a slash: hydra/{kind}={value}.")
    if group.lstrip("~") == "hydra.callbacks.sweep":
        raise ConfigProblem(
            f"{override}: the harness itself calls that callback sweep, and no run goes without it. Call yours "
            "otherwise: +hydra.callbacks.mine._target_=..."
        )
    if typed.startswith("+") and group in schemas() and value:
        raise ConfigProblem(
            f"{override}: {group} is chosen already; without the plus: {group}={value}."
        )
    whose, _, key = group.lstrip("~").partition(".")
    if key == "name" and whose in schemas():
        option = value or "OPTION"
        raise ConfigProblem(
            f"{override}: an option brings all of its keys, and is chosen by its group: {whose}={option}. In a "
            f"file: `override /{whose}: {option}` among its defaults."
        )
    if typed in ("~name", "~runs_dir", "~hydra/job_logging", "~hydra/hydra_logging"):
        raise ConfigProblem(f"{override} takes away what every run needs. Set it: {typed[1:]}=...")
    if typed.startswith("~") and typed[1:] in {f.name for f in fields(Config)} - {*schemas()}:
        raise ConfigProblem(LASTING.format(override, typed[1:]))
    if typed.startswith("~") and typed[1:] in (*schemas(), "hydra/launcher", "hydra/sweeper"):
        raise ConfigProblem(
            f"{typed} takes away what every run needs: {typed[1:]}=OPTION. "
            f"`python -m harness {typed[1:]} --help` lists them."
        )
    if group in schemas() and value.startswith("["):
        raise ConfigProblem(
            f"{override}: one option of {group} at a time; `-m {group}=a,b` runs one after the other."
        )
    if group == "experiment":  # several are composed, one on the other
        value = value.removeprefix("[").removesuffix("]").replace(" ", "")
    for option in value.split(",") if group in (*schemas(), "experiment") else ():
        if _NAMES.fullmatch(value) and option not in variants.options(group):
            raise ConfigProblem(
                f"{override}: '{option}' is not an option of {group}.{option_meant(group, option)}"
            )
        if group in schemas():
            _check_yaml(group, option)


BUILT = (
    "prune",
    "quantize",
    "cache",
    "save",
    "prompt",
    "tokenizer",
    "fault",
)  # by the name of their option


def _check_yaml(group: str, option: str) -> None:
    """Raise ConfigProblem for the YAML of a chosen option that cannot be read, that is called otherwise than
    its file, or that gives other values to an option whose keys it does not know."""
    keys = variants.signature(group, option)
    name = str(keys.get("name"))
    inherits = "name" not in keys and variants.defaults(group, option)
    nameless = "name" not in keys and variants.written(group, option)
    if name != option and (variants.TARGET in keys or nameless) and not inherits:
        raise ConfigProblem(variants.misnamed(group, option))
    ours = variants.options(group, variants.conf_dir())
    bases = [base for base in variants.defaults(group, option) if base in ours]
    if (
        name == option
        and option not in ours
        and bases
        and group in BUILT
        and variants.TARGET not in keys
    ):
        raise ConfigProblem(
            f"{group}={option} inherits {group}={bases[0]} and gives itself another name, by which no class is found. Leave "
            f"`name` out of {variants.written(group, option)}: it is recorded as {option} all the same."
        )
    if inherits and variants.TARGET not in keys:
        keys, name = variants.own(group, option), variants.built_by(group, option)
    if name == option or variants.TARGET in keys or name not in variants.options(group):
        return  # it declares what it reads, or `typed` says what is wrong with its name
    known = readable(group, name)
    if strange := [key for key in keys if key not in known]:
        near = suggestion(strange[0], sorted(known - set(NAMES)))
        where = variants.written(group, option)
        raise ConfigProblem(f"{group}.{strange[0]} is no key of {group}={name}, in {where}.{near}")


def _ignored(override: str, key: str, value: str, overrides: Sequence[str]) -> str | None:
    """What is wrong when the chosen tasks would pass over what was typed in silence: what an experiment
    sets, or the default, is no mistake."""
    tasks = chosen("task", overrides)
    if not tasks or value in (_defaults().get(key), "null"):
        return None
    typed = override.lstrip("+").partition("=")[0]
    if (
        typed == "steps"
        and tasks == ["save"]
        and not any(o.startswith("foreign=") for o in overrides)
    ):
        return (
            f"{override} is not read by task=save without from=FILE: nothing is generated. "
            "Leave it out, or go on from the snapshot with task=resume steps=..."
        )
    if "." in typed and key in schemas() and str(shared(key).get(typed.partition(".")[2])) == value:
        return None
    passed = {key, typed, f"{typed}.name"}  # the group, the key in it, and which option of it
    if any(passed.isdisjoint(unread(task)) for task in tasks):
        return None
    able = [t for t in variants.sound("task") if passed.isdisjoint(unread(t))]
    said = " or ".join(f"task={task}" for task in tasks)
    return f"{override} is not read by {said}: {readers('task', able)}"


def heeded(overrides: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """Those of a job that it reads: what a sweep gives for its other points, too, would be an error of one by itself.
    options: what was composed, the option of each group."""
    task, known = options.get("task", ""), variants.options("task")
    reads = variants.signature("task", task).get("reads", []) if task in known else Config.ASKED

    def read(override: str) -> bool:
        typed, value = _pair(override)
        group, dot, rest = typed.partition(".")
        if typed in Config.ASKED and typed not in reads:
            return False
        if task in known and _ignored(override, group, value, [*overrides, f"task={task}"]):
            return False
        option = options.get(group, "") if dot and group in schemas() else ""
        there = option in variants.options(group) if option else False
        return not there or rest.partition(".")[0] in readable(group, option)

    return [override for override in overrides if read(override)]


def unread(task: str) -> list[str]:
    """Groups, common keys and keys of groups that a task cannot heed: its YAML's list."""
    return variants.signature("task", task).get(UNREAD, [])


def _check_inner(typed: str, group: str, key: str, inner: str, options: Sequence[str]) -> None:
    first = inner.partition(".")[0]
    usual = [(shared(group) | variants.signature(group, option)).get(key) for option in options]
    if first and all(isinstance(value, bool | int | float | str) for value in usual):
        raise ConfigProblem(
            f"{typed}: {group}.{key} is one value and has no keys below it: {group}.{key}=..."
        )
    under = [variants.signature(group, option).get(key) or {} for option in options if inner]
    below, long = set[str](), 0
    for node in under:
        below |= set(map(str, range(len(node))) if isinstance(node, list) else node)
        long = max(long, len(node) * isinstance(node, list))
    if first.isdigit() and first not in below and long:
        raise ConfigProblem(
            f"{typed}: {group}.{key} has {machine.many(long, 'entry')}, and they are counted from 0."
        )
    if first and not typed.startswith("+") and first not in below:
        raise ConfigProblem(
            f"{typed}: this {group}'s own keys do not include it. If '{first}' is right, add it "
            f"with a plus: +{group}.{key}.{inner}=..."
        )


def _overrides(group: str, name: str) -> dict[str, str]:
    """Group -> option, as the defaults list of an experiment or a task has it."""
    return dict(pair for entry in variants.defaults(group, name) for pair in _pairs(entry))


def _defaults() -> dict[str, str]:
    """Group -> option of `config.yaml`."""
    return dict(pair for entry in variants.defaults("", "config") for pair in _pairs(entry))


def _pairs(entry: Any) -> list[tuple[str, str]]:
    if not isinstance(entry, dict):
        return []
    return [(str(k).split()[-1].lstrip("/"), str(v)) for k, v in entry.items() if v is not None]


def unheeded(overrides: Sequence[str]) -> dict[str, list[str]]:
    """Keys of a sweep, `group.key`, that some of the options it goes through do not read: those options, which
    run without them."""
    told: dict[str, list[str]] = {}
    for override in overrides:
        typed = override.partition("=")[0].lstrip("+")
        group, dot, rest = typed.partition(".")
        options = chosen(group, overrides) if dot and group in schemas() else []
        key = rest.partition(".")[0]
        deaf = [
            o for o in options if o in variants.options(group) and key not in readable(group, o)
        ]
        if deaf and len(deaf) < len(options):
            told[typed] = deaf
    return told
