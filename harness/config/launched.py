"""Which folder of options of one's own a job was run with (`--config-dir`), from what Hydra recorded."""

import re
from pathlib import Path

_SOURCE = re.compile(r"^ *- path: (.+)\n *schema: file\n *provider: command-line$", re.MULTILINE)


def options_dir(folder: Path) -> list[str]:
    """`["--config-dir", DIR]` of the sweep or the run in `folder`; empty where none was named, or where
    nothing says so. DIR is relative to the working directory where it lies below it."""
    import yaml

    for file in (folder / "multirun.yaml", folder / ".hydra" / "hydra.yaml"):
        try:
            source = _SOURCE.search(file.read_text("utf-8"))
            if source:
                place = Path(str(yaml.safe_load(source[1])))
                here = place.is_relative_to(Path.cwd())
                return ["--config-dir", str(place.relative_to(Path.cwd()) if here else place)]
        except (OSError, ValueError, yaml.YAMLError):
            continue
    return []
