"""`track=mlflow`: one flat run per harness run; sqlite under `runs/` unless `track.uri` says else.

Two rules keep every result. A fresh sqlite store is created once, under a lock: several processes
creating it at the same time would break it for good. And a run is logged *from its folder* with
fixed timestamps, so a server that was away gets it later, and a second upload adds nothing.
"""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from harness import interrupt
from harness.errors import Unreachable
from harness.snapshot.record import NAME, PENDING
from harness.snapshot.result import write_json
from harness.track import (
    artifacts,
    colours,
    contents,
    description,
    empty_store,
    experiment,
    inputs,
    links,
    metrics,
    names,
    orphans,
    parent,
    parts,
    patience,
    usage,
)
from harness.track import provenance as place
from harness.track import remnant as cut
from harness.track.lock import alone, turn
from harness.track.reasons import plain
from harness.track.usage import BATCH

PARTS = 50  # more of one run would fill MLflow's first page, which has a hundred, and nothing else be seen
PAUSE, SHARE = 30.0, 10  # seconds without a new try; at most a tenth of the time is spent trying
_KNOWN: dict[tuple[str, str], str] = {}  # (uri, experiment) -> id, in this process
_AWAY: dict[tuple[str, str], tuple[float, str]] = {}  # (no try before, what was wrong)
T = TypeVar("T")


