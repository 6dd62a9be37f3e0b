"""`task=evaluate`: what pruning and quantizing cost in what matters, on any model and any prompts.

Every prompt is read once; every cell (policy x budget x quantizer) makes its own of that State; every
cache answers from it. The full cache is always a cell, and every other one is compared with it prompt
by prompt. Once per model the yardstick is asked whether the path that fills the cells is sound.
"""

from functools import partial
from pathlib import Path

from harness import machine, variants
from harness.cache.registry import check as check_caches
from harness.config import CacheConfig, Config, sibling
from harness.config.option import NAMES, shared
from harness.errors import ConfigProblem
from harness.pipeline.evaluation import ask, identity
from harness.pipeline.evaluation.answers import around, soundness
from harness.pipeline.evaluation.cells import Cells
from harness.pipeline.evaluation.progress import Progress
from harness.pipeline.evaluation.rows import averages, called
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.questions import check_kind, questions
from harness.pipeline.session import Session
from harness.progress import over
from harness.report.terminal.console import Say
from harness.snapshot.cells import code
from harness.snapshot.manifest import model_rows
from harness.snapshot.result import UNJUDGED, UNSOUND


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Writes evaluate.json (one row per cell and measure with its interval), answers.jsonl (every
    answer as it was said), questions.jsonl (what was asked), result.json and report.html. Goes on
    where an equal evaluation was stopped.
    """
    check_choice(cfg)
    cells = Cells(cfg)
    caches = cached(cfg)
    check_kind(cfg.prompt)
    asking = questions(cfg.prompt, None) if cfg.prompt.name == "jsonl" else None  # before the model
    session = Session.open(cfg, folder, say)
    if asking is None:
        asking = questions(cfg.prompt, session.loaded.tokenizer)
    say.stage("is the plain path sound?")
    plain = soundness(session, asking[0], cfg.task.asked[0])
    say.done("sound" if plain.sound else "unsound")
    progress = Progress(cfg.runs_dir, identity(session, cells, asking))
    before = len(progress.answered)
    say.kept = partial(progress.kept, len(asking), cfg.task.asked)
    many = len(cells.every)
    say.stage(f"{machine.many(len(asking), 'prompt')}, {machine.many(many, 'cell')}")
    for _ in over(ask(session, cells, caches, asking, progress), "prompts", len(asking)):
        pass
    say.done(f"{before} {'was' if before == 1 else 'were'} answered before" if before else "")
    model = model_rows(session.documents)
    name = called(cfg.model.name, session.loaded.source)
    rows = averages(name, cfg.prompt.name, list(progress.answered.values()))
    progress.write(folder, asking)
    from harness.report.evaluate import page as evaluate

    served = {"cache": {"served": ", ".join(sorted(cells.served))}} if cells.served else {}
    done = {
        "code": code(rows),
        "questions": len(asking),
        "cells": len(cells.every),
        "resumed": before,
        "around": around(session, asking[0]),
    }
    outcome = finish_table(
        session,
        "evaluate",
        rows,
        evaluate.sections(rows, progress.answered, asking, plain.document()),
        UNJUDGED if plain.sound else UNSOUND,
        evaluate.conclusion(rows) if plain.sound else plain.reason,
        list(evaluate.SHOWN),
        children=evaluate.children(rows),
        record={**served, "evaluation": done, "soundness": plain.document(), "elements": model},
        shown_rows=evaluate.shown(rows),
    )
    progress.end()
    if said := evaluate.surprised(rows):
        say.line(f"note: {said}")
    return outcome


def check_choice(cfg: Config) -> None:
    """Raise ConfigProblem where `prune=` or `quantize=` chooses what no cell would heed: the lists of the
    task choose the cells, an option there brings its own keys to the cells of its name."""
    for group, key in (("prune", "prunes"), ("quantize", "quantizers")):
        settings, names = getattr(cfg, group), getattr(cfg.task, key)
        name, cells = cfg.called.get(group, settings.name), [n for n in names if n != "none"]
        if name == "none":
            continue
        budget = {k: getattr(settings, k) for k in ("ratio", "tokens") if hasattr(settings, k)}
        usual = shared(group) | variants.signature(group, name)
        chosen = {k: v for k, v in usual.items() if k not in (*NAMES, *budget)}
        plain = all(getattr(settings, key, value) == value for key, value in chosen.items())
        if name not in cells or (plain and cells != [name]):
            raise ConfigProblem(
                f"{group}={name} is not what task=evaluate runs: its cells are task.{key}. Write "
                f"'task.{key}=[{name}]'. {group}={name} beside it only brings its keys, {group}.KEY=VALUE."
            )
        for budget_key, value in budget.items():
            if value not in (usual.get(budget_key), *cfg.task.budgets):
                raise ConfigProblem(
                    f"{group}.{budget_key}={value} is not read by task=evaluate: its budgets are shares of "
                    "the context. Write 'task.budgets=[0.1,0.5]'."
                )


def cached(cfg: Config) -> list[CacheConfig]:
    """The caches that answer: those of `task.caches`, or the one that `cache=` chose."""
    check_caches("task.caches", cfg.task.caches)
    names = dict.fromkeys(cfg.task.caches)  # one named twice would count every answer twice
    return [sibling("cache", cfg, name) for name in names] or [cfg.cache]
