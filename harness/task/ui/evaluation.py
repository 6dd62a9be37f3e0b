"""An evaluation that runs behind the page: the same questions asked of the whole state and of every
setting that was chosen, in a thread of its own, between the acts of the people who look."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.config import Config, option
from harness.errors import InputProblem
from harness.pipeline.evaluation import ask, identity
from harness.pipeline.evaluation.answers import soundness
from harness.pipeline.evaluation.cells import Cells
from harness.pipeline.evaluation.progress import Progress
from harness.pipeline.evaluation.rows import averages, called
from harness.pipeline.questions import KINDS, questions
from harness.pipeline.session import Session
from harness.present.messages import worded
from harness.report import html
from harness.report.evaluate import page as evaluate
from harness.snapshot.result import ROWS, UNSOUND, write_json, write_text
from harness.task.ui.work import Stopped

FILE = "jsonl"  # questions of one's own
SETS = (*(kind for kind in KINDS if kind != FILE), FILE)
STOPPING = 5.0  # seconds that a stop waits for the call of the model that is under way
# of one that has ended
TOLD = ("rows", "otherwise", "done", "total", "cells", "unsound", "stopped", "whose")
RARELY = 10  # averages are made at most a tenth of the time


class Evaluation:
    """One at a time. session: the model, only read. model: entered around each of its calls. folder:
    where `evaluate.json`, `answers.jsonl` and `report.html` go once all is answered. ended: called then,
    or when it was stopped.

    `rows`, `total`, `done`, `problem`, `unsound` and `place` say how far it is; `otherwise` what was said
    otherwise than by the whole state: by setting, how many answers, and the first few beside its own. `kept` is
    all that the page shows of one that has ended.
    """

    def __init__(
        self,
        session: Session,
        model: Callable[[], AbstractContextManager[Any]],
        folder: Path,
        ended: Callable[[], None] = lambda: None,
    ):
        self.session, self.model, self.folder, self.ended = session, model, folder, ended
        self.rows: list[dict[str, Any]] = []
        self.otherwise: list[Any] = []
        self.model_name = called(session.cfg.model.name, session.loaded.source)
        self.whose = self.model_name  # the model that was asked
        self.kept: dict[str, Any] | None = None
        self.done, self.total, self.cells = 0, 0, 0
        self.problem: Exception | None = None
        self.unsound: str | None = None  # why its figures count for nothing
        self.place: Path | None = None  # of the report, when all was answered
        self.stopped = False
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(
        self,
        prunes: list[str],
        budgets: list[float],
        quantizers: list[str],
        kind: str,
        path: str = "",
        samples: int = 12,
        per_head: bool = True,
        steps: int = 6,
    ) -> None:
        """Ask the questions of `kind` (`samples` of them, or those of the file `path`) of the whole
        state and of each policy x budget x quantizer. Raises InputProblem for what cannot be asked."""
        if self.running:
            raise InputProblem("an evaluation is running. Stop it first, or wait until it is done.")
        if not prunes and not quantizers:
            raise InputProblem("there is nothing to evaluate. Choose a policy or a quantizer.")
        if prunes and not budgets:
            raise InputProblem("a policy needs a budget. Choose how much of the context it keeps.")
        if kind == FILE and not path.strip():
            raise InputProblem(
                "type the path of your questions first: a file, one JSON object a line."
            )
        lists = {
            "prunes": ["none", *prunes],
            "quantizers": ["none", *quantizers],
            "budgets": budgets or [1.0],
            "asked": ["after"],
        }
        was = self.session.cfg
        ours = was.prune if prunes and was.prune.name in prunes else option("prune", prunes[0] if prunes else "none")  # fmt: skip
        cfg = replace(
            was,
            steps=steps,
            task=option("task", "evaluate", **lists),
            prune=ours if per_head else replace(ours, per_head=False),
            prompt=option("prompt", kind, **({"path": path.strip()} if kind == FILE else {"samples": samples})),
        )  # fmt: skip
        session = replace(self.session, cfg=cfg, times={})
        asking = questions(cfg.prompt, session.loaded.tokenizer)
        cells = Cells(cfg)
        self.rows, self.problem, self.unsound, self.place = [], None, None, None
        self.otherwise, self.kept = [], None
        self.done, self.total, self.cells, self.stopped = 0, len(asking), len(cells.every), False
        self._end.clear()
        self._thread = threading.Thread(
            target=self._run, args=(session, cells, asking), daemon=True
        )
        self._thread.start()

    def halt(self) -> None:
        """Ask it to end after the call of the model that is under way; what was answered stays."""
        self._end.set()

    def stop(self) -> None:
        """End it after that call."""
        self.halt()
        if self._thread is not None:
            self._thread.join(STOPPING)

    def _run(self, session: Session, cells: Cells, asking: list[Any]) -> None:
        cfg = session.cfg
        try:
            with self._turn():
                plain = soundness(session, asking[0], "after")
            self.unsound = None if plain.sound else worded(plain.reason)
            progress = Progress(cfg.runs_dir, identity(session, cells, asking))
            due = 0.0
            for _ in ask(session, cells, [cfg.cache], asking, progress, self._turn):
                self.done += 1
                if (began := time.monotonic()) >= due or self.done == self.total:
                    self._average(cfg, progress, asking)
                    due = time.monotonic() + RARELY * (time.monotonic() - began)
            self._write(progress, asking, plain.document())
        except Stopped:
            self.stopped = True
        except Exception as problem:
            self.problem = problem
        if self.rows:
            told = {key: getattr(self, key) for key in TOLD}
            self.kept = told | {"place": str(self.place) if self.place else None}
        self.ended()

    def take_up(self, kept: Any) -> None:
        """Show again what was `kept` of an evaluation, by an earlier server."""
        try:
            told = {key: kept[key] for key in TOLD}
            evaluate.conclusion(told["rows"])
            told["otherwise"] = [
                (cell, int(many), [(said, whole) for said, whole in some])
                for cell, many, some in told["otherwise"]
            ]
            place = Path(kept["place"]) if kept["place"] else None
        except (KeyError, TypeError, ValueError, AttributeError):
            return
        vars(self).update(told, kept=kept, place=place)

    @property
    def report(self) -> str | None:
        """Where the report is on the server, as `server.serving` answers for it; None where it does not."""
        place = self.place
        if place is None or place.parent.parent != self.folder.parent or not place.is_dir():
            return None
        return f"reports/{place.parent.name}/{place.name}"

    def _average(self, cfg: Config, progress: Progress, asking: list[Any]) -> None:
        answered = dict(progress.answered)
        self.whose = self.model_name
        self.rows = averages(self.whose, cfg.prompt.name, list(answered.values()))
        self.otherwise = otherwise(answered, asking)

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self._end.is_set():
            raise Stopped
        with self.model():
            yield

    def _write(self, progress: Progress, asking: list[Any], plain: dict[str, Any]) -> None:
        """What `task=evaluate` leaves, in a folder of its own; the answers are no longer kept apart."""
        many = len(list(self.folder.glob("evaluation-*")))
        place = self.folder / f"evaluation-{many + 1}-{progress.key[:8]}"
        place.mkdir(mode=0o700)
        verdict = UNSOUND if self.unsound else ""  # nothing else here is a verdict
        said = self.unsound or evaluate.conclusion(self.rows)
        sections = evaluate.sections(self.rows, progress.answered, asking, plain)
        own = [] if verdict else html.pills(sections)
        write_text(
            place / "report.html", html.page("Evaluation", sections, verdict, said, pills=own)
        )
        write_json(place / ROWS, self.rows)
        progress.write(place, asking)
        progress.end()
        self.place = place


def otherwise(answered: dict[str, list[dict[str, Any]]], asking: list[Any]) -> list[Any]:
    """By setting: what it is called, how many answers are not the whole state's, and the first few of them
    beside its own."""
    return [
        [cell, len(every), [[said["text"], whole["text"]] for *_, said, whole, _ in every[: evaluate.BEST]]]
        for cell, every in evaluate.changed(answered, asking).items()
    ]  # fmt: skip
