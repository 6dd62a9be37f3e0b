"""A sweep's own run: `RUNNING` from the first point on, with the points below it and, at its end, what they came to.

Only the process that begins a sweep makes it. `mlflow.json` in the sweep's folder has its id, for the workers of any
launcher and for a resume. Where that process is killed it stays `RUNNING` until the sweep is resumed.
"""

import atexit
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from math import nan
from pathlib import Path
from statistics import median
from typing import Any

from harness import interrupt
from harness.process import shown
from harness.snapshot.record import read
from harness.snapshot.result import ORDER, write_json
from harness.track import artifacts, contents, metrics
from harness.track.contents import ABOVE, NOTE
from harness.track.store import Store

Rows = list[dict[str, Any]]
PARENT, SUMMARY = "mlflow.json", "sweep summary"
ENDS = ("kl_max", "max_abs_diff", "stored_bytes", "per_token_s", "save_s", "load_s")
BEST = (
    "max_abs_diff", "kl_mean", "kl_max", "top1_agreement", "error_ratio", "kv_bytes", "stored_bytes", "kept_tokens",
    "per_token_s",
)  # fmt: skip
OWN = {
    "error_ratio": "oracle/ratio",
    "per_token_s": "per_token",
}  # as the metrics of a point call these
_open: list[tuple[Store, str]] = []  # (store, run id) that this process has begun


def begin(store: Store, folder: Path, began: int, asked: int | None = None) -> None:
    """Create the sweep's run, or go on with that of a sweep that is resumed. began: in milliseconds. asked: for how many
    points. Raises Unreachable."""
    with store.opened() as client, interrupt.held():
        if run_id := of(client, store, folder):
            client.update_run(run_id, status="RUNNING", name=name(folder))
        else:
            run_id = _created(
                client, store, folder, min([began, *map(contents.began, _points(folder))])
            )
        _missing(client, run_id, folder, [], 0)
        keep(folder, store.block(run_id, run_id) | ({"asked": asked} if asked else {}))
    if not _open:
        atexit.register(abandon)
    _open.append((store, run_id))


def abandon() -> None:
    """At the end of the process: what it began and nobody ended was stopped."""
    while _open:
        store, run_id = _open.pop()
        with (
            suppress(Exception),
            store.opened() as client,
        ):  # it stays as it is where the server is away
            client.set_terminated(run_id, "KILLED")


def summary(
    store: Store, folder: Path, values: Iterable[metrics.Figure], runs: dict[str, str], words: str, tags: dict[str, Any], status: str
) -> tuple[str, dict[str, list[str]], list[str]]:  # fmt: skip
    """Complete the sweep's run, with `runs` (folder as tagged -> run id) below it: its id, `{run id: earlier ids}` of
    points that were run again, and the ids that somebody has deleted. words: what it came to. tags: None for one that
    is no longer so. Raises Unreachable."""
    from mlflow.entities import RunTag

    with store.opened() as client:
        points = _points(folder)
        run_id = of(client, store, folder) or _created(
            client, store, folder, min(map(contents.began, points), default=None)
        )
        client.update_run(run_id, name=contents.ended(name(folder), words))
        when = int((folder / "multirun.yaml").stat().st_mtime * 1000)
        _missing(client, run_id, folder, [*values, ("sweep/seconds", worked(folder), 0)], when)
        keep(folder, store.block(run_id, run_id))
        runs, deleted = _adopt(client, run_id, runs)
        client.log_batch(run_id, tags=[RunTag(k, v) for k, v in contents.written(tags).items()])
        held = client.get_run(run_id).data.tags
        for tag in [tag for tag, value in tags.items() if value is None and tag in held]:
            client.delete_tag(run_id, tag)
        for path in artifacts.of_sweep(folder):
            client.log_artifact(run_id, str(path))
        earlier = _supersede(client, below(client, store.experiment, run_id), runs)
        client.set_terminated(run_id, status, max(map(contents.finished, points), default=None))
    _open[:] = [one for one in _open if one[1] != run_id]
    return run_id, earlier, deleted


