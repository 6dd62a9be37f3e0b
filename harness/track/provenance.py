"""Where a run was made, by whom and by which code, as tags: its folder as it lies below the directory where it was
started."""

import getpass
import socket
import subprocess
from collections.abc import Mapping
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

MADE_WITH = ("torch", "transformers")  # whose versions runs are searched by


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


def source(commit: str | None, name: str = "python -m harness") -> dict[str, str]:
    """What made a run: the command and, where it is known, the commit of its code."""
    return {**code(commit), "mlflow.source.name": name, "mlflow.source.type": "LOCAL"}


def made_with(result: dict[str, Any]) -> dict[str, str]:
    """The device that a model ran on, whatever `device=auto` came to, and the libraries that its rounding depends on;
    nothing of a run that loaded none."""
    where = result.get("environment") or {}
    if where.get("device") in (None, "none", "outside"):
        return {}
    versions = where.get("versions") or {}
    told = {"device.served": where["device"], **{name: versions.get(name) for name in MADE_WITH}}
    return {key: str(value) for key, value in told.items() if value}


def code(commit: str | None) -> dict[str, str]:
    return {"git_commit": commit, "mlflow.source.git.commit": commit} if commit else {}


@cache
def commit() -> str | None:
    """That of the harness's own checkout, asked once per process; None where it is none."""
    asked, here = ["git", "rev-parse", "HEAD"], Path(__file__).resolve().parent
    with suppress(OSError, subprocess.SubprocessError):
        done = subprocess.run(asked, cwd=here, capture_output=True, text=True, timeout=20)
        return done.stdout.strip() or None
    return None
