"""A sweep's parent run: there, `RUNNING`, from the first point on, with the points below it.

Only the process that begins a sweep creates it, and leaves its id in the sweep's folder
(`mlflow.json`), where the workers of any launcher read it. A point that is quicker than that is put
below it at the sweep's end. What is still running when that process ends was stopped; where nobody was
left to say so, `orphans.py` does.
"""

import atexit
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.errors import Unreachable
from harness.process import shown
from harness.snapshot.record import PENDING, read
from harness.snapshot.result import write_json
from harness.track import contents, lists, provenance

UNMEASURED = ("track", "report", "limit_s", "runs_dir")
ABOVE = "mlflow.parentRunId"  # MLflow's own tag: the run that one is shown below
WORKED = "sweep/seconds"  # a metric
PARENT, SUMMARY = "mlflow.json", "sweep summary"
DELETED = "INVALID_PARAMETER_VALUE"  # so nothing is set
GONE = ("RESOURCE_DOES_NOT_EXIST", DELETED)
_open: list[tuple[Any, str, Path]] = []  # (store, run id, folder) that this process has begun


def tags(folder: Path) -> dict[str, str]:
    """What is known of the sweep in `folder` before its points are done."""
    told = {"sweep": folder.name, "kind": SUMMARY}
    with suppress(OSError):
        told["task"] = dict(parameters(folder))["task"]
    return (
        told
        | provenance.tags(folder, shown(folder))
        | provenance.source(None, "python -m harness -m")
    )


def commit(folder: Path) -> dict[str, str]:
    """The tags of the code that the sweep's first point with a commit was run by; none where no point has one."""
    for path in sorted(
        folder.glob("*/result.json"), key=lambda p: (len(p.parent.name), p.parent.name)
    ):
        with suppress(OSError, ValueError):
            result = read(path)
            known = ((result.get("environment") or result).get("git") or {}).get("commit")
            if known:
                return provenance.code(str(known))
    return {}


def told(words: str, sentence: str) -> dict[str, str]:
    """The tags that say what a sweep came to. Its points have the verdicts, of one word each."""
    return {"outcome": words, "conclusion": sentence or words}


def fixed(sweep: Path) -> dict[str, str]:
    """What was typed for all points of a sweep: key -> value, but for what measures nothing."""
    pairs = (contents.read(o).partition("=") for o in contents.swept(sweep))
    typed = {key.lstrip("+"): value for key, _, value in pairs}
    shown = {k: v for k, v in typed.items() if k.partition(".")[0] not in UNMEASURED}
    return {k: v for k, v in shown.items() if k not in contents.axes(sweep)}


def parameters(sweep: Path) -> list[tuple[str, str]]:
    """The parameters of a sweep's run: its axes, what was typed beside them, its task and its model, and the options
    of a task that takes several, as its points have them."""
    import yaml

    tree = yaml.safe_load((sweep / "multirun.yaml").read_text("utf-8"))
    named = {key: str((tree.get(key) or {}).get("name")) for key in ("task", "model")}
    told = fixed(sweep)
    if told.get("model") == contents.PLACED and "model.path" in told:
        told["model"] = Path(told["model.path"]).name
    axes = contents.axes(sweep)
    several = {} if "task" in axes else lists.of_sweep(tree, axes)
    every = {**named, **several, **told, **axes}
    return [
        (contents.safe(k), lists.spaced(v)[: contents.PARAM_LIMIT])
        for k, v in list(every.items())[: contents.PARAMS]
    ]


def untold(client: Any, run_id: str, sweep: Path) -> list[tuple[str, str]]:
    """Those that the run `run_id` has not yet: MLflow keeps what an older version told, in its own form."""
    known = client.get_run(run_id).data.params
    return [(key, value) for key, value in parameters(sweep) if key not in known]


def spans(sweep: Path) -> tuple[list[int], list[int]]:
    """When the points of a sweep that have a result began, and when they came to their ends, in milliseconds."""
    points = [p.parent for p in sweep.glob("*/result.json")]
    return [contents.began(p) for p in points], [contents.ended(p) for p in points]


def worked(sweep: Path) -> float:
    """In how many seconds at least one point of a sweep ran: pauses until it was resumed are none."""
    seconds, until = 0, 0
    for began, end in sorted(zip(*spans(sweep), strict=True)):
        seconds += max(end - max(began, until), 0)
        until = max(until, end)
    return seconds / 1000


def begin(store: Any, folder: Path, name: str, began: int, process: str, asked: int | None = None) -> None:  # fmt: skip
    """Create the parent run, or go on with that of a sweep that is resumed. began: in milliseconds.
    process: which has begun it. asked: for how many points."""
    try:
        told = tags(folder) | provenance.code(provenance.commit()) | {"process": process}
        run_id = store.begin_sweep(folder, name, told, began, asked)
    except Unreachable:
        store.retry()  # the first point tells what is wrong; the parent run is created at the end
        return
    if not _open:
        atexit.register(abandon)
    _open.append((store, run_id, folder))


def ended(run_id: str) -> None:
    """A parent run has come to its end."""
    _open[:] = [one for one in _open if one[1] != run_id]


