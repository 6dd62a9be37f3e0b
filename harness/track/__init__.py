"""Where results go besides the run directory: MLflow (`track=mlflow`), or nowhere (`track=none`).

A server that is away costs no result: the folder keeps it, marked by `pending.json`, until `upload` finds the server
there.
"""

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.errors import Unreachable
from harness.snapshot.record import NAME, PENDING, read
from harness.snapshot.result import write_json
from harness.track import contents, parent, run
from harness.track.store import Store


def tracker(settings: Any, runs_dir: str) -> Store:
    """The store that `settings` (a TrackConfig) names."""
    return Store(settings, Path(runs_dir))


def log(settings: Any, runs_dir: str, folder: Path, result: dict[str, Any], name: str, again: bool = False) -> tuple[Any, str]:  # fmt: skip
    """`(the result's mlflow block, problem)`. The problem is told once: while the server is known to be away, folders
    are marked without asking it. again: an earlier try may have got as far as the server."""
    if settings.name == "none":
        return None, ""
    try:
        return run.record(tracker(settings, runs_dir), folder, result, name, again), ""
    except Unreachable as problem:
        with suppress(OSError):  # on a full disk: it is marked already
            waiting = parent.document(folder / PENDING)
            write_json(folder / PENDING, {**waiting, "uri": settings.uri, "reason": str(problem)})
        return None, str(problem) if problem.tried else ""


def upload(folders: Iterable[Path], **moved: Any) -> str:
    """Log runs that are still pending, until the server fails; return what is wrong, or nothing. moved: keys of `track`
    in place of the recorded ones."""
    for folder in folders:
        config = _config(folder, **moved)
        tracker(config.track, config.runs_dir).retry()
        result = {**read(folder / "result.json"), "mlflow": None}
        if problem := log(config.track, config.runs_dir, folder, result, config.name, again=True)[
            1
        ]:
            return problem
    return ""


def begin_sweep(settings: Mapping[str, Any], runs_dir: str, folder: Path, began: float, asked: int | None = None) -> None:  # fmt: skip
    """The run of the sweep in `folder`, whose first point is about to begin. began: in seconds. settings: with the keys
    of a TrackConfig. asked: how many points there will be. By the process that began the sweep, and by no worker of it."""
    from harness.config import TrackConfig

    track = TrackConfig(**settings)
    if track.name == "none":
        return
    store = tracker(track, runs_dir)
    try:
        parent.begin(store, folder, int(began * 1000), asked)
    except Unreachable:
        store.retry()  # the first point tells what is wrong; the run is made at the end


def summarise(
    folder: Path,
    points: list[Path],
    rows: list[dict[str, Any]],
    told: tuple[str, str, str, str],
    sought: Sequence[str] = (),
    total: int | None = None,
    failed: bool = False,
    again: str = "",
    marked: Sequence[str] = (),
    alike: Sequence[str] = (),
) -> dict[str, Any] | None:
    """The `mlflow` block of a sweep, whose own run gets summary metrics and pages; None when nothing is tracked.

    told: what it came to in a few words, in a sentence, as a table, and the best point. sought: columns of `rows` that a
    search looked for. total: points that were asked for; with fewer the sweep was stopped. failed: it could not go on.
    again: the command that goes on. marked: the points that its page marks. alike: those that are one choice under
    several seeds."""
    sealed = [point for point in points if (point / NAME).is_file()]
    config = _config(sealed[0]) if sealed else None
    if config is None or config.track.name == "none":
        return None
    words, sentence, _, best = told
    reason, whole = None, len(rows) >= (total or 0)
    if not whole:
        reason = f"stopped after {len(rows)} of {total} points; go on with `{again}`"
    elif many := sum(row["verdict"] == "failed" for row in rows):
        reason = f"{many} of {len(rows)} points failed; `{again}` runs these again"
    runs = {str(r["folder"]): r["mlflow_run_id"] for r in rows if r.get("mlflow_run_id")}
    status = "FAILED" if failed else "KILLED" if not whole else contents.status(rows)
    tags = parent.tags(
        folder, rows, words, sentence, best or next(iter(marked), ""), marked, reason, whole
    )
    store = tracker(config.track, config.runs_dir)
    try:
        before = parent.measured(store, folder)
        values = parent.totals(rows, sought, before, best, alike)
        run_id, earlier, deleted = parent.summary(store, folder, values, runs, words, tags, status)
    except Unreachable as problem:
        return {"run_id": parent.known(folder).get("run_id"), "reason": str(problem)}
    for point, row in zip(points, rows, strict=True):
        if ids := earlier.get(str(row.get("mlflow_run_id"))):
            result = read(point / "result.json")
            block = result.get("mlflow") or {}
            block["superseded"] = [*block.get("superseded", []), *ids]
            write_json(point / "result.json", {**result, "mlflow": block})
    block = {"run_id": run_id, "experiment": config.track.experiment}
    return block | ({"deleted": deleted} if deleted else {})


def _config(folder: Path, **moved: Any) -> Any:
    """The parts of a sealed configuration that tracking needs. Without `moved` a point goes where its sweep went when
    it was resumed."""
    record = read(folder / NAME)["config"]
    if not moved and contents.in_sweep(folder):
        moved = contents.moved(folder.parent)
    track = SimpleNamespace(**{**record["track"], **moved})
    return SimpleNamespace(track=track, runs_dir=record["runs_dir"], name=record["name"])
