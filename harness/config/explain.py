"""Composition errors as one plain message: what is wrong, and what was probably meant."""

import os
import re
import shlex
import traceback
from collections.abc import Sequence
from dataclasses import fields
from difflib import get_close_matches
from itertools import pairwise
from pathlib import Path

from harness import extras, keys
from harness.config import culprit
from harness.config.chain import PRIMARY, loader
from harness.config.grammar import no_pair, odd, pasted, quoted_glob, unclosed
from harness.config.key import unset, wanted
from harness.config.kind import listed, worded
from harness.config.literature import called
from harness.config.option import schemas, shared
from harness.config.schema import Config
from harness.config.unknown import block, hydra_key, plugin_key, unknown_key
from harness.errors import MissingExtra, suggestion
from harness.variants import folders, options, outside

SUBMITIT = ("submitit_local", "submitit_local_packed", "submitit_slurm", "submitit_slurm_packed")
PLUGINS = {"launcher": ("basic", "joblib", "ray", *SUBMITIT), "sweeper": ("basic", "optuna")}
MANY = 24  # options of a group that are still listed one by one
_LACKS = r"Interpolation key '(\w+)|Could not override '(\w+)'\. No match|Key '(\w+)' is not in struct\n *full_key: \3$"
_NOT_READ = ("no viable alternative", "mismatched input", "extraneous input", "token recognition")
_NO_INDEX = ("is not an int", "list index out of range")
PARAMS = "hydra.sweeper.params"
VALUE = re.compile(r"nan|inf|true|false|null|[\d._]+(e\d+)?", re.I)  # as Hydra reads an argument


def installed(kind: str) -> list[str]:
    """The launchers or sweepers that can be chosen here. kind: launcher or sweeper."""
    named = ((name, name.partition("_")[0]) for name in PLUGINS[kind])
    there = [n for n, extra in named if extra not in extras.NEEDS or not extras.missing(extra)]
    return [*there, *outside(f"hydra/{kind}")]


