"""The files that a tracking server serves of a run, beside those of its folder."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.config import Config
from harness.snapshot.digest import digest_stream
from harness.task.audit.finding import Finding
from harness.task.audit.source import ask, read
from harness.track import artifacts, contents, reader, snapshot

COPIES = "MLflow's copies of the files"
SOME = f"{COPIES} of some points"
OWN = "MLflow's copies of the sweep's own files"
BEFORE = " (it was stopped before it had any)"
ELEMENTS = "elements.json"  # which no folder has, as `artifacts.ON_DISK`
LIVING = ("hydra/hydra.yaml",)  # may change after the seal


def of_run(cfg: Config, run_id: str, folder: Path, seen: Any) -> Iterator[Finding]:
    """Those of a run that are not its record's. seen: a `tracked.Seen`."""
    result = read(folder / "result.json")
    files = {k: v for k, v in artifacts.of_run(folder, result).items() if k not in LIVING}
    made = {ELEMENTS: {"elements": result.get("elements")}, "result.json": _claimed(result)}
    if block := snapshot.left(result):
        made[f"{snapshot.called(result)}/{artifacts.ON_DISK}"] = {"id": block.get("id")}
    what = SOME if contents.in_sweep(folder) else COPIES
    yield from _differences(cfg, run_id, files, made, seen, what)


def of_sweep(cfg: Config, run_id: str, folder: Path, seen: Any) -> Iterator[Finding]:
    """The same of a sweep's own run."""
    files = {path.name: path for path in artifacts.of_sweep(folder)}
    yield from _differences(cfg, run_id, files, {}, seen, OWN if files else f"{OWN}{BEFORE}")


def _differences(cfg: Config, run_id: str, files: dict[str, Path], made: dict[str, Any], seen: Any, what: str) -> Iterator[Finding]:  # fmt: skip
    """files: by the name that the server has for them; what else it serves is somebody's own. made: documents by
    such a name, that are compared by what they say. what: what is not compared where it serves none."""

    def compare(client: Any) -> dict[str, tuple[str | None, str] | None]:
        found: dict[str, tuple[str | None, str] | None] = {}
        for name in [n for n in reader.files(client, run_id) if n in files or n in made]:
            with reader.fetched(client, run_id, name) as copy:
                mine = _digest(files[name]) if name in files else None
                other = _digest(copy)
                same = made[name] == _said(name, copy) if name in made else mine == other
                found[name] = None if same else (mine, other)
        return found

    if not (found := ask(cfg, compare)):
        seen.left[what] = "they could not be fetched" if found is None else "it has none"
        return
    seen.copies += len(found)
    for name, digests in found.items():
        if digests:
            mine, other = digests
            why = f"MLflow serves another {name} than the record has"
            yield Finding(f"mlflow: artifact {name}", mine, other, why)


def _said(name: str, copy: Path) -> dict[str, Any]:
    document = read(copy)
    return {"id": document.get("id")} if name.endswith(artifacts.ON_DISK) else _claimed(document)


def _claimed(result: dict[str, Any]) -> dict[str, Any]:
    """What tracking adds to a result is no claim."""
    return {key: value for key, value in result.items() if key != "mlflow"}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return digest_stream(file, path.stat().st_size)
