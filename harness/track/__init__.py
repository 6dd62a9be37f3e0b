"""Where results go besides the run directory. An option is one file with a class of its name."""

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness import interrupt, variants
from harness.errors import Unreachable
from harness.snapshot.record import NAME, PENDING, read
from harness.snapshot.result import write_json
from harness.track import artifacts, contents, killed, names, orphans, parent, reader
from harness.track import recorder as beside
from harness.track.totals import ONCE, SUMMED, first, summed, totals

_sweeps: set[tuple[int, str]] = set()  # (process, folder): those that this process has begun


def tracker(settings: Any, runs_dir: str) -> Any:
    """The tracker that `settings` (a TrackConfig) names: an object with `log` and `summary`."""
    return variants.variant("track", settings)(settings, Path(runs_dir))


def log(settings: Any, runs_dir: str, folder: Path, result: dict[str, Any], name: str, again: bool = False) -> tuple[Any, str]:  # fmt: skip
    """`(the result's mlflow block, problem)`. A server that is away costs no result: the folder
    keeps it, marked by `pending.json`, until `upload` finds the server there. The problem is told
    once: while the server is known to be away, folders are marked without asking it. again: an
    earlier try may have got as far as the server.

    Where a process beside this one was begun it does this, else this one. The points of a sweep that
    this process concludes (`upload` waits for them) are recorded while the next one works: of these
    nothing is known yet."""
    if settings.name == "mlflow" and (recorder := beside.running()) is not None:
        words = {"settings": beside.plain(settings), "runs_dir": str(runs_dir), "name": name,
                 "folder": str(folder), "result": result, "again": again}  # fmt: skip
        try:
            if not again and (os.getpid(), str(folder.parent)) in _sweeps:
                recorder.tell("log", **words)
                return None, ""
            block, problem = recorder.ask("log", **words)
            return block, problem
        except beside.Gone:
            again = True  # it may have got as far as the server
    return _log(settings, runs_dir, folder, result, name, again, None)


def _log(settings: Any, runs_dir: str, folder: Path, result: dict[str, Any], name: str, again: bool, watch: Any) -> tuple[Any, str]:  # fmt: skip
    try:
        return tracker(settings, runs_dir).log(folder, result, name, again, watch), ""
    except Unreachable as problem:
        record = read(folder / PENDING) if (folder / PENDING).exists() else {}
        with suppress(OSError):  # on a full disk: it is marked already
            write_json(folder / PENDING, {**record, "uri": settings.uri, "reason": str(problem)})
        return None, str(problem) if problem.tried else ""  # type: ignore[attr-defined]


def begin(settings: Any, runs_dir: str) -> None:
    """Get the tracker ready beside a job that is about to begin."""
    beside.begin(settings, runs_dir)


@contextmanager
def running(config: dict[str, Any], folder: Path, options: dict[str, str]) -> Iterator[None]:
    """A single job works in `folder`: where it ends in this block because it was told to, or its process is
    killed, the process beside it records that. config: the whole, as JSON takes it."""
    job = killed.known(config, folder, options)
    _tell("job_begins", folder=str(folder), **job)
    try:
        yield
    finally:
        if not interrupt.stopped():
            _tell("job_ends", folder=str(folder))


def has_read(folder: Path, known: dict[str, Any]) -> None:
    """What the job in `folder` has read, in the words of a `result.json`: the inputs of a run that is stopped."""
    _tell("job_reads", folder=str(folder), known=known)


def told_to_end(folder: Path, reason: str, uri: str | None) -> str:
    """The job in `folder` is about to end without a result: what it says of that is kept with its run, in the store at
    `uri`. What to add to it: of a server, which is asked when this process is gone, nobody knows yet."""
    told = not (folder / NAME).is_file() and _tell("job_stops", folder=str(folder), reason=reason)
    away = "://" in (uri or "") and not str(uri).startswith("sqlite:")
    return f" MLflow is told that it was stopped{', if it answers' * away}." if told else ""


def _tell(call: str, **words: Any) -> bool:
    if (recorder := beside.running()) is None:
        return False
    try:
        recorder.tell(call, **words)
    except beside.Gone:
        return False
    return True


def abandon(watch: Any) -> None:
    """The process that this one serves is gone: record the job that it was at."""
    killed.settle(
        lambda config: tracker(SimpleNamespace(**config["track"]), config["runs_dir"]), watch
    )


def ready(settings: Any, runs_dir: str) -> None:
    """Import the tracker's client, and open its store where that is a file which is there."""
    with suppress(Unreachable):
        tracker(settings, runs_dir).ready()