class Mlflow:
    """The store that `settings` (a TrackConfig) names. Nothing leaves this machine unless it does."""

    def __init__(self, settings: Any, runs_dir: Path):
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ["MLFLOW_CONFIGURE_LOGGING"] = "false"  # its log lines go to harness.log
        os.environ["MLFLOW_SUPPRESS_PRINTING_URL_TO_STDOUT"] = "true"
        patience.of_servers()
        os.environ.setdefault("MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR", "false")
        self.settings, self.runs_dir, self.given = settings, runs_dir.absolute(), runs_dir
        self.local = settings.uri is None
        self.uri = settings.uri or f"sqlite:///{self.runs_dir / 'mlflow.db'}"
        self._where = (self.uri, settings.experiment)
        self.shown = self.uri if settings.uri else f"sqlite:///{runs_dir / 'mlflow.db'}"

    def ready(self) -> None:
        """Import the client; open the store where that is a file which is there, have an empty one ready
        where it is not. Raises Unreachable."""
        import mlflow.tracking  # noqa: F401
        import sqlalchemy  # noqa: F401

        if self.local and not (self.runs_dir / "mlflow.db").is_file():
            empty_store.make()
        elif self.local:
            with self._reachable():
                orphans.settle(self, once=True)

    def log(self, folder: Path, result: dict[str, Any], name: str, again: bool = False,
            watch: Any = None) -> dict[str, Any]:  # fmt: skip
        """Log the run in `folder`; return the `mlflow` block of its `result.json`. watch: the machine meanwhile.

        Until that is complete `pending.json` lies in the folder, with the run id once there is one: who
        comes again continues that run; and with the rows of the runs below it. again: look for a run that
        was created by a try that could not write its id down. One that somebody has deleted meanwhile stays so. Raises
        Unreachable.
        """
        from mlflow.exceptions import MlflowException

        with self._reachable():
            orphans.settle(self, once=True)
        with self._reachable(), turn(folder) as done, self._ending() as begun:
            if done and parent.there(self.client, done["run_id"]):
                return done
            with interrupt.held():
                waiting, mine = parent.waiting(folder), orphans.uploading(folder)
                run_id = waiting.get("run_id")  # of another server, where it moved to an empty one
                if not run_id or not parent.there(self.client, run_id):
                    run_id = parent.begun(self.client, self.experiment, folder) if again else None
                elif parent.erased(self.client, run_id):
                    return parent.left(folder, result, self._block(run_id, run_id))
                if run_id:
                    self.client.set_tag(run_id, *next(iter(mine.items())))
                else:
                    above = parent.above(folder, self.shown, self.settings.experiment)
                    told = contents.tags(result, folder) | above | mine
                    asked = names.of_run(result, folder, name)
                    run_id = self._create(asked, told, contents.began(folder))
                begun.append(run_id)
                block = self._block(run_id, "" if contents.in_sweep(folder) else run_id)
                rows = waiting.get("children") or []
                known = {**block, "reason": "upload not complete", "children": rows}
                write_json(folder / PENDING, known)
                write_json(folder / "result.json", {**result, "mlflow": block})
            try:
                self._upload(run_id, folder, result, watch, rows)
            except MlflowException as problem:
                if problem.error_code != parent.DELETED or not parent.erased(self.client, run_id):
                    raise
                return parent.left(folder, result, block)
            (folder / PENDING).unlink()
        return block

    def _upload(self, run_id: str, folder: Path, result: dict[str, Any], watch: Any, rows: list[dict[str, Any]]) -> None:  # fmt: skip
        when = int((folder / NAME).stat().st_mtime * 1000)
        self._fill(run_id, folder, result, when, watch, rows)
        below = self._children(run_id, rows, folder, result, when)
        if below:
            self._note(run_id, folder, result, rows, below)
        links.backwards(self.client, self.experiment, run_id, result, folder)
        self.client.delete_tag(run_id, orphans.UPLOADING)
        self.client.set_terminated(run_id, contents.status([result]), when)
        if not contents.in_sweep(folder):  # of a sweep its end does
            experiment.show(self.client, self.experiment)

    def begin_sweep(self, folder: Path, name: str, tags: dict[str, str], began: int, asked: int | None) -> str:  # fmt: skip
        """A sweep's parent run, `RUNNING`: its own where the sweep in `folder` has one, else a new one.
        Writes its id into `folder`, and how many points were asked for. Raises Unreachable."""
        with self._reachable(), interrupt.held():
            orphans.settle(self)
            if run_id := parent.of(self.client, self.experiment, folder):
                self.client.update_run(run_id, status="RUNNING", name=name)
                for key, value in {"process": tags["process"], **cut.going(folder)}.items():
                    self.client.set_tag(run_id, key, value)
            else:
                tags = tags | cut.going(folder)
                run_id = self._create(name, tags, min([began, *parent.spans(folder)[0]]))
            self._metrics(run_id, [], 0, parent.untold(self.client, run_id, folder))
            parent.keep(folder, self._block(run_id, run_id) | ({"asked": asked} if asked else {}))
        return run_id

    def summary(self, folder: Path, name: str, tags: dict[str, str], values: list[tuple[str, float, int]],
                files: list[Path], told: tuple[str, str, str, str], marked: int, when: int, points: dict[str, str],
                status: str, more: dict[str, str | None]) -> tuple[str, dict[str, list[str]], list[str]]:  # fmt: skip
        """Complete a sweep's parent run, with the runs `points` (folder as tagged -> run id) below it; its
        id, `{run id: earlier ids}` of points run again, and the ids that somebody has deleted. told: see
        `summarise`. more: tags, None for one that is no longer so. It ends when its last point did, however
        much later that is uploaded. marked: how many points its page marks. Raises Unreachable."""
        from mlflow.entities import RunTag

        with self._reachable():
            begins, ends = parent.spans(folder)
            run_id = parent.of(self.client, self.experiment, folder)
            run_id = run_id or self._create(name, tags, min(begins, default=None))
            words, sentence, table, best = told
            name = names.ended(name, words)
            self.client.update_run(run_id, name=name)
            worked = parent.worked(folder)
            values = [*values, (parent.WORKED, worked, 0)]
            self._metrics(run_id, values, when, parent.untold(self.client, run_id, folder))
            parent.keep(folder, self._block(run_id, run_id))
            points, deleted = parent.adopt(self.client, run_id, points)
            compared = links.of_sweep(self.experiment, run_id, points, best, marked)
            tail = description.repeated(folder, best, run_id, self._there(), worked, marked)
            said = {**parent.commit(folder), **parent.told(words, sentence), **more}
            text = description.unfinished(sentence, more.get("reason"))
            said["mlflow.note.content"] = description.of_sweep(words, text, compared, table, tail)
            self.client.log_batch(run_id, tags=[RunTag(k, v) for k, v in said.items() if v])
            for tag in [tag for tag, value in said.items() if value is None]:
                self.client.delete_tag(run_id, tag)
            for path in files:
                self.client.log_artifact(run_id, str(path))
            below = list(parent.below(self.client, self.experiment, run_id))
            earlier = parent.supersede(self.client, below, points)
            mine = {*points.values()}
            inputs.share(self.client, run_id, [r for r in below if r.info.run_id in mine])
            self.client.set_terminated(run_id, status, max(ends, default=None))
            if "process" in self.client.get_run(run_id).data.tags:  # of whoever was at work on it
                self.client.delete_tag(run_id, "process")
            experiment.show(self.client, self.experiment)
        return run_id, earlier, deleted

    def cut(self, run_id: str, folder: Path) -> None:
        """A sweep's run that still is `RUNNING` although its process is gone: see `remnant.py`. Raises Unreachable."""
        if self.local and not (self.runs_dir / "mlflow.db").is_file():
            return  # removed
        with self._reachable():
            if (run := self.client.get_run(run_id)).info.status == "RUNNING":
                cut.complete(self.client, self.experiment, run, folder)

    def killed(self, folder: Path, name: str, tags: dict[str, str], began: int, params: Iterable[tuple[str, str]],
               watch: Any, read: dict[str, Any]) -> None:  # fmt: skip
        """A run that was stopped before it had a result. began: in milliseconds. read: what it had. Raises Unreachable."""
        with self._reachable():
            run_id = self._create(name, tags | orphans.uploading(folder), began)
            self._metrics(run_id, [], 0, params)
            usage.log(self.client, run_id, watch, began, int(time.time() * 1000))
            inputs.note(self.client, self.experiment, run_id, folder, read)
            self.client.delete_tag(run_id, orphans.UPLOADING)
            self.client.set_terminated(run_id, "KILLED")

    def retry(self) -> None:
        """Ask the server again at the next call, however lately it was away."""
        _AWAY.pop(self._where, None)

    def ask(self, question: Callable[[Any], T]) -> T:
        """What `question` makes of the client: of the store is only read (`reader.py`). Raises Unreachable."""
        with self._reachable():
            return question(self.client)

    def opened(self, tags: dict[str, str]) -> str:
        """The experiment's id, created if need be; `tags` say how its page opens. A store that can only be
        read is shown as it is. Raises Unreachable."""
        from mlflow.exceptions import MlflowException

        with self._reachable():
            with suppress(MlflowException):
                for key, value in tags.items():
                    self.client.set_experiment_tag(self.experiment, key, value)
                experiment.show(self.client, self.experiment)
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

        until, reason = _AWAY.get(self._where, (0.0, ""))
        if (began := time.monotonic()) < until:
            raise Unreachable(reason, tried=False)
        try:
            with alone(self.runs_dir, self.local):
                if self.local:
                    empty_store.put(self.runs_dir / "mlflow.db")
                if not experiment.is_server(self.uri):
                    patience.of_databases()
                self.client = MlflowClient(tracking_uri=self.uri)
                self.experiment = self._experiment()
            yield
        except (MlflowException, SQLAlchemyError, OSError, ImportError) as problem:
            _KNOWN.clear()
            inputs.forget()
            reason = f"cannot track to {self.shown}: {plain(problem, self.shown)}."
            if not self.local:
                cost = time.monotonic() - began
                _AWAY[self._where] = (time.monotonic() + max(PAUSE, SHARE * cost), reason)
            raise Unreachable(reason) from problem

    def _experiment(self) -> str:
        name = self.settings.experiment
        if (self.uri, name) not in _KNOWN:
            _KNOWN[self.uri, name] = experiment.opened(self.client, name, self.place())
        return _KNOWN[self.uri, name]

    def place(self) -> str | None:
        """Where artifacts of a new experiment go: beside a database file; a server knows."""
        if self.local:
            return (self.runs_dir / empty_store.ARTIFACTS).as_uri()
        file = experiment.database(self.uri)
        return (file.absolute().parent / "mlartifacts").as_uri() if file else None

    def _block(self, run_id: str, opened: str = "") -> dict[str, str]:
        """Where a run is: what its folder keeps of that. opened: the run that its page opens, not all of them."""
        block = {"run_id": run_id, "experiment": self.settings.experiment, "uri": self.shown}
        return block | experiment.pages(self.uri, self.experiment, opened)

    def _there(self) -> str:
        return description.there(self.settings.uri, self.settings.experiment, self.given)

    def _create(self, name: str, tags: dict[str, str], began: int | None = None) -> str:
        return self.client.create_run(self.experiment, began, tags, run_name=name).info.run_id

    def _fill(self, run_id: str, folder: Path, result: dict[str, Any], when: int, watch: Any, rows: list[dict[str, Any]]) -> None:  # fmt: skip
        usage.log(self.client, run_id, watch, contents.began(folder), when)
        inputs.note(self.client, self.experiment, run_id, folder, result)
        figures = [*parts.above(rows), *metrics.metrics(result), *metrics.turns(folder)]
        figures += metrics.tabled(folder, result)
        self._metrics(run_id, figures, when, contents.parameters(folder))
        artifacts.log(self.client, run_id, folder, result, self.settings.artifact_limit_mb)
        self._note(run_id, folder, result, rows)

    def _note(self, run_id: str, folder: Path, result: dict[str, Any], rows: list[dict[str, Any]],
              below: Sequence[str] = ()) -> None:  # fmt: skip
        """The run's description. below: the runs below it."""
        called = parts.called(str(result.get("task")))
        others = links.of(self.client, self.experiment, run_id, result, below, called)
        note = description.note(result, run_id, folder, rows, self._there(), others)
        self.client.set_tag(run_id, "mlflow.note.content", note)

    def _children(
        self, above: str, rows: list[dict[str, Any]], folder: Path, result: dict[str, Any], when: int
    ) -> list[str]:  # fmt: skip
        """The ids of one finished run below the run `above` for each of `rows` (`name`, `tags`, `metrics`; with
        `params`, of the same model and prompts), unless they are too many. Each lasts as long as the job, which ended
        at `when`. What an earlier try left of them is deleted."""
        made: list[str] = []
        if not rows:
            return made
        for run in parent.below(self.client, self.experiment, above):
            self.client.delete_run(run.info.run_id)
        mine, tail = contents.configured(folder), description.of_part(folder)
        where = place.tags(folder, str(result.get("folder", folder))) | contents.of_part(result)
        began = contents.began(folder)
        for number, row in enumerate(rows if len(rows) <= PARTS else ()):
            with self._ending() as begun:
                tags = {**where, **row["tags"], **parts.told(row, tail), **colours.tag(number)}
                begun.append(
                    run_id := self._create(
                        row["name"], tags | {parent.ABOVE: above}, began + number
                    )
                )
                values = [(k, float(v), 0) for k, v in row["metrics"].items()]
                if row.get("params"):
                    inputs.note(self.client, self.experiment, run_id, folder, result)
                self._metrics(run_id, values, when, parts.parameters(row, mine).items())
                self.client.set_terminated(run_id, end_time=max(when, began + number))
                made.append(run_id)
        return made

    def _metrics(self, run_id: str, values: Iterable[tuple[str, float, int]], when: int, params: Any = ()) -> None:  # fmt: skip
        from mlflow.entities import Metric, Param

        figures = [Metric(key, value, when, step) for key, value, step in values]
        for start in range(0, max(len(figures), 1), BATCH):
            batch, chosen = figures[start : start + BATCH], [] if start else params
            self.client.log_batch(run_id, batch, [Param(*pair) for pair in chosen])
