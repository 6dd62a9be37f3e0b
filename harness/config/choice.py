"""Typed keys that neither the task nor the chosen option reads."""

from collections.abc import Mapping, Sequence

from harness import variants
from harness.config.literal import decoded
from harness.config.option import UNREAD, askers, misread, readers, schemas, shared
from harness.config.schema import Config
from harness.errors import ConfigProblem


def check_typed(overrides: Sequence[str], options: Mapping[str, str]) -> None:
    """Raise ConfigProblem for what `unheeded` finds, and for two budgets."""
    for problem in unheeded(overrides, options).values():
        raise ConfigProblem(problem)
    budgets = [o for o in overrides if o.startswith(("prune.tokens=", "prune.ratio="))]
    budgets = [o for o in budgets if not o.endswith("=null")]
    if len({o.partition("=")[0] for o in budgets}) > 1:
        raise ConfigProblem(f"{' and '.join(budgets)} are two budgets. Give one of them.")


def unheeded(overrides: Sequence[str], options: Mapping[str, str]) -> dict[str, str]:
    """By its key, why a typed override has no effect. options: the option of each group, as composed."""
    found = {}
    for override in map(decoded, overrides):
        key = override.partition("=")[0].lstrip("+~")
        if problem := _of_task(override, options, overrides) or _of_option(override, options):
            found[key] = problem
    return found


def heeded(overrides: Sequence[str], options: Mapping[str, str]) -> list[str]:
    """The overrides that have an effect: a point of a sweep is also given keys for other points."""
    without = unheeded(overrides, options)
    return [o for o in overrides if o.partition("=")[0].lstrip("+~") not in without]


def unread(task: str) -> list[str]:
    """Groups, common keys and keys of groups that a task does not read: its YAML's list."""
    return list(variants.signature("task", task).get(UNREAD, []))


def _of_task(override: str, options: Mapping[str, str], overrides: Sequence[str]) -> str | None:
    task = options.get("task", "")
    key, _, value = override.partition("=")
    key = key.lstrip("+~")
    group, _, inner = key.partition(".")
    if task not in variants.options("task") or value in (_default_option(group), "null"):
        return None
    if key in Config.ASKED:
        reads = askers(key)
        said = f"{override} is not read by task={task}: {readers('task', reads)}"
        return None if task in reads else said
    if task == "save" and key == "steps" and not any(o.startswith("foreign=") for o in overrides):
        return f"{override} is not read by task=save without from=FILE: nothing is generated."
    if group in schemas() and inner and str(shared(group).get(inner)) == value:
        return None
    names = {key, group, f"{key}.name"}  # the key, its group, and which option of the group
    if names.isdisjoint(unread(task)):
        return None
    able = [t for t in variants.sound("task") if names.isdisjoint(unread(t))]
    return f"{override} is not read by task={task}: {readers('task', able)}"


def _of_option(override: str, options: Mapping[str, str]) -> str | None:
    key, _, value = override.partition("=")
    group, dot, inner = key.lstrip("+~").partition(".")
    if not dot or group not in schemas():
        return None
    if inner == "name":
        return f"{override}: an option is chosen by its group, {group}={value or 'OPTION'}."
    option = options.get(group, "")
    if option not in variants.options(group):
        return None
    first, _, below = inner.partition(".")
    if problem := misread(group, [option], [first]):
        return problem
    held = variants.signature(group, option).get(first)
    if below and isinstance(held, dict) and below.partition(".")[0] not in held and key[0] != "+":
        return f"{group}.{first} of {group}={option} has no '{below}'. To add it: +{key}={value}"
    return None


def _default_option(group: str) -> str | None:
    """The option of `group` in `config.yaml`."""
    for entry in variants.defaults("", "config"):
        if isinstance(entry, dict) and group in entry:
            return entry[group]
    return None