def explain(problem: Exception, argv: list[str]) -> str | None:
    """One plain message for a Hydra or OmegaConf composition error; None for any other exception."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException
    from yaml import MarkedYAMLError

    text = str(problem).strip()
    no_name = isinstance(problem, ValueError) and "group override must be a string" in text
    if isinstance(problem, MarkedYAMLError) and problem.problem_mark:
        return keys.unreadable(problem.problem_mark.name, problem)
    if isinstance(problem, RecursionError):
        return (
            "a defaults list leads back to itself. An experiment that is built on another names its file, as in "
            "`- /experiment/mine`, not the group (`/experiment: mine`), which the command line chooses."
        )
    if not no_name and not isinstance(problem, HydraException | OmegaConfBaseException):
        return _of_hydra(problem, argv)
    if missing := re.search(r"Could not find 'hydra/([\w/]+)/([\w.-]+)'", text):
        kind, name = missing[1], missing[2]
        if kind not in PLUGINS:
            return f"hydra/{kind}={name} is not an option of hydra/{kind}.{suggestion(name, _below(kind, argv))}"
        if name in extras.NEEDS:
            return str(MissingExtra(f"hydra/{kind}={name}", name, f"hydra-{name}-{kind}"))
        return f"hydra/{kind}={name} is not installed.{suggestion(name, installed(kind))}"
    if reference := culprit.reference(text):
        return reference
    for argument in argv:
        key, equals, value = argument.partition("=")
        key = key.lstrip("+~")
        if not equals or not key or key.startswith(("hydra", "-")):
            continue
        if any((folder / key).is_dir() for folder in folders()):
            lone = f"Could not override '{key}'. No match" in text
            for option in value.split(","):
                blamed = no_name or lone or f"'{key}/{option}'" in text
                if blamed and option not in options(key):
                    return f"{argument}: '{option}' is not an option of {key}.{option_meant(key, option)}"
                if no_name and VALUE.fullmatch(option):
                    return (
                        f"{argument}: Hydra reads '{option}' as a value, not as a name: call the option "
                        "something else, its YAML too."
                    )
            if lone and key not in (*schemas(), "experiment"):
                alike = get_close_matches(key, [*schemas(), "experiment"], n=1, cutoff=0.75)
                meant = f", or did you mean '{alike[0]}'?" if alike else "."
                return (
                    f"{argument}: {key} is a group of your own, of which the defaults list names no option: use "
                    f"+{argument}{meant}"
                )
        elif (near := unknown_key(key, value)) is not None:
            return f"{argument}: '{key}' is not a key of the configuration.{near}"
    return culprit.in_yaml(text, argv) or _plain(
        text, str(problem.__cause__ or problem).strip(), argv
    )


def _of_hydra(problem: Exception, argv: list[str]) -> str | None:
    """What Hydra itself stumbles over (a flag beside another, a setting of the wrong kind), when the last line
    that ran is one of its own and something of its own was typed; None for anything else."""
    import hydra
    import omegaconf

    last = traceback.extract_tb(problem.__traceback__)[-1:]
    homes = [str(Path(str(m.__file__)).parent) for m in (hydra, omegaconf)]
    if not any(frame.filename.startswith(f"{home}{os.sep}") for frame in last for home in homes):
        return None
    typed = [a for a in argv if a.lstrip("+~").startswith("hydra.")]
    if params := [a for a in typed if PARAMS in a]:
        return _from_a_file(params[0])
    if typed and not isinstance(problem, ValueError):
        return f"{' '.join(typed)} is not possible: Hydra cannot use such a value."
    flags = [a for a in argv if a.startswith("-")]
    return (str(problem).splitlines() or [""])[0] or None if typed or flags else None


def _without_ours(said: str, argv: list[str]) -> str:
    """What to do about a primary config of the user's own that leaves out what every run needs; empty for another
    error, or another primary config."""
    pairs = ((a.partition("="), b) for a, b in pairwise([*argv, ""]))
    name = next((a[2] or b for a, b in pairs if PRIMARY.get(a[0]) == "name"), "")
    missed = re.search(_LACKS, said, re.MULTILINE)
    if (
        not name
        or missed is None
        or next(filter(None, missed.groups())) not in {f.name for f in fields(Config)}
    ):
        return ""
    return (
        f"--config-name {name}: its defaults leave out the harness's own. Begin them with `- config`, and end them "
        "with `- _self_`, so that your values count."
    )


def _from_a_file(typed: str) -> str:
    return (
        f"{typed}: Hydra takes {PARAMS} from a file (an experiment's `hydra: sweeper: params:`). On the command "
        "line what varies is typed as it is: -m seed=1,2"
    )


def _plain(text: str, cause: str, argv: list[str]) -> str:
    """What Hydra says, without its trimmings, with a remedy where it has none."""
    first, line = cause.splitlines()[0], text.splitlines()[0]
    line = line.removeprefix("Error merging override ")
    if line.startswith("Error parsing override"):
        return no_pair(line.split(maxsplit=3)[-1], argv)
    if line.startswith("Ambiguous value for argument"):
        several = line.split(maxsplit=4)[-1].strip("'")
        key, _, value = several.partition("=")
        apart = (
            f"{several} names several values: `-m {shlex.quote(several)}` runs one after the other"
        )
        if listed(key):
            return f"{several}: {key} is a list, which stands in brackets: {shlex.quote(f'{key}=[{value}]')}"
        if key in schemas() or not worded(key):  # no option has a comma in its name
            return f"{apart}."
        return f"{apart}; a comma that belongs to one value needs quotes: {pasted(key, value)}"
    if line.startswith("Sweeping over Hydra's configuration") and PARAMS in line:
        return _from_a_file(next((a for a in argv if PARAMS in a), PARAMS))
    if twice := re.match(r"Multiple values for (hydra/\w+)", line):
        chosen = next((a for a in argv if a.startswith(f"+{twice[1]}=")), f"+{twice[1]}=...")
        return f"{chosen}: {twice[1]} is chosen already; without the plus: {chosen[1:]}"
    if {"--resolve", "hydra"} <= {*argv} and re.match(r"Interpolation key '\w+' not found", line):
        return f"{line}: Hydra's own part names keys of the job, which `--cfg hydra` leaves out. With both: --cfg all --resolve"
    if bare := _without_ours(text + first, argv):
        return bare
    if absent := unset(text + first):
        return absent
    if said := re.search(r"Error locating target '(.+?)'", text):
        return (
            f"{said[1]}: there is no such class, or its module cannot be imported. Is the folder that holds it "
            "on PYTHONPATH?"
        )
    if line.startswith("Could not delete"):
        return _not_there(line)
    pairs = ((a.partition("="), b) for a, b in pairwise([*argv, ""]))
    place = next((a[2] or b for a, b in pairs if PRIMARY.get(a[0]) == "path"), "")
    if line.startswith("Primary config module") and Path(place).is_dir():
        whole = Path(place).absolute()
        return f"--config-path {place} is looked for beside the harness itself. From here: --config-path={whole}"
    if line.startswith("Primary config module") or line.startswith("Cannot find primary config"):
        return f"{line.rstrip('.')}. Options of your own are added with --config-dir DIR."
    if any(sign in text + first for sign in _NO_INDEX):
        typed = ((a, a.lstrip("+").partition("=")[0].rpartition(".")[0]) for a in argv)
        if held := next(((a, key) for a, key in typed if key and listed(key)), None):
            return f"{held[0]}: {held[1]} is a list, given as a whole: '{held[1]}=[A,B]'"
    if meant := wanted(text + first):
        setting = line.partition(": ")[0]
        return f"{setting} is not possible: give {meant}.{culprit.in_brackets(setting)}"
    if line.startswith("LexerNoViableAlt"):
        key, equals, value = line.partition(": ")[2].partition("=")
        if not equals:
            return no_pair(f"'{key}'", argv)
        return f"{key}={value} needs quotes of its own: {pasted(key, value)}"
    if any(sign in line for sign in _NOT_READ):
        if strange := next(filter(odd, argv), ""):
            key, _, value = strange.partition("=")
            if "" in value.split(",")[1:] and not worded(key.lstrip("+")):
                return (
                    f"{strange}: nothing stands after its comma. Leave it out; several values run one after the other "
                    f"with -m {key}=A,B"
                )
            return f"{strange} needs quotes of its own: {pasted(key, value)}"
        if globbed := next(filter(None, map(quoted_glob, argv)), ""):
            return f"a pattern with brackets needs quotes of its own: {globbed}"
        if half := next(filter(None, map(unclosed, argv)), ""):
            return half
        return f"brackets, quotes or commas do not match: {line}. Put the whole of it in quotes: 'key=[...]'"  # fmt: skip
    if new := re.search(r"Could not override '(model\.config)\.(\w+)'", line):
        return (
            f"{new[1]}.{new[2]}: this model's own keys do not include it. If '{new[2]}' is right, add it "
            f"with a plus: +{new[1]}.{new[2]}=..."
        )
    told = line if first in line else f"{line.rstrip('.')}: {first}"
    if twice := re.search(r"Could not append to config. An item is already at '(.+?)'", told):
        return f"+{twice[1]}: {twice[1]} is there already; without the plus: {twice[1]}=..."
    if "Could not load 'config'" in told:
        return (
            f"{told.rstrip('.')}: the harness's own is looked for in --config-path too. With --config-dir DIR "
            "--config-name NAME both are found."
        )
    if said := re.match(r"Could not override 'hydra/([\w/]+)': Key '.+' not in '", told):
        above, slash, last = said[1].rpartition("/")
        meant = suggestion(last, _below(above, argv, groups=True))
        meant = meant.replace("mean '", f"mean 'hydra/{above}{slash}")
        return f"hydra/{said[1]}: Hydra has no such group.{meant}"
    if said := re.match(
        r"Could not override '(hydra\W\w+)(\.[\w.]+)?': Key '.+' not in 'HydraConf'", told
    ):
        from hydra.conf import HydraConf

        near = get_close_matches(said[1][6:], [f.name for f in fields(HydraConf)], n=1)
        hint = f" Did you mean '{said[1][:6]}{near[0]}{said[2] or ''}'?" if near else ""
        return f"{said[1]}: Hydra has no such key or group.{hint} `--cfg hydra` shows its own."
    if said := re.match(
        r"Could not override 'hydra\.(?!launcher|sweeper)([\w.]+)\.(\w+)[\w.]*': Key '\2' not in '(\w+)'",
        told,
    ):
        return f"hydra.{said[1]}.{said[2]}: Hydra has no such key.{hydra_key(said[1], said[2])}"
    if said := re.match(r"Could not override '(\w+)': Key '(\w+)' not in '", told):
        key = f"{said[1]}.{said[2]}"
        return f"'{key}' is not a key of the configuration.{unknown_key(key, '') or ''}"
    if said := re.match(r"Sweep parameters '(.+)' requires --multirun", told):
        return (
            f"{said[1]} names several values: `-m {shlex.quote(said[1])}` runs one after the other."
        )
    if said := re.match(r"Could not override '(hydra\.[\w.]+)': Key '.+' is not in struct", told):
        return f"{said[1]} is no key of Hydra's. If it is right, add it with a plus: +{said[1]}=..."
    if said := re.match(r"(~\S+): .*does not support deletion", told):
        return f"{said[1]} takes away what every run needs. Set it: {said[1].lstrip('~')}=..."
    if new := re.search(
        r"'hydra\.(launcher|sweeper|sweeper\.sampler)\.(\w+)': Key '\2' not in '(\w+)'", told
    ):
        return f"hydra.{new[1]}.{new[2]}: this {new[1]} has no such key.{plugin_key(*new.groups())}"
    return told


def _not_there(line: str) -> str:
    """What to say where `~KEY` or `~KEY=VALUE` takes nothing away."""
    if other := re.search(r"The value of '(.+)' is (.*) and not (.*?)\.?$", line):
        return f"~{other[1]}={other[3]}: {other[1]} is {other[2]}, so nothing is taken away. Whatever it is: ~{other[1]}"
    key = (re.findall(r"'(.+?)'", line) or [""])[0]
    if "=" in key:
        return f"~{key}: {key} is not chosen, so there is nothing to take away. Leave it out."
    group, _, inner = key.partition(".")
    if inner in (shared(group) if group in schemas() else block(group)):
        return (
            f"~{key}: no file gives {key}, so there is nothing to take away: a run goes by its default. "
            f"Leave it out, or set it: {key}=..."
        )
    params, _, dotted = key.partition("hydra.sweeper.params.")
    if dotted and not params:
        return (
            f"~{key}: what the sweeper varies is taken away in the file that says it, a key with a dot in its name. "
            f"For one value of it here: {dotted}=VALUE."
        )
    near = unknown_key(key, "") or ""
    meant = near if "Did you mean" in near else " Leave it out."
    return f"~{key}: there is no {key} here to take away.{meant}"


def _below(group: str, argv: list[str], groups: bool = False) -> list[str]:
    """The options of one of Hydra's own groups, or the groups in it."""
    from hydra.core.object_type import ObjectType

    hydras, _ = loader(argv)
    kind = ObjectType.GROUP if groups else ObjectType.CONFIG
    return [*hydras.get_group_options(f"hydra/{group}".rstrip("/"), kind)]