def _created(client: Any, store: Store, folder: Path, began: int | None) -> str:
    tags = {
        "sweep": folder.name,
        "kind": SUMMARY,
        "task": axes(folder)["task"],
        **contents.place(folder, shown(folder)),
    }
    run = client.create_run(store.experiment, began, contents.written(tags), run_name=name(folder))
    return str(run.info.run_id)


def name(folder: Path) -> str:
    """What was typed for a sweep, what it varies first: `seed=1,2 steps=8`; its stamp where that is unknown."""
    pairs = contents.axes(folder).items()
    told = [f"{k}={v}" for k, v in sorted(pairs, key=lambda pair: not set(pair[1]) & set(",("))]
    return contents.short(" ".join(told)) or f"sweep {folder.name}"


def axes(folder: Path) -> dict[str, str]:
    """The parameters of a sweep's run: what was typed for it, its task and its model."""
    tree = contents.multirun(folder)
    usual = {key: str((tree.get(key) or {}).get("name")) for key in ("task", "model")}
    told = usual | contents.axes(folder)
    return {contents.safe(k): v[: contents.LONG] for k, v in list(told.items())[: contents.PARAMS]}


def _missing(
    client: Any, run_id: str, folder: Path, values: list[metrics.Figure], when: int
) -> None:
    """Log metrics, and the parameters that the run lacks: MLflow keeps what an earlier try logged."""
    known = client.get_run(run_id).data.params
    metrics.log(
        client, run_id, values, when, {k: v for k, v in axes(folder).items() if k not in known}
    )


def _points(sweep: Path) -> list[Path]:
    return [path.parent for path in sweep.glob("*/result.json")]


def worked(sweep: Path) -> float:
    """In how many seconds at least one point of a sweep ran: pauses until it was resumed are none."""
    seconds, until = 0, 0
    for began, end in sorted((contents.began(p), contents.finished(p)) for p in _points(sweep)):
        seconds += max(end - max(began, until), 0)
        until = max(until, end)
    return seconds / 1000


def totals(
    rows: Rows,
    sought: Sequence[str] = (),
    before: Iterable[str] = (),
    best: str = "",
    alike: Sequence[str] = (),
) -> Iterator[metrics.Figure]:
    """Counts per verdict, the largest and smallest figures, and those of the point `best`. sought: more columns. before:
    keys of an earlier try, which may be zero or none now. alike: points of one choice under several seeds, whose
    medians stand for `best`, where no point alone is best."""
    told = {"sweep/points": float(len(rows))}
    for verdict in ORDER:
        count = sum((row.get("outcome") or row["verdict"]) == verdict for row in rows)
        if count or f"sweep/{verdict}" in before:
            told[f"sweep/{verdict}"] = float(count)
    for key in (*ENDS, *sought):
        known = [float(row[key]) for row in rows if metrics.number(row.get(key))]
        if any(known):
            told |= {
                f"sweep/largest_{_last(key)}": max(known),
                f"sweep/smallest_{_last(key)}": min(known),
            }
    told |= {key: nan for key in before if key.startswith("best/")}
    stand = {best} if best else {*alike}
    for key in (*BEST, *sought):
        known = [
            float(row[key])
            for row in rows
            if row["point"] in stand and metrics.number(row.get(key))
        ]
        if known:
            told[f"best/{OWN.get(key, _last(key))}"] = median(known)
    yield from ((key, value, 0) for key, value in told.items())


def _last(key: str) -> str:
    """`contains` of `evaluate.contains`, which a search looked for."""
    return key.rpartition(".")[2]


def measured(store: Store, folder: Path) -> dict[str, float]:
    """The metrics that the sweep's run has from an earlier try. Raises Unreachable."""
    run_id = known(folder).get("run_id")
    found = store.ask(lambda client: find(client, run_id)) if run_id else None
    return dict(found.data.metrics) if found else {}


def document(path: Path) -> dict[str, Any]:
    """A JSON object; empty where there is none."""
    try:
        return read(path)
    except (OSError, ValueError):
        return {}


