"""`track=mlflow`: one flat run per harness run; sqlite under `runs/` unless `track.uri` says else.

Two rules keep every result. A fresh sqlite store is created once, under a lock: several processes
creating it at the same time would break it for good. And a run is logged *from its folder* with
fixed timestamps, so a server that was away gets it later, and a second upload adds nothing.
"""

import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from textwrap import shorten
from typing import Any

from harness import interrupt
from harness.errors import Unreachable
from harness.snapshot.record import NAME, PENDING, read
from harness.snapshot.result import exit_code, write_json
from harness.track import blank, contents, description, inputs, orphans, parent

BATCH = 1000  # metrics per request, the server's limit
PAUSE, SHARE = 30.0, 10  # seconds without a new try; at most a tenth of the time is spent trying
_KNOWN: dict[tuple[str, str], str] = {}  # (uri, experiment) -> id, in this process
_AWAY: dict[str, tuple[float, str]] = {}  # uri -> (not tried again before, what was wrong)
_SAID = {
    "NewConnectionError": "no server answers there",
    "NameResolutionError": "there is no such host",
    "ReadTimeoutError": "it takes the request and does not answer",
    "ConnectTimeoutError": "it does not answer",
    "No space left": "the disk is full",
    "disk is full": "the disk is full",
    "readonly database": "it can only be read",
    "out-of-date database schema": "an earlier MLflow made it; copy the file, then run `mlflow db upgrade` with this address",
}  # fmt: skip