def abandon() -> None:
    """At the end of the process: what it began and nobody ended was stopped."""
    while _open:
        store, run_id, folder = _open.pop()
        with suppress(Exception):  # it stays as it is where the server is away
            store.cut(run_id, folder)


def known(folder: Path) -> dict[str, Any]:
    """`run_id`, `experiment` and `uri` of the parent of the sweep in `folder`, and how many points were `asked` for;
    empty where there is none yet."""
    with suppress(OSError, ValueError):
        return read(folder / PARENT)
    with suppress(OSError, ValueError):  # of a sweep before there was such a file
        return read(folder / "sweep.json").get("mlflow") or {}
    return {}


def above(folder: Path, uri: str, experiment: str) -> dict[str, str]:
    """The tag that puts the run of the point in `folder` below its sweep's, in the same store."""
    block = known(folder.parent)
    same = (block.get("uri"), block.get("experiment")) == (uri, experiment)
    return {ABOVE: block["run_id"]} if same and block.get("run_id") else {}


def keep(folder: Path, block: dict[str, Any]) -> None:
    """Leave the id where the workers look for it."""
    write_json(folder / PARENT, block)


def of(client: Any, experiment: str, folder: Path) -> str | None:
    """The parent run of the sweep in `folder`, also where its id could not be written down. Raises MlflowException where
    somebody has deleted the experiment, which a run says of itself only."""
    from mlflow.exceptions import MlflowException

    if client.get_experiment(experiment).lifecycle_stage != "active":
        raise MlflowException(
            f"The experiment {experiment} must be active. Current state is deleted"
        )
    run_id = known(folder).get("run_id")
    if run_id and there(client, run_id):
        return run_id
    quote = '"' if "'" in folder.name else "'"
    wanted = f"tags.sweep = {quote}{folder.name}{quote} and tags.kind = '{SUMMARY}'"
    runs = client.search_runs([experiment], wanted)
    same = (r for r in runs if provenance.of(r.data.tags) == folder.absolute())
    return next((r.info.run_id for r in same), None)


def there(client: Any, run_id: str) -> Any:
    """The run of this id; None where the store has none, as after a move to an empty server."""
    from mlflow.exceptions import MlflowException

    try:
        return client.get_run(run_id)
    except MlflowException as problem:
        if problem.error_code == "RESOURCE_DOES_NOT_EXIST":
            return None
        raise


def erased(client: Any, run_id: str) -> bool:
    """Whether somebody has deleted this run, and not its experiment with all that is in it."""
    run = client.get_run(run_id).info
    above = client.get_experiment(run.experiment_id)
    return bool(run.lifecycle_stage == "deleted" and above.lifecycle_stage == "active")


def left(folder: Path, result: dict[str, Any], block: dict[str, Any]) -> dict[str, Any]:
    """The run `block` was deleted while it was uploaded: it stays so, and its folder waits for nothing more."""
    write_json(folder / "result.json", {**result, "mlflow": block})
    (folder / PENDING).unlink(missing_ok=True)
    return block


def waiting(folder: Path) -> dict[str, Any]:
    """What a run knows of its upload that has not ended; empty where there is none."""
    try:
        return read(folder / PENDING)
    except (OSError, ValueError):
        return {}


def begun(client: Any, experiment: str, folder: Path) -> str | None:
    """The run of the record in `folder` of which a try was cut off that could not write its id down."""
    wanted = f"tags.record = '{contents.record_id(folder)}'"
    there = client.search_runs([experiment], wanted)
    cut = (r.info.run_id for r in there if r.info.status in ("RUNNING", "KILLED"))
    return next(cut, None)


def adopt(client: Any, parent: str, points: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Put the runs of `points` (folder as tagged -> run id) below the run `parent`; those that the store has,
    since the sweep may have moved here from another, and the ids of those that somebody has deleted."""
    from mlflow.exceptions import MlflowException

    mine: dict[str, str] = {}
    deleted = []
    for folder, run_id in points.items():
        try:
            client.set_tag(run_id, ABOVE, parent)
            mine[folder] = run_id
        except MlflowException as problem:
            if problem.error_code not in GONE:
                raise
            if problem.error_code == DELETED:
                deleted.append(run_id)
    return mine, deleted


def below(client: Any, experiment: str, parent: str) -> Iterator[Any]:
    """The runs below the run `parent`."""
    token, asked = None, f"tags.`{ABOVE}` = '{parent}'"
    while token != "":
        page = client.search_runs([experiment], asked, max_results=1000, page_token=token)
        yield from page
        token = page.token or ""


def supersede(client: Any, runs: list[Any], points: dict[str, str]) -> dict[str, list[str]]:
    """Delete the earlier runs of points that were run again; `{run id: earlier ids}`. MLflow keeps what is
    deleted: its `superseded` tag names what came in its place. runs: those below the sweep's. points: folder as
    tagged -> run id."""
    earlier: dict[str, list[str]] = {}
    for run in runs:
        mine = points.get(run.data.tags.get("folder", ""))
        if mine and run.info.run_id != mine:
            client.set_tag(run.info.run_id, "superseded", mine)
            client.delete_run(run.info.run_id)
            earlier.setdefault(mine, []).append(run.info.run_id)
    return earlier
