"""Shell completion: options of groups, keys and flags, from the YAML alone, without a heavy import."""

import os
import shlex
import sys
from contextlib import suppress
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

from harness import variants
from harness.cli.arguments import CFG, INFOS, chosen_primary
from harness.config import Config, chosen, conf_dir, readable
from harness.config.chain import PRIMARY
from harness.config.explain import installed
from harness.config.key import CHOICES
from harness.config.kind import switched
from harness.config.option import NAMES, schemas
from harness.config.schema import KEYS
from harness.errors import ConfigProblem, suggestion
from harness.variants import TARGET

BASH = """\
_harness() {
    local IFS=$'\\n'
    COMPREPLY=($("${COMP_WORDS[0]}" complete "${COMP_LINE:0:COMP_POINT}" 2>/dev/null))
    local word="${COMP_LINE:0:COMP_POINT}"; word="${word##* }"
    if [[ $COMP_WORDBREAKS == *=* && $word == *=* ]]; then
        COMPREPLY=("${COMPREPLY[@]#"${word%"${word##*=}"}"}")
    fi
    [[ ${COMPREPLY[0]} == *= || ${COMPREPLY[0]} == *. ]] && compopt -o nospace
}
complete -o default -F _harness harness
"""
ZSH = """\
#compdef harness
_harness() {
    local -a all
    all=("${(@f)$(${words[1]} complete "${(j: :)words[1,CURRENT]}" 2>/dev/null)}")
    compadd -S '' -- $all || _files
}
_harness "$@"
"""
FISH = """\
complete -c harness -a '(harness complete (commandline -cp) 2>/dev/null)'
"""
LOADERS = (  # of the package bash-completion
    "/usr/share/bash-completion/bash_completion",
    "/etc/bash_completion",
    "/usr/local/share/bash-completion/bash_completion",
    "/opt/homebrew/etc/profile.d/bash_completion.sh",
    "/usr/local/etc/profile.d/bash_completion.sh",
)
SHELLS = {
    "bash": (BASH, "bash-completion/completions/harness"),
    "zsh": (ZSH, "zsh/site-functions/_harness"),
    "fish": (FISH, "fish/vendor_completions.d/harness.fish"),
}
SETTINGS = (
    "hydra.verbose",
    "hydra.run.dir",
    "hydra.sweep.dir",
    "hydra.sweep.subdir",
    "hydra.searchpath",
    "hydra.job.name",
    "hydra.job.env_copy",
    "hydra.job.env_set",
)
SAMPLER = "hydra/sweeper/sampler"  # of optuna's
HYDRAS = ("hydra/launcher", "hydra/sweeper")
HYDRA = tuple(f"{key}=" for key in (*HYDRAS, *SETTINGS))
BESIDE = {  # keys of plugins that the plugin's own configuration does not list
    "sweeper=basic": ("max_batch_size",),
    "sweeper=optuna": ("sampler.seed",),
    "launcher=submitit_local_packed": ("points_per_job",),
    "launcher=submitit_slurm_packed": ("points_per_job",),
}
UNTYPED = ("defaults", "params", "sampler", TARGET)  # of a plugin's, on a command line
AFTER = {"--cfg": CFG, "-c": CFG, "--info": INFOS, "-i": INFOS}  # what a flag takes
FOLDER = (
    "--config-dir",
    "-cd",
    "--config-path",
    "-cp",
)  # flags that take one, which the shell knows
VERBS = ("dashboard", "completion")
DASHBOARD = ("run", "runs_dir", "track.uri", "track.experiment", "port")
FLAGS = ("-m", "--multirun", "--cfg", "--help", "--hydra-help", "--version", "--config-dir", "--config-name", "--config-path", "--resolve",
         "--package", "--info")  # fmt: skip


def run(argv: list[str]) -> str:
    """What `harness completion` prints: the script of a shell (of `$SHELL`, unless one is named), or,
    after `install`, where it was written. Raises ConfigProblem for any other word."""
    wanted = {"install", "--install"} & set(argv)
    names = [word for word in argv if word not in wanted]
    shell = (names or [Path(os.environ.get("SHELL", "bash")).name])[0]
    if shell not in SHELLS or names[1:]:
        known = (*SHELLS, "install")
        word = shell if shell not in SHELLS else names[1]
        raise ConfigProblem(f"no completion for '{word}'.{suggestion(word, known)}")
    return _install(shell) if wanted else SHELLS[shell][0].rstrip()


def _install(shell: str) -> str:
    """Write the script where the shell looks for it; what was done."""
    script, place = SHELLS[shell]
    data = os.environ.get("XDG_DATA_HOME") or "~/.local/share"
    path = Path(data).expanduser() / place
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script, "utf-8")
    told = f"{shell} completes `harness` from its next start on ({path})."
    told += (
        "\nIt completes that command alone: type `harness ...` in place of `python -m harness ...`."
    )
    if shell == "bash" and not any(Path(place).exists() for place in LOADERS):
        told = (
            f"Written to {path}, which bash reads with the package bash-completion alone, and that is not here. "
            f"Install it, or add to ~/.bashrc: source {shlex.quote(str(path))}"
        )
    if shell == "zsh":
        told += f"\nIn ~/.zshrc, before compinit: fpath=({path.parent} $fpath)"
    return told


