"""An evaluation in a thread of its own: the same questions asked of the whole state and of every chosen
setting, between the acts of the people at the page."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.config import option
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
STOPPING = 5.0  # seconds that a stop waits for the model's current call
RARELY = 10  # averages take at most a tenth of the time


class Evaluation:
    """One at a time. session: the model, only read. model: entered around each of its calls. folder:
    where the report goes once all is answered, at `place`."""

    def __init__(
        self, session: Session, model: Callable[[], AbstractContextManager[Any]], folder: Path
    ):
        self.session, self.model, self.folder = session, model, folder
        self.model_name = called(session.cfg.model.name, session.loaded.source)
        self._end = threading.Event()
        self._thread: threading.Thread | None = None
        self._reset(0, 0)

    def _reset(self, total: int, cells: int) -> None:
        self.rows: list[dict[str, Any]] = []
        self.done, self.total, self.cells = 0, total, cells
        self.problem: Exception | None = None
        self.unsound: str | None = None  # why the figures are worthless
        self.place: Path | None = None
        self.stopped = False
        self._end.clear()

    @property
    def running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def start(
        self, prunes: list[str], budgets: list[float], quantizers: list[str], kind: str, path: str = "",
        samples: int = 12, per_head: bool = True, steps: int = 6,
    ) -> None:  # fmt: skip
        """Ask `samples` questions of `kind` (or those of the file `path`) of the whole state and of each
        policy x budget x quantizer."""
        if self.running:
            raise InputProblem("an evaluation is running. Stop it first, or wait until it is done.")
        if not prunes and not quantizers:
            raise InputProblem("there is nothing to evaluate. Choose a policy or a quantizer.")
        if prunes and not budgets:
            raise InputProblem("a policy needs a budget. Choose how much of the context it keeps.")
        if kind == FILE and not path.strip():
            raise InputProblem("type the path of your questions: a file, one JSON object a line.")
        lists = {
            "prunes": ["none", *prunes],
            "quantizers": ["none", *quantizers],
            "budgets": budgets or [1.0],
            "asked": ["after"],
        }
        base = self.session.cfg
        prune = (
            base.prune if base.prune.name in prunes else option("prune", (prunes or ["none"])[0])
        )
        asked = {"path": path.strip()} if kind == FILE else {"samples": samples}
        cfg = replace(
            base,
            steps=steps,
            task=option("task", "evaluate", **lists),
            prune=prune if per_head else replace(prune, per_head=False),
            prompt=option("prompt", kind, **asked),
        )
        session = replace(self.session, cfg=cfg, times={})
        asking, cells = questions(cfg.prompt, session.loaded.tokenizer), Cells(cfg)
        self._reset(len(asking), len(cells.every))
        given = session, cells, asking
        self._thread = threading.Thread(target=self._run, args=given, daemon=True)
        self._thread.start()

    def halt(self) -> None:
        """Ask it to end after the model's current call; what was answered stays."""
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
                    answered = list(dict(progress.answered).values())
                    self.rows = averages(self.model_name, cfg.prompt.name, answered)
                    due = time.monotonic() + RARELY * (time.monotonic() - began)
            self._write(progress, asking, plain.document())
        except Stopped:
            self.stopped = True
        except Exception as problem:
            self.problem = problem

    @property
    def report(self) -> str | None:
        """The report's path on the server, or None."""
        place = self.place
        return f"reports/{place.parent.name}/{place.name}" if place else None

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self._end.is_set():
            raise Stopped
        with self.model():
            yield

    def _write(self, progress: Progress, asking: list[Any], plain: dict[str, Any]) -> None:
        """The files of `task=evaluate`, in a folder of its own."""
        many = len(list(self.folder.glob("evaluation-*")))
        place = self.folder / f"evaluation-{many + 1}-{progress.key[:8]}"
        place.mkdir(mode=0o700)
        verdict = UNSOUND if self.unsound else ""
        headline = self.unsound or evaluate.conclusion(self.rows)
        sections = evaluate.sections(self.rows, progress.answered, asking, plain)
        pills = [] if verdict else html.pills(sections)
        text = html.page("Evaluation", sections, verdict, headline, pills=pills)
        write_text(place / "report.html", text)
        write_json(place / ROWS, self.rows)
        progress.write(place, asking)
        progress.end()
        self.place = place
