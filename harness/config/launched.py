"""Which folders of options of one's own a job was run with, from what Hydra recorded."""

import re
from pathlib import Path

_SEARCHED = re.compile(r"^ *- (hydra\.searchpath=.+)$", re.MULTILINE)
_SOURCE = re.compile(r"^ *- path: (.+)\n *schema: file\n *provider: command-line$", re.MULTILINE)


def options_dir(folder: Path) -> list[str]:
    """`["--config-dir", DIR]` of the sweep or the run in `folder`; empty where none was named, or where
    nothing says so. DIR is relative to the working directory where it lies below it."""
    for file in (folder / "multirun.yaml", folder / ".hydra" / "hydra.yaml"):
        if source := _scalar(_SOURCE, file):
            place, here = Path(source), Path.cwd()
            near = place.relative_to(here) if place.is_relative_to(here) else place
            return ["--config-dir", str(near)]
    return []


def searchpath(folder: Path) -> list[str]:
    """The `hydra.searchpath=` that the run in `folder` was typed with, in a list; empty without one."""
    typed = _scalar(_SEARCHED, folder / ".hydra" / "hydra.yaml")
    return [typed] if typed else []


def _scalar(pattern: re.Pattern[str], file: Path) -> str:
    import yaml

    try:
        match = pattern.search(file.read_text("utf-8"))
        return str(yaml.safe_load(match[1])) if match else ""
    except (OSError, ValueError, yaml.YAMLError):
        return ""