def known(folder: Path) -> dict[str, Any]:
    """`run_id`, `experiment` and `uri` of the run of the sweep in `folder`, and how many points were `asked` for; empty
    where there is none yet."""
    return document(folder / PARENT) or document(folder / "sweep.json").get("mlflow") or {}


def keep(folder: Path, block: dict[str, Any]) -> None:
    """Leave the id where the workers look for it."""
    write_json(folder / PARENT, block)


def above(folder: Path, store: Store) -> dict[str, str]:
    """The tag that puts the run of the point in `folder` below its sweep's, in the same store."""
    block = known(folder.parent) if contents.in_sweep(folder) else {}
    same = (block.get("uri"), block.get("experiment")) == (store.shown, store.settings.experiment)
    return {ABOVE: block["run_id"]} if same and block.get("run_id") else {}


def of(client: Any, store: Store, folder: Path) -> str | None:
    """The run of the sweep in `folder`, also where its id could not be written down. Raises MlflowException."""
    run_id = known(folder).get("run_id")
    if run_id and find(client, run_id):
        return str(run_id)
    quote = '"' if "'" in folder.name else "'"
    wanted = f"tags.sweep = {quote}{folder.name}{quote} and tags.kind = '{SUMMARY}'"
    runs = client.search_runs([store.experiment], wanted)
    return next((r.info.run_id for r in runs if folder_of(r.data.tags) == folder.absolute()), None)


def folder_of(tags: dict[str, str]) -> Path:
    """The folder that a run is tagged with."""
    return Path(tags.get("directory", ""), tags.get("folder", ""))


def find(client: Any, run_id: str) -> Any:
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
    run = find(client, run_id)
    if run is None or run.info.lifecycle_stage != "deleted":
        return False
    return bool(client.get_experiment(run.info.experiment_id).lifecycle_stage == "active")


def below(client: Any, experiment: str, run_id: str) -> Iterator[Any]:
    """The runs below a run."""
    token = None
    while token != "":
        page = client.search_runs(
            [experiment], f"tags.`{ABOVE}` = '{run_id}'", max_results=1000, page_token=token
        )
        yield from page
        token = page.token or ""


def _adopt(client: Any, run_id: str, points: dict[str, str]) -> tuple[dict[str, str], list[str]]:
    """Put `points` below the run; those that the store has, and the ids of those that somebody has deleted."""
    from mlflow.exceptions import MlflowException

    there, deleted = {}, []
    for folder, point in points.items():
        try:
            client.set_tag(point, ABOVE, run_id)
            there[folder] = point
        except MlflowException as problem:
            if problem.error_code == "INVALID_PARAMETER_VALUE":
                deleted.append(point)
            elif problem.error_code != "RESOURCE_DOES_NOT_EXIST":
                raise
    return there, deleted


def _supersede(client: Any, runs: Iterable[Any], points: dict[str, str]) -> dict[str, list[str]]:
    """Delete the earlier runs of points that were run again; `{run id: earlier ids}`."""
    earlier: dict[str, list[str]] = {}
    for run in list(runs):
        latest = points.get(run.data.tags.get("folder", ""))
        if latest and run.info.run_id != latest:
            client.set_tag(run.info.run_id, "superseded", latest)
            client.delete_run(run.info.run_id)
            earlier.setdefault(latest, []).append(run.info.run_id)
    return earlier


def tags(folder: Path, rows: Rows, words: str, sentence: str, best: str, marked: Sequence[str], reason: str | None, whole: bool) -> dict[str, Any]:  # fmt: skip
    """The tags that say what a sweep came to. marked: the points that its page marks, of which `best` is one. whole: it
    came to its end."""
    more = f" (and {len(marked) - 1} more)" if len(marked) > 1 else ""
    asked = " ".join(
        contents.read(override, brief=True) for override in contents.varied(folder / best)
    )
    return {
        "outcome": words, "conclusion": sentence or words, NOTE: sentence or words, "reason": reason,
        "best": f"{contents.short(asked) or best}{more}" if best else None,
        "exit_code": max(int(row["exit_code"]) for row in rows) if whole else None,
    }  # fmt: skip
