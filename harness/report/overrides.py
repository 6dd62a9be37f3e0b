"""What was typed of a run or of a sweep and changes what comes out, as a heading names it."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import Any

from harness import foreign
from harness.config import launched
from harness.config.grid import varied
from harness.config.literal import MULTIRUN, decoded

# Stands elsewhere on every page, or changes nothing that is measured.
UNTOLD = ("name", "track", "out", "runs_dir", "resume", "report", "text", "overwrite", "hydra", "sign",
          "verbose", "experiment", "snapshot", "run", "a", "b", "plugins", "cache", "prune", "quantize", "save",
          "fault", "sampling", "model", "prompt", "dtype", "device", "task")  # fmt: skip
LONG = 24  # characters of a value that a line has room for
SWEEPS = ("MULTIRUN", "RunMode.MULTIRUN")


def own(folder: Path, command: Sequence[str]) -> list[str]:
    """What the sweep varies of which the run in `folder` is a point, as it is there: `prune.ratio 0.5`; nothing
    of a run by itself. command: the words that ran it. Where these do not say what varies, as of a sweep that
    was resumed, all that was typed of the point."""
    hydra, drawn = {}, []
    with suppress(KeyError, TypeError, AttributeError):
        hydra = _yaml(folder / ".hydra" / "hydra.yaml")["hydra"]
        drawn = list(map(str, hydra["sweeper"].get("params") or {}))
    if str(hydra.get("mode")) not in SWEEPS and not {*MULTIRUN} & {*command}:
        return []
    typed = _pairs(launched.typed(folder))
    keys = [*varied([w for w in command if "=" in w and not w.startswith("-")]), *drawn]
    some = {key: typed[key] for key in keys if key in typed} if keys else _fit(typed)
    return [f"{key} {shorten(value, 2 * LONG)}" for key, value in some.items()]


def fixed(folder: Path) -> dict[str, str]:
    """What was typed of the run in `folder`, by key, that no heading of a run says and that a line has room for."""
    return _fit(_pairs(launched.typed(folder)))


def name(folder: Path, command: Sequence[str]) -> str:
    """The name that was given to the run in `folder`; empty where none was, or where it is that of a whole sweep.
    command: the words that ran it."""
    if {*MULTIRUN} & {*command}:
        return ""
    return _pairs(launched.typed(folder)).get("name", "")


def text(folder: Path | None) -> bool:
    """Whether the run in `folder` was given a text in place of a prompt's option."""
    words = (launched.typed(folder) or []) if folder else []
    given = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("text=")]
    return bool(given) and given[-1] not in ("", "null")  # the word alone: there is none


def common(sweep: Path, axes: Sequence[str]) -> dict[str, str]:
    """The same of every point of the sweep in `sweep`: what is none of its `axes`."""
    with suppress(KeyError, TypeError):
        words = _yaml(sweep / "multirun.yaml")["hydra"]["overrides"]["task"]
        several = {*axes, *varied(list(map(str, words)))}
        return {key: value for key, value in _fit(_pairs(words)).items() if key not in several}
    return {}


def _fit(typed: dict[str, str]) -> dict[str, str]:
    """Those that are short, and neither a place nor a list."""
    return {
        key: value
        for key, value in typed.items()
        if key not in UNTOLD
        and key.partition(".")[0] not in ("track", "report", "hydra")
        and 0 < len(value) <= LONG
        and not {"/", "[", "{"} & {*value}
    }


def _pairs(overrides: Any) -> dict[str, str]:
    words = map(str, overrides if isinstance(overrides, list) else ())
    return dict(decoded(word).lstrip("+~").partition("=")[::2] for word in words)


def _yaml(path: Path) -> Any:
    try:
        return foreign.read_yaml(path)
    except (OSError, ValueError):
        return None