class Mlflow:
    """The store that `settings` (a TrackConfig) names. Nothing leaves this machine unless it does."""

    def __init__(self, settings: Any, runs_dir: Path):
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ["MLFLOW_CONFIGURE_LOGGING"] = "false"  # its log lines go to harness.log
        os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        self.settings, self.runs_dir = settings, runs_dir.absolute()
        self.local = settings.uri is None
        self.uri = settings.uri or f"sqlite:///{self.runs_dir / 'mlflow.db'}"
        self.shown = self.uri if settings.uri else f"sqlite:///{runs_dir / 'mlflow.db'}"

    def ready(self) -> None:
        """Import the client; open the store where that is a file which is there, have an empty one ready
        where it is not. Raises Unreachable."""
        import mlflow.tracking  # noqa: F401
        import sqlalchemy  # noqa: F401

        if self.local and not (self.runs_dir / "mlflow.db").is_file():
            blank.make()
        elif self.local:
            with self._reachable():
                orphans.settle(self, once=True)

    def log(self, folder: Path, result: dict[str, Any], name: str, again: bool = False,
            watch: Any = None) -> dict[str, Any]:  # fmt: skip
        """Log the run in `folder`; return the `mlflow` block of its `result.json`. watch: what was
        sampled of the machine meanwhile.

        Until that is complete `pending.json` lies in the folder, with the run id once there is one: who
        comes again continues that run; and with the rows of the runs below it. again: look for a run that
        was created by a try that could not write its id down. Raises Unreachable.
        """
        with self._reachable(), self._ending() as begun:
            orphans.settle(self, once=True)
            with interrupt.held():
                waiting, mine = _pending(folder), orphans.uploading(folder)
                run_id = waiting.get("run_id")  # of another server, where it moved to an empty one
                if not run_id or not parent.there(self.client, run_id):
                    run_id = self._begun(folder) if again else None
                if run_id:
                    self.client.set_tag(run_id, *next(iter(mine.items())))
                else:
                    above = parent.above(folder, self.shown, self.settings.experiment)
                    told = contents.tags(result, folder) | above | mine
                    asked = contents.run_name(result, folder, name)
                    run_id = self._create(asked, told, contents.began(folder))
                begun.append(run_id)
                block = {
                    "run_id": run_id,
                    "experiment": self.settings.experiment,
                    "uri": self.shown,
                }
                rows = waiting.get("children") or []
                known = {**block, "reason": "upload not complete", "children": rows}
                write_json(folder / PENDING, known)
                write_json(folder / "result.json", {**result, "mlflow": block})
            when = int((folder / NAME).stat().st_mtime * 1000)
            self._fill(run_id, folder, result, when, watch, rows)
            self._children(run_id, rows)
            self.client.delete_tag(run_id, orphans.UPLOADING)
            self.client.set_terminated(run_id, "FAILED" if exit_code(result) else "FINISHED", when)
            (folder / PENDING).unlink()
        return block

    def begin_sweep(self, folder: Path, name: str, tags: dict[str, str], began: int) -> str:
        """A sweep's parent run, `RUNNING`: its own where the sweep in `folder` has one, else a new one.
        Writes its id into `folder`. Raises Unreachable."""
        with self._reachable(), interrupt.held():
            orphans.settle(self)
            if run_id := parent.of(self.client, self.experiment, folder):
                self.client.update_run(run_id, status="RUNNING", name=name)
                self.client.set_tag(run_id, "process", tags["process"])
            else:
                run_id = self._create(name, tags, began)
            self._metrics(run_id, [], 0, parent.parameters(folder))
            block = {"run_id": run_id, "experiment": self.settings.experiment, "uri": self.shown}
            parent.keep(folder, block)
        return run_id

    def summary(self, folder: Path, name: str, tags: dict[str, str], values: list[tuple[str, float, int]],
                files: list[Path], told: tuple[str, str, str], when: int, points: dict[str, str],
                status: str) -> tuple[str, dict[str, list[str]]]:  # fmt: skip
        """Complete a sweep's parent run, with the runs `points` (folder as tagged -> run id) below it; its
        id, and `{run id: earlier ids}` of points run again. told: see `summarise`. Raises Unreachable."""
        with self._reachable():
            run_id = parent.of(self.client, self.experiment, folder) or self._create(name, tags)
            words, sentence, table = told
            name = contents.headed(words, name)
            for tag, said in (
                ("verdict", words),
                ("outcome", words),
                ("conclusion", sentence or name),
            ):
                self.client.set_tag(run_id, tag, said)  # more points may have come
            self.client.update_run(run_id, name=name)
            self._metrics(run_id, values, when, parent.parameters(folder))
            points = parent.adopt(self.client, run_id, points)
            links = description.comparison(self.experiment, run_id, list(points.values()))
            tail = description.audited(run_id, self.settings.uri)
            text = description.of_sweep(words, sentence, links, table, tail)
            self.client.set_tag(run_id, "mlflow.note.content", text)
            for path in files:
                self.client.log_artifact(run_id, str(path))
            earlier = parent.supersede(self.client, self.experiment, run_id, points)
            self.client.set_terminated(run_id, status)
        return run_id, earlier

    def stop(self, run_id: str) -> None:
        """Mark a run that still is `RUNNING` as killed. Raises Unreachable."""
        if self.local and not (self.runs_dir / "mlflow.db").is_file():
            return  # removed
        with self._reachable():
            if self.client.get_run(run_id).info.status == "RUNNING":
                self.client.set_terminated(run_id, "KILLED")

    def retry(self) -> None:
        """Ask the server again at the next call, however lately it was away."""
        _AWAY.pop(self.uri, None)

    def run(self, run_id: str) -> dict[str, Any] | None:
        """`tags` and `metrics` of a run, None when there is none. Raises Unreachable."""
        with self._reachable():
            run = parent.there(self.client, run_id)
            return _held(run) if run else None

    def search(self, tag: str, value: str) -> list[dict[str, Any]]:
        """`tags` and `metrics` of the runs whose tag has this value, in any experiment. Raises
        Unreachable."""
        from mlflow.tracking import MlflowClient

        with self._reachable():
            client = MlflowClient(tracking_uri=self.uri)
            places = [e.experiment_id for e in client.search_experiments()]
            runs = client.search_runs(places, f"tags.`{tag}` = '{value}'", max_results=20)
            return [_held(run) for run in runs]

    def opened(self, tags: dict[str, str]) -> str:
        """The experiment's id, created if need be; `tags` say how its page opens. A store that can only be
        read is shown as it is. Raises Unreachable."""
        from mlflow.exceptions import MlflowException

        with self._reachable():
            with suppress(MlflowException):
                for key, value in tags.items():
                    self.client.set_experiment_tag(self.experiment, key, value)
                orphans.settle(self)
            return self.experiment

    @contextmanager
    def _ending(self) -> Iterator[list[str]]:
        """Runs put into the yielded list do not stay `RUNNING` when their upload is told to end.

        Who comes again completes them.
        """
        begun: list[str] = []
        try:
            yield begun
        except KeyboardInterrupt:
            with interrupt.held():
                for run_id in begun:
                    self.client.set_terminated(run_id, "KILLED")
            raise

    @contextmanager
    def _reachable(self) -> Iterator[None]:
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient
        from sqlalchemy.exc import SQLAlchemyError

        until, reason = _AWAY.get(self.uri, (0.0, ""))
        if (began := time.monotonic()) < until:
            raise Unreachable(reason, tried=False)
        try:
            with _lock(self.runs_dir, self.local):
                if self.local:
                    blank.put(self.runs_dir / "mlflow.db")
                self.client = MlflowClient(tracking_uri=self.uri)
                self.experiment = self._experiment()
            yield
        except (MlflowException, SQLAlchemyError, OSError, ImportError) as problem:
            _KNOWN.clear()
            inputs.forget()
            reason = f"cannot track to {self.shown}: {_plain(problem)}."
            if not self.local:
                cost = time.monotonic() - began
                _AWAY[self.uri] = (time.monotonic() + max(PAUSE, SHARE * cost), reason)
            raise Unreachable(reason) from problem

    def _experiment(self) -> str:
        key = (self.uri, self.settings.experiment)
        if key not in _KNOWN:
            known = self.client.get_experiment_by_name(self.settings.experiment)
            _KNOWN[key] = known.experiment_id if known is not None else self._new_experiment()
        return _KNOWN[key]

    def _place(self) -> str | None:
        """Where artifacts of a new experiment go: beside a database file; a server knows."""
        if self.local:
            return (self.runs_dir / "artifacts").as_uri()
        scheme, _, file = self.uri.partition("sqlite:///")
        beside = Path(file.partition("?")[0]).absolute().parent / "mlartifacts"
        return beside.as_uri() if file and not scheme else None

    def _new_experiment(self) -> str:
        from mlflow.exceptions import MlflowException

        try:
            return self.client.create_experiment(self.settings.experiment, self._place())
        except MlflowException:  # another worker was quicker
            known = self.client.get_experiment_by_name(self.settings.experiment)
            if known is None:
                raise
            return known.experiment_id

    def _create(self, name: str, tags: dict[str, str], began: int | None = None) -> str:
        return self.client.create_run(self.experiment, began, tags, run_name=name).info.run_id

    def _begun(self, folder: Path) -> str | None:
        wanted = f"tags.record = '{contents.record_id(folder)}'"
        there = self.client.search_runs([self.experiment], wanted)
        cut = (r.info.run_id for r in there if r.info.status in ("RUNNING", "KILLED"))
        return next(cut, None)

    def _fill(self, run_id: str, folder: Path, result: dict[str, Any], when: int, watch: Any, rows: list[dict[str, Any]]) -> None:  # fmt: skip
        if watch is not None:
            from mlflow.entities import Metric

            samples = watch.since(contents.began(folder), when)
            machine = [Metric(name, value, at, i) for i, (name, value, at) in enumerate(samples)]
            for start in range(0, len(machine), BATCH):
                self.client.log_batch(run_id, metrics=machine[start : start + BATCH])
        inputs.note(self.client, self.experiment, run_id, folder, result)
        self._metrics(run_id, contents.metrics(result), when, contents.parameters(folder))
        self._artifacts(run_id, folder, result)
        note = description.note(result, run_id, folder, rows, self.settings.uri)
        self.client.set_tag(run_id, "mlflow.note.content", note)

    def _children(self, above: str, rows: list[dict[str, Any]]) -> None:
        """One finished run below the run `above` for each of `rows` (`name`, `tags`, `metrics`), whose
        figures it has by their number: the charts show it, its children are folded. What an earlier try
        left of them is deleted."""
        if not rows:
            return
        self._metrics(above, contents.numbered(rows), int(time.time() * 1000))
        for run in parent.below(self.client, self.experiment, above):
            self.client.delete_run(run.info.run_id)
        for row in rows:
            with self._ending() as begun:
                tags = {**row["tags"], "mlflow.parentRunId": above}
                begun.append(run_id := self._create(row["name"], tags))
                self._metrics(run_id, [(k, float(v), 0) for k, v in row["metrics"].items()], 0)
                self.client.set_terminated(run_id)

    def _metrics(self, run_id: str, values: Iterable[tuple[str, float, int]], when: int, params: Any = ()) -> None:  # fmt: skip
        from mlflow.entities import Metric, Param

        figures = [Metric(key, value, when, step) for key, value, step in values]
        for start in range(0, max(len(figures), 1), BATCH):
            batch, chosen = figures[start : start + BATCH], [] if start else params
            self.client.log_batch(run_id, batch, [Param(*pair) for pair in chosen])

    def _artifacts(self, run_id: str, folder: Path, result: dict[str, Any]) -> None:
        """Everything that explains the run; tensors only below the limit, else where they are."""
        if result.get("elements"):
            self.client.log_dict(run_id, {"elements": result["elements"]}, "elements.json")
        for path in sorted(folder.glob("*")):
            if path.suffix in (".html", ".json", ".svg") and path.name != PENDING:
                self.client.log_artifact(run_id, str(path))
        self.client.log_artifacts(run_id, str(folder / ".hydra"), "hydra")
        snapshot = folder / "snapshot"
        if not (snapshot / "manifest.json").is_file():
            return
        stored = sum(p.stat().st_size for p in snapshot.rglob("*") if p.is_file())
        if stored <= self.settings.artifact_limit_mb * 2**20:
            self.client.log_artifacts(run_id, str(snapshot), "snapshot")
        else:
            self.client.log_artifact(run_id, str(snapshot / "manifest.json"), "snapshot")
            kept = {"path": str(snapshot), "bytes": stored, "id": result["snapshot"]["id"]}
            self.client.log_dict(run_id, kept, "snapshot/kept_on_disk.json")


def _plain(problem: Exception) -> str:
    text = str(problem).strip() or type(problem).__name__
    known = (said for sign, said in _SAID.items() if sign in text)
    return next(known, shorten(text.splitlines()[0], 300, placeholder=" ...").rstrip("."))


def _pending(folder: Path) -> dict[str, Any]:
    try:
        return read(folder / PENDING)
    except (OSError, ValueError):
        return {}


@contextmanager
def _lock(runs_dir: Path, local: bool) -> Iterator[None]:
    """One process at a time may create the sqlite store."""
    if not local:
        yield
        return
    runs_dir.mkdir(parents=True, exist_ok=True)
    with (runs_dir / ".mlflow.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _held(run: Any) -> dict[str, Any]:
    return {"tags": dict(run.data.tags), "metrics": dict(run.data.metrics)}
