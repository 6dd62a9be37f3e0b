"""`task=evaluate`: what pruning and quantizing cost in what matters, on any model and any prompts.

Every prompt is read once; every cell (policy x budget x quantizer) makes its own of that State; every
cache answers from it. The full cache is always a cell, and every other one is compared with it prompt
by prompt. Once per model the yardstick is asked whether the path that fills the cells is sound.
"""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness.cache.registry import check as check_caches
from harness.config import CacheConfig, Config, sibling
from harness.errors import UnsupportedModel
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.questions import questions
from harness.pipeline.session import Session
from harness.progress import over
from harness.report.console import Say
from harness.snapshot.result import UNJUDGED, UNSOUND
from harness.task.evaluate.answers import TIMED, answers, soundness
from harness.task.evaluate.cells import Cells
from harness.task.evaluate.progress import Progress
from harness.task.evaluate.rows import averages


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Writes evaluate.json (one row per cell and measure with its interval), answers.jsonl (every
    answer as it was said), result.json and report.html. Goes on where an equal evaluation was stopped.
    """
    cells = Cells(cfg)
    caches = cached(cfg)
    asking = questions(cfg.prompt, None) if cfg.prompt.name == "jsonl" else None  # before the model
    session = Session.open(cfg, folder, say)
    if asking is None:
        asking = questions(cfg.prompt, session.loaded.tokenizer)
    say.stage("is the plain path sound?")
    plain = soundness(session, asking[0], cfg.task.asked[0])
    say.done("sound" if plain.sound else "unsound")
    progress = Progress(cfg.runs_dir, identity(session, cells, asking))
    before = len(progress.answered)
    say.stage(f"{len(asking)} prompts, {len(cells.every)} cells")
    for number, question in over(enumerate(asking), "prompts", len(asking)):
        for when in cfg.task.asked:
            name = f"{number}/{when}"
            if name not in progress.answered:
                timed = number < TIMED
                progress.add(name, [*answers(session, cells, question, when, caches, timed)])
    say.done(f"{before} were answered before" if before else "")
    rows = averages(cfg.model.name, cfg.prompt.name, list(progress.answered.values()))
    progress.write(folder)
    from harness.report import evaluate

    size = {"questions": len(asking), "cells": len(cells.every), "resumed": before}
    outcome = finish_table(
        session,
        "evaluate",
        rows,
        evaluate.sections(rows, progress.answered, plain.document()),
        UNJUDGED if plain.sound else UNSOUND,
        evaluate.conclusion(rows) if plain.sound else plain.reason,
        list(evaluate.SHOWN),
        children=evaluate.children(rows),
        record={"evaluation": size, "soundness": plain.document()},
        shown_rows=evaluate.shown(rows),
    )
    progress.end()
    return outcome


def cached(cfg: Config) -> list[CacheConfig]:
    """The caches that answer: those of `task.caches`, or the one that `cache=` chose."""
    check_caches("task.caches", cfg.task.caches)
    return [sibling("cache", cfg.cache, name) for name in cfg.task.caches] or [cfg.cache]


def identity(session: Session, cells: Cells, asking: list[Any]) -> Any:
    """Everything that an answer depends on, JSON-able. Raises UnsupportedModel without a tokenizer."""
    cfg = session.cfg
    if session.loaded.tokenizer is None:
        raise UnsupportedModel("task=evaluate needs a tokenizer. Give model.tokenizer=DIR.")
    values = asdict(cfg)
    chosen = ("dtype", "steps", "task", "tokenizer", "prune", "quantize", "cache")
    return [
        session.documents,
        {key: values[key] for key in chosen},
        [vars(question) for question in asking],
        [cell.row() for cell in cells.every],
        str(session.loaded.device),
    ]
