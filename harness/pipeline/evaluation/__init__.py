"""An evaluation: cells (policy x budget x quantizer) that are asked the same questions, and how far each
one's answers lie from the full cache's."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

from harness.config import CacheConfig
from harness.errors import UnsupportedModel
from harness.pipeline.evaluation.answers import TIMED, answers
from harness.pipeline.evaluation.cells import Cells
from harness.pipeline.evaluation.progress import Progress
from harness.pipeline.questions.question import Question
from harness.pipeline.session import Session


def ask(
    session: Session,
    cells: Cells,
    caches: list[CacheConfig],
    asking: list[Question],
    progress: Progress,
    turn: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Iterator[Question]:
    """Ask every cell each of `asking` that is not yet in `progress`, which keeps the answers; yields a
    question once it is answered. turn: entered around each call of the model."""
    for number, question in enumerate(asking):
        for when in session.cfg.task.asked:
            if (name := f"{number}/{when}") not in progress.answered:
                said = []
                coming = answers(session, cells, question, when, caches, number < TIMED)
                while True:
                    with turn():
                        if (answer := next(coming, None)) is None:
                            break
                    said.append(answer)
                progress.add(name, said)
        yield question


def identity(session: Session, cells: Cells, asking: list[Question]) -> Any:
    """Everything that an answer depends on, JSON-able. Raises UnsupportedModel without a tokenizer."""
    cfg = session.cfg
    if session.loaded.tokenizer is None:
        raise UnsupportedModel("task=evaluate needs a tokenizer. Give model.tokenizer=DIR.")
    values = asdict(cfg)
    chosen = ("dtype", "steps", "task", "tokenizer", "prune", "quantize", "cache")
    where = {k: v for k, v in session.environment().items() if k not in ("command", "date", "git")}
    return [
        session.documents,
        {key: values[key] for key in chosen},
        [vars(question) for question in asking],
        [cell.row() for cell in cells.every],
        where,
        cells.sources(),
    ]
