"""A family through the front door: a folder like a user's, saved, restored, continued and judged.

Nothing is set for it here: `model=path`, and what the command line would choose by default.
"""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from harness.config import Config, ModelConfig
from harness.errors import HarnessError
from harness.model.build import build
from harness.pipeline.line import Line
from harness.present.messages import worded
from harness.report.terminal.console import Say

TEXT = "let k be 5 . the bird sang in the tree . the man put the stone by the bank . what is k ?"
MORE = torch.tensor([[11, 12, 13]])  # three ids at once, then token by token
STEPS = 6
FAILED, NOT_HERE = "failed", "unsupported"


@dataclass(frozen=True)
class Passage:
    """How far it came. save, resume: `done`, `refused`, `failed` or `unsupported` (by the library);
    verdict: the judge's, or the same. reason: of the verdict, or of what ended it. ratio: error over
    the plain path's."""

    save: str
    resume: str
    verdict: str
    reason: str
    ratio: float | None = None


def through(kind: str, values: dict[str, Any], cfg: Config, place: Path) -> Passage:
    """Build the random family, save it below `place` as a user's model lies there (`place/model`), take
    it from there and bring a thought of it through save, restore and verdict."""
    settings = ModelConfig(
        kind, architecture=kind, config=values, tokenizer=cfg.model.tokenizer, seed=cfg.seed
    )
    try:
        model, tokenizer, *_ = build(settings, torch.float32, torch.device("cpu"))
        model.save_pretrained(place / "model")
        tokenizer.save_pretrained(place / "model")
    except Exception as problem:  # whatever a library raises: it has no such model here
        return Passage(NOT_HERE, NOT_HERE, NOT_HERE, first_line(problem))
    return passed(replace(cfg, model=ModelConfig("path", path=str(place / "model"))), place)


def passed(cfg: Config, place: Path) -> Passage:
    """The thought of one model that `cfg` names by its folder; see `through`."""
    cfg = replace(cfg, text=TEXT, steps=STEPS, snapshot=None, out=None)
    save = resume = "refused"
    try:
        line = Line.open(cfg, place, Say(quiet=True))
        state = line.capture(steps=STEPS + MORE.shape[1])
        stored = line.save(state)
        save = "done"
        restored = line.restore(stored)
        reference = line.uninterrupted(state, MORE)
        _, path = line.go_on(restored, MORE, follow=reference.fed)
        resume = "done"
        judgement = line.verdict(state, reference, path, restored)
    except HarnessError as problem:
        return Passage(save, resume, "refused", first_line(problem))
    except Exception as problem:  # a crash, and said so
        save, resume = (FAILED if step == "refused" else step for step in (save, resume))
        return Passage(save, resume, FAILED, f"{type(problem).__name__}: {first_line(problem)}")
    cache, ratio = line.record["cache"]["served"], judgement.oracle["ratio"]
    reason = f"cache {cache}: {worded(judgement.reason, plain=True)}"
    return Passage(save, resume, judgement.verdict, reason, ratio)


def first_line(problem: Exception) -> str:
    """The first sentence of what went wrong."""
    text = str(problem).strip() or type(problem).__name__
    return text.splitlines()[0][:240]