def _of_many(group: str, option: str, known: Sequence[str]) -> str:
    """The names nearest to `option`, and how all are listed."""
    near = get_close_matches(option, known, n=3, cutoff=0.6)
    meant = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    return f"{meant} `python -m harness {group} --help` lists all {len(known)}."


def option_meant(group: str, option: str) -> str:
    if group == "model" and ("/" in option or option.startswith((".", "~"))):
        if option.startswith((".", "~", "/")) or Path(option).exists():
            return f" Did you mean model=path model.path={option}?"
        return (
            " It reads like a name on a hub: naming it here downloads nothing, and there is no such folder. A model that "
            "lies on this machine: model=path model.path=DIR"
        )
    if meant := called(group, option):
        return f" Did you mean '{meant}'?"
    for folder in map(Path.absolute, folders()):
        if (folder / group / f"{option}.yml").is_file():
            return f" {option}.yml lies in {folder / group}, and Hydra reads .yaml alone: rename it to {option}.yaml."
        if folder.name == group and (folder / f"{option}.yaml").is_file():
            return f" {option}.yaml lies in {folder} itself: give the folder above, --config-dir {folder.parent}"
    if len(known := options(group)) > MANY:
        return _of_many(group, option, known)
    hint = " For words of your own: text='...'." if group == "prompt" else ""
    return suggestion("" if option in ("null", "none") else option, known) + hint
