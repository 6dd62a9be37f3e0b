"""Where a run is on a tracking server, as the console's last lines say it."""

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness import process


def places(tracked: dict[str, Any], waiting: bool = False) -> Iterator[tuple[str, str]]:
    """`(label, words)` of the run that `tracked` (`mlflow` of a result) names, and of all runs beside one another. On a
    server both are addresses, else the commands that show them. waiting: something could not be uploaded, so that an
    address may lead nowhere and is left out."""
    if waiting and str(tracked["uri"]).startswith("http"):
        return
    yield "mlflow run", str(tracked.get("page") or dashboard(tracked, f"run={tracked['run_id']}"))
    yield "dashboard", dashboard(tracked)


def dashboard(tracked: dict[str, Any], *more: str) -> str:
    """The command, or the address, that shows the runs which `tracked` is in. more: what the command has beside that."""
    uri, experiment = str(tracked["uri"]), tracked.get("experiment", "harness")
    if uri.startswith("http"):
        return str(tracked.get("runs") or tracked.get("page") or uri)
    file, words = Path(uri.removeprefix("sqlite:///")), [process.spelled(), "dashboard"]
    if not uri.startswith("sqlite:///") or file.name != "mlflow.db":
        words.append(shlex.quote(f"track.uri={uri}"))
    elif file.parent != Path("runs"):
        words.append(f"runs_dir={shlex.quote(str(file.parent))}")
    if experiment != "harness":
        words.append(shlex.quote(f"track.experiment={experiment}"))
    return " ".join([*words, *more])