def candidates(line: str) -> list[str]:
    """What the last word of `line` may become, sorted; empty where only the person can know."""
    words = line.split(" ")[1:] or [""]
    sys.argv[1:] = words  # where `--config-dir` is looked for
    word, others = words[-1], [w for w in words[:-1] if w]
    if plus := word[: len(word) - len(word.lstrip("+"))]:
        rest = candidates(" ".join([line.partition(" ")[0], *words[:-1], word.lstrip("+")]))
        return [f"{plus}{one}" for one in rest if one.partition("=")[0] not in (*schemas(), *VERBS)]
    if others[:1] == ["completion"]:
        left = {"install"} - {*others} | (set() if {*others} & {*SHELLS} else {*SHELLS})
        return sorted(one for one in left if one.startswith(word))
    if others[:1] == ["dashboard"]:
        return sorted(f"{key}=" for key in DASHBOARD if f"{key}=".startswith(word))
    key, equals, value = word.partition("=")
    flag = others[-1] if others else ""
    if flag in FOLDER:
        return []
    if fixed := _primaries(others) if PRIMARY.get(flag) == "name" else AFTER.get(flag):
        return sorted(one for one in fixed if one.startswith(word))
    if flag in ("--package", "-p"):
        parts = {key.rstrip("=.") for key in _keys(word, others[:-1]) if "/" not in key}
        return sorted(one for one in parts if one.startswith(word))
    if equals:
        before, comma, last = value.rpartition(",")
        return sorted(f"{key}={before}{comma}{o}" for o in _values(key) if o.startswith(last))
    if word.startswith("-"):
        return sorted(flag for flag in FLAGS if flag.startswith(word))
    verbs = VERBS if len(words) == 1 and word else ()  # a word that stands alone comes first
    return sorted(k for k in {*_keys(word, others), *verbs} if k.startswith(word))


def _values(key: str) -> list[str]:
    """The options of a group; what an enumerated key may be; true and false for a switch."""
    if key in CHOICES:
        return list(CHOICES[key])
    if key in schemas() or key in _brought() or key == "experiment":
        return variants.options(key)
    if key in HYDRAS:
        return installed(key.partition("/")[2])
    if key == SAMPLER:
        return [name.removesuffix(".yaml") for name in _stored("sweeper", "sampler")]
    return ["true", "false"] if key == "hydra.verbose" or switched(key) else []


def _keys(word: str, others: list[str]) -> set[str]:
    """Keys and groups; below a group, what its chosen option reads."""
    group, dot, _ = word.partition(".")
    if dot and group in schemas():
        options = [o for o in chosen(group, others) if o in variants.options(group)]
        return {f"{group}.{k}=" for o in options for k in readable(group, o) - {*NAMES, "reads"}}
    blocks = {f.name: f.type for f in fields(Config) if is_dataclass(f.type)}
    if dot and group in blocks:
        return {f"{group}.{f.name}=" for f in fields(blocks[group])}
    single = {*KEYS} - (set(blocks) - set(schemas())) | {"experiment"}
    below = {f"{group}." for group in blocks if word and group.startswith(word)}
    hydras = {*HYDRA, *([f"{SAMPLER}="] if "optuna" in chosen("hydra/sweeper", others) else [])}
    for kind in ("launcher", "sweeper") if dot else ():
        if f"hydra.{kind}.".startswith(word[: len(f"hydra.{kind}.")]):
            option = (chosen(f"hydra/{kind}", others) or ["basic"])[-1]
            hydras |= {f"hydra.{kind}.{key}=" for key in _of_plugin(kind, option)}
    return {f"{key}=" for key in single | _brought()} | below | hydras


def _of_plugin(kind: str, option: str) -> list[str]:
    """The keys of a launcher or sweeper, those that are typed on a command line."""
    held = _stored(kind).get(f"{option.removesuffix('_packed')}.yaml")
    keys = [key for key in (held.node if held else ()) if key not in UNTYPED]
    return [*keys, *BESIDE.get(f"{kind}={option}", ())]


def _stored(*place: str) -> dict[str, Any]:
    """What Hydra's store has at `place` of its own groups, once the plugins that are here have registered their
    configurations: no import of what they stand for."""
    from hydra.core.config_store import ConfigStore

    with suppress(ImportError):
        import hydra_plugins.hydra_joblib_launcher.config
    with suppress(ImportError):
        import hydra_plugins.hydra_submitit_launcher.config
    with suppress(ImportError):
        import hydra_plugins.hydra_optuna_sweeper.config  # noqa: F401
    held: dict[str, Any] = ConfigStore.instance().repo.get("hydra", {})
    for name in place:
        held = held.get(name, {})
    return held


def _primaries(others: list[str]) -> list[str]:
    """The configurations that `--config-name` may name: the shipped one, and those of the named folders."""
    named = chosen_primary(others).get("path")
    places = [Path(named) if named else conf_dir(), *variants.config_dirs(others)]
    return sorted({file.stem for place in places for file in place.glob("*.yaml")})


def _brought() -> set[str]:
    """Groups in the user's own folders."""
    own = [f for f in variants.folders() if f != conf_dir() and f.is_dir()]
    places = (place for folder in own for place in folder.iterdir() if place.is_dir())
    return {place.name for place in places} - {"hydra"}
