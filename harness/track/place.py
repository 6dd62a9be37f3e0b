"""Where a run was made and by whom, as tags: its folder as it lies below the directory where it was started."""

import getpass
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path


def tags(folder: Path, name: str) -> dict[str, str]:
    """name: of `folder` as `process.shown` gave it where the run was started, which may be elsewhere than here."""
    told = {"folder": name, "host": socket.gethostname()}
    whole = str(folder.absolute())
    if not Path(name).is_absolute() and whole.endswith(f"/{name}"):
        told["directory"] = whole.removesuffix(f"/{name}") or "/"
    with suppress(OSError, KeyError, ImportError):  # a user without a name
        told["mlflow.user"] = getpass.getuser()
    return told


def of(tags: Mapping[str, str]) -> Path:
    """The folder that a run is tagged with; one that was tagged whole is taken as it is."""
    return Path(tags.get("directory", ""), tags.get("folder", ""))