def upload(folders: Iterable[Path], **moved: Any) -> str:
    """Log runs that are still pending, until the server fails; return what is wrong, or nothing.
    folders: looked for once those that this process had asked for are done. moved: keys of `track` in place
    of the recorded ones."""
    problem = ""
    if (recorder := beside.running()) is not None:
        with suppress(beside.Gone):
            recorder.ask("ready")
    for folder in folders:
        config = _config(folder, **moved)
        result = {**read(folder / "result.json"), "mlflow": None}
        tracker(config.track, config.runs_dir).retry()
        problem = log(config.track, config.runs_dir, folder, result, config.name, again=True)[1]  # fmt: skip
        if problem:
            break
    return problem


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
    """The sweep's parent run, with summary metrics and pages, None when nothing is tracked. told: what it came to
    in a few words, which point to choose, the table of all, the name of the best. sought: columns of `rows` that a search looked for. total: points that
    were asked for; with fewer the sweep was stopped. failed: it could not go on. again: the
    command that goes on. marked: the points that its page marks. alike: those of them that are one choice under
    several seeds."""
    sealed = [p for p in points if (p / NAME).is_file()]
    config = _config(sealed[0]) if sealed else None
    if config is None or config.track.name == "none":
        return None
    store = tracker(config.track, config.runs_dir)
    runs = {str(r["folder"]): r["mlflow_run_id"] for r in rows if r.get("mlflow_run_id")}
    missing = len(rows) < (total or 0)
    best = first(told[3], marked)
    labels = summed(folder, rows, best, marked, not missing, told[1])
    if missing:
        labels["reason"] = f"stopped after {len(rows)} of {total} points; go on with `{again}`"
    elif many := sum(row["verdict"] == "failed" for row in rows):
        labels["reason"] = (
            f"{many} of {len(rows)} points failed; once the cause is mended, `{again}` runs what failed and nothing else"
        )
    try:
        before = _before(store, folder)
        gone = {key: None for key in ("reason", *SUMMED, *ONCE) if key in before["tags"]}
        run_id, earlier, deleted = store.summary(
            folder, sweep_name(folder), parent.tags(folder),
            list(totals(rows, sought, before["metrics"], told[3], alike)), artifacts.of_sweep(folder),
            (*told[:3], best), len(marked),
            int((folder / "multirun.yaml").stat().st_mtime * 1000), runs,
            "FAILED" if failed else "KILLED" if missing else contents.status(rows),
            gone | labels,
        )  # fmt: skip
    except Unreachable as problem:
        return {"run_id": parent.known(folder).get("run_id"), "reason": str(problem)}
    parent.ended(run_id)
    for point, row in zip(points, rows, strict=True):
        if ids := earlier.get(str(row.get("mlflow_run_id"))):
            _remember(point, ids)
    block = {"run_id": run_id, "experiment": config.track.experiment}
    return block | ({"deleted": deleted} if deleted else {})


def begin_sweep(settings: Mapping[str, Any], runs_dir: str, folder: Path, began: float, asked: int | None = None) -> None:  # fmt: skip
    """The parent run of the sweep in `folder`, whose first point is about to begin. began: in seconds.
    settings: with the keys of a TrackConfig. asked: how many points there will be, where that is known.

    To be called by the process that began the sweep, and by no worker of it."""
    from harness.config import TrackConfig

    store = TrackConfig(**settings)
    if store.name != "mlflow":
        return
    words: dict[str, Any] = {
        "folder": str(folder),
        "name": sweep_name(folder),
        "began": int(began * 1000),
        "process": orphans.stamp(),
        "asked": asked,
    }
    beside.begin(store, runs_dir)
    _sweeps.add((os.getpid(), str(folder)))
    if (recorder := beside.running()) is not None:
        with suppress(beside.Gone):
            recorder.tell(
                "begin_sweep", settings=beside.plain(store), runs_dir=str(runs_dir), **words
            )
    else:
        _begin_beside(None, beside.plain(store), runs_dir, **words)


def _begin_beside(
    watch: Any, settings: dict[str, Any], runs_dir: str, folder: str, **words: Any
) -> None:
    parent.begin(tracker(SimpleNamespace(**settings), runs_dir), Path(folder), **words)


def _remember(point: Path, ids: list[str]) -> None:
    """The run ids that a point had before it was run again, in its own `result.json`."""
    result = read(point / "result.json")
    block = result.get("mlflow") or {}
    block["superseded"] = [*block.get("superseded", []), *ids]
    write_json(point / "result.json", {**result, "mlflow": block})


def _log_beside(
    watch: Any, settings: dict[str, Any], runs_dir: str, folder: str, **words: Any
) -> Any:
    killed.end(folder)
    return _log(SimpleNamespace(**settings), runs_dir, Path(folder), watch=watch, **words)


CALLS: dict[str, Callable[..., Any]] = {  # what a process beside this one does
    "log": _log_beside,
    "begin_sweep": _begin_beside,
    "job_begins": lambda watch, **job: killed.begin(**job),
    "job_reads": lambda watch, **words: killed.reads(**words),
    "job_stops": lambda watch, **words: killed.told(**words),
    "job_ends": lambda watch, folder: killed.end(folder),
    "ready": lambda watch: None,
}


def _config(folder: Path, **moved: Any) -> Any:
    """The parts of a sealed configuration that tracking needs. moved: keys of `track` in place of the recorded
    ones; without them a point goes where its sweep went when it was resumed."""
    record = read(folder / NAME)["config"]
    if not moved and contents.in_sweep(folder):
        moved = contents.moved(folder.parent)
    track = SimpleNamespace(**{**record["track"], **moved})
    return SimpleNamespace(track=track, runs_dir=record["runs_dir"], name=record["name"])


def sweep_name(folder: Path) -> str:
    """What a sweep varied, and then what it did not, as typed; its stamp where that is unknown."""
    typed = (names.ranked(told) for told in (contents.axes(folder), parent.fixed(folder)))
    said = [names.brief(key, values) for told in typed for key, values in told.items()]
    return names.fitting(said, names.NAMED) or f"sweep {folder.name}"


def _before(store: Any, folder: Path) -> dict[str, Any]:
    """The tags and metrics that the sweep's run has from an earlier try. Raises Unreachable."""
    run_id = parent.known(folder).get("run_id")
    known = store.ask(lambda client: reader.run(client, run_id)) if run_id else None
    return known or {"tags": {}, "metrics": {}}
