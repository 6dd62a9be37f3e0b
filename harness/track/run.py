"""One result, logged from its folder with fixed times: what was away gets it later, and a second upload adds nothing."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from harness import interrupt
from harness.snapshot.record import NAME, PENDING, read
from harness.snapshot.result import write_json
from harness.track import artifacts, contents, metrics, parent
from harness.track.contents import ABOVE, NOTE
from harness.track.store import Store

Record = dict[str, Any]
PARTS = 50  # runs below one; more would fill MLflow's first page


def record(
    store: Store, folder: Path, result: Record, configured: str, again: bool = False
) -> Record:
    """Log the run in `folder`; return the `mlflow` block of its `result.json`. configured: its name in the configuration.

    Until that is complete `pending.json` lies in the folder, with the run id once there is one and the rows of the runs
    below it: who comes again goes on with that run. again: look for a run whose id could not be written down. A run
    that somebody has deleted meanwhile stays so. Raises Unreachable.
    """
    from mlflow.exceptions import MlflowException

    with store.opened() as client, alone(folder) as done:
        if done and parent.find(client, done["run_id"]):
            return done
        with interrupt.held():
            waiting = parent.document(folder / PENDING)
            begun = _begun(client, store, folder, waiting.get("run_id"), again)
            if begun and parent.erased(client, begun.info.run_id):
                return _ended(folder, result, store.block(begun.info.run_id))
            run_id = (
                begun.info.run_id if begun else _created(client, store, folder, result, configured)
            )
            block = store.block(run_id, "" if contents.in_sweep(folder) else run_id)
            rows = waiting.get("children") or []
            write_json(
                folder / PENDING, {**block, "reason": "upload not complete", "children": rows}
            )
            write_json(folder / "result.json", {**result, "mlflow": block})
        try:
            _fill(client, store, run_id, folder, result, rows)
        except KeyboardInterrupt:
            with interrupt.held():
                client.set_terminated(run_id, "KILLED")
            raise
        except MlflowException:
            if not parent.erased(client, run_id):
                raise
        return _ended(folder, result, block)


def _begun(client: Any, store: Store, folder: Path, run_id: str | None, again: bool) -> Any:
    """The run of an earlier try; None where there is none. One of another record, from before the folder was run again,
    is closed."""
    seal = contents.record_id(folder)
    found = parent.find(client, run_id) if run_id else None
    if found and found.data.tags.get("record") != seal:
        client.set_terminated(run_id, "KILLED")
        found = None
    if not found and again and seal:
        cut = [r for r in client.search_runs([store.experiment], f"tags.record = '{seal}'")
               if r.info.status in ("RUNNING", "KILLED")]  # fmt: skip
        found = next(iter(cut), None)
    return found


def _created(client: Any, store: Store, folder: Path, result: Record, configured: str) -> str:
    named = contents.name(folder, result, configured)
    tags = contents.tags(folder, result) | parent.above(folder, store)
    run = client.create_run(store.experiment, contents.began(folder), tags, run_name=named)
    return str(run.info.run_id)


def _ended(folder: Path, result: Record, block: Record) -> Record:
    write_json(folder / "result.json", {**result, "mlflow": block})
    (folder / PENDING).unlink(missing_ok=True)
    return block


def _fill(
    client: Any, store: Store, run_id: str, folder: Path, result: Record, rows: list[Record]
) -> None:
    when, params = contents.finished(folder), contents.parameters(folder)
    metrics.log(client, run_id, metrics.every(folder, result, rows), when, params)
    artifacts.log(client, run_id, folder, result, store.settings.artifact_limit_mb)
    _children(client, store, run_id, folder, result, rows, params)
    if (audited := result.get("audit_of")) and parent.find(client, audited):
        client.set_tag(audited, "audited", f"{contents.word(result)} (run {run_id})")
    client.set_terminated(run_id, contents.status([result]), when)


def _children(
    client: Any, store: Store, above: str, folder: Path, result: Record, rows: list[Record], params: dict[str, str]
) -> None:  # fmt: skip
    """A finished run below the run `above` for each of `rows` (`name`, `tags`, `metrics`, perhaps `params`), unless they are
    too many. What an earlier try left of them is deleted."""
    if not rows or len(rows) > PARTS:
        return
    for run in parent.below(client, store.experiment, above):
        client.delete_run(run.info.run_id)
    part = {"evaluate": "cell"}.get(
        str(result.get("task")), str(result.get("task")).removesuffix("s")
    )
    whole = contents.tags(folder, result)
    known: Record = {
        k: whole[k]
        for k in ("task", "folder", "directory", "host", "git_commit", "git_dirty")
        if k in whole
    }
    began, ended = contents.began(folder), contents.finished(folder)
    for number, row in enumerate(rows):
        said = row["tags"].get("says") or row["name"]
        tags = contents.written({**known, "part": part, "outcome": row["name"].partition(": ")[2] or None,
                                 "conclusion": said, NOTE: said, **row["tags"], ABOVE: above})  # fmt: skip
        child = client.create_run(
            store.experiment, began + number, tags, run_name=row["name"]
        ).info.run_id
        values = [(k, float(v), 0) for k, v in row["metrics"].items() if metrics.number(v)]
        metrics.log(client, child, values, ended, _part(params, row.get("params") or {}))
        client.set_terminated(child, end_time=max(ended, began + number))


def _part(above: dict[str, str], part: dict[str, str]) -> dict[str, str]:
    """The parameters of a part, with those of the whole that hold for it."""
    other = {key for key, value in part.items() if above.get(key) != value} | {"task"}
    return {k: v for k, v in above.items() if part and k.partition(".")[0] not in other} | part


@contextmanager
def alone(folder: Path) -> Iterator[Record | None]:
    """Wait until no other process records `folder`; the `mlflow` block of its result where that was done meanwhile. The
    lock ends with its process; a disk that knows none is taken as it is."""
    with (folder / NAME).open() as handle:
        with suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        done = None
        if not (folder / PENDING).exists():
            with suppress(OSError, ValueError):
                done = read(folder / "result.json").get("mlflow")
        yield done
