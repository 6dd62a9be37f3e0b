"""Which configuration and which options of one's own a job was run with, from what Hydra recorded."""

import re
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import foreign
from harness.config.choice import heeded
from harness.config.literal import command, unescaped
from harness.config.schema import Config, PluginsConfig
from harness.config.stored import FILE, composed
from harness.config.tracking import TrackConfig
from harness.process import shown

PLACED = ("hydra.mode=", "hydra.sweep.dir=", "hydra.sweep.subdir=")  # Hydra's own, and a resume's
PLACES = ("snapshot", "foreign", "prompt.path", "model.path", "model.tokenizer")  # that a run reads
_SEARCHED = re.compile(r"^ *- (hydra\.searchpath=.+)$", re.MULTILINE)
_SOURCE = re.compile(r"^ *- path: (.+)\n *schema: file\n *provider: command-line$", re.MULTILINE)

_MAIN = re.compile(r"^ *- path: (.+)\n *schema: file\n *provider: main$", re.MULTILINE)
_PLACES = [re.compile(rf"^ {{4}}{key}: (.+)$", re.MULTILINE) for key in ("output_dir", "cwd")]
_NAME = re.compile(r"^ +config_name: (.+)$", re.MULTILINE)


def of_point(folder: Path) -> str:
    """The command that runs the job in `folder` by itself, without what a sweep gave for its other points; empty where
    it does not say what was typed, as one that was run again from a record."""
    if (told := typed(folder)) is None:
        return ""
    told = [unescaped(word) for word in heeded(told, _options(folder))]
    return command([*options_dir(folder), *primary(folder), *searchpath(folder), *told])


def _options(folder: Path) -> dict[str, str]:
    """The option of each group that Hydra composed the run in `folder` of, or as its configuration names it where what
    Hydra left is gone; empty where nothing says so."""
    wrong = (OSError, ValueError, AttributeError, KeyError, TypeError)
    with suppress(*wrong):
        told = foreign.read_yaml(folder / ".hydra" / "hydra.yaml")
        return {k: str(option) for k, option in told["hydra"]["runtime"]["choices"].items()}
    with suppress(*wrong):
        told = foreign.read_yaml(folder / FILE)
        return {
            k: str(node["name"])
            for k, node in told.items()
            if isinstance(node, dict) and "name" in node
        }
    return {}


def surroundings(folder: Path) -> dict[str, str]:
    """Where the run in `folder` wrote and was tracked, where code from outside lies and the keys of its files, as these
    keys are typed: those that are not as shipped, whether the command line or a file said so."""
    tree = composed(folder / FILE) or {}
    track = tree.get("track") or {}
    usual: dict[str, Any] = {"runs_dir": Config.runs_dir, "encrypt": None, "decrypt": None}
    own = {key: tree.get(key) for key in usual}
    blocks: dict[str, tuple[Any, Any]] = {"plugins": (PluginsConfig(), tree.get("plugins") or {})}
    if track.get("name") == "none":
        own["track"] = "none"
    else:
        blocks["track"] = (TrackConfig(name=str(track.get("name"))), track)
    for block, (default, held) in blocks.items():
        usual |= {f"{block}.{key}": value for key, value in vars(default).items()}
        own |= {f"{block}.{key}": value for key, value in held.items()}
    return {k: _typed(v) for k, v in own.items() if v is not None and v != usual.get(k)}


def _typed(value: Any) -> str:
    """A value as it is typed after its equals sign."""
    return f"[{','.join(map(str, value))}]" if isinstance(value, list) else str(value)


def of_sweep(folder: Path) -> str:
    """The command of the sweep in `folder`, as its own configuration has it; empty where nothing says so."""
    try:
        told = foreign.read_yaml(folder / "multirun.yaml")["hydra"]["overrides"]
        asked = [o for o in map(str, told.get("hydra") or []) if not o.startswith(PLACED)]
        words = list(map(str, told["task"]))
    except (OSError, ValueError, KeyError, TypeError):
        return ""
    return command(["-m", *options_dir(folder), *primary(folder), *words, *asked])


def options_dir(folder: Path) -> list[str]:
    """`["--config-dir", DIR]` of the sweep or the run in `folder`; empty where none was named, or where
    nothing says so. DIR is relative to the working directory where it lies below it."""
    for file in (folder / "multirun.yaml", folder / ".hydra" / "hydra.yaml"):
        if source := _scalar(_SOURCE, file):
            return ["--config-dir", shown(source)]
    return []


def primary(folder: Path) -> list[str]:
    """`["--config-path=DIR", "--config-name=NAME"]` of the sweep or the run in `folder`, as far as it was not the
    shipped configuration; empty where nothing says so."""
    for file in (folder / "multirun.yaml", folder / ".hydra" / "hydra.yaml"):
        if name := _scalar(_NAME, file):
            return _flags(_scalar(_MAIN, file), name)
    return []


def primary_of(hydra: Any) -> list[str]:
    """The same of the job that runs now. hydra: its `hydra` block."""
    places = [s.path for s in hydra.runtime.config_sources if s.provider == "main"]
    return _flags(str(places[0]) if places else "", str(hydra.job.config_name))


def _flags(place: str, name: str) -> list[str]:
    folder = Path(place)
    there = not folder.is_dir() or (folder / "task" / "experiment.yaml").is_file()
    shipped = not place or (folder.name == "conf" and there)  # wherever that lay
    flags = [] if shipped else [f"--config-path={place}"]
    return [*flags, f"--config-name={name}"] if flags or name != "config" else []


def typed(folder: Path) -> list[str] | None:
    """The overrides that the run in `folder` was typed with; None where it does not say, as one that was run again
    from a record."""
    try:
        told = foreign.read_yaml(folder / ".hydra" / "overrides.yaml") or []
    except (OSError, ValueError):
        return None
    return list(map(str, told)) if isinstance(told, list) else None


def audit(folder: str) -> list[str]:
    """What audits the run in `folder`: with the places that were typed for it, since an audit reads none of which its
    command does not tell."""
    words = {word.partition("=")[0].lstrip("+"): word for word in typed(Path(folder)) or []}
    keys = [key for key in PLACES if key in words]
    options = [key.partition(".")[0] for key in keys if key.endswith(".path")]
    said = [words[key] for key in dict.fromkeys([*options, *keys]) if key in words]
    told = [re.sub("^foreign=", "from=", unescaped(word)) for word in said]
    return ["task=audit", f"run={folder}", *told]


def searchpath(folder: Path) -> list[str]:
    """The `hydra.searchpath=` that the run in `folder` was typed with, in a list; empty without one."""
    typed = _scalar(_SEARCHED, folder / ".hydra" / "hydra.yaml")
    return [typed] if typed else []


def places(folder: Path) -> list[str]:
    """Where the run in `folder` wrote and where it was started, as absolute paths; those of the two that are known."""
    return [place for p in _PLACES if (place := _scalar(p, folder / ".hydra" / "hydra.yaml"))]


def _scalar(pattern: re.Pattern[str], file: Path) -> str:
    import yaml

    try:
        match = pattern.search(file.read_text("utf-8"))
        return str(yaml.safe_load(match[1])) if match else ""
    except (OSError, ValueError, yaml.YAMLError):
        return ""
