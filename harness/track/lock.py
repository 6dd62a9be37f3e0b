"""Two processes that come to record the same folder, as the one that ran its point and the one that resumes
the sweep meanwhile: one after the other, and the second finds it done."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness.snapshot.record import NAME, PENDING, read


@contextmanager
def turn(folder: Path) -> Iterator[dict[str, Any] | None]:
    """Wait until nobody else records `folder`; the `mlflow` block of its result where that was done, in whatever
    store, else None. The lock ends with its process; a disk that knows none is taken as it is."""
    with (folder / NAME).open() as handle:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield _recorded(folder)


@contextmanager
def alone(runs_dir: Path, local: bool) -> Iterator[None]:
    """One process at a time may create the sqlite store in `runs_dir`; any other store creates itself."""
    if not local:
        yield
        return
    runs_dir.mkdir(parents=True, exist_ok=True)
    with (runs_dir / ".mlflow.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _recorded(folder: Path) -> dict[str, Any] | None:
    if (folder / PENDING).exists():
        return None
    try:
        return read(folder / "result.json").get("mlflow")
    except (OSError, ValueError):
        return None
