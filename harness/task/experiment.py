"""The main job: capture, prune, quantize, save, load, restore, continue, and judge against a run that was
never interrupted."""

from pathlib import Path

from harness.config import Config
from harness.fault.registry import fault_named
from harness.pipeline.finish import Outcome
from harness.pipeline.line import Line
from harness.pipeline.refusal import purposely
from harness.report.terminal.console import Say


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """One experiment; writes the run directory and returns its outcome."""
    line = Line.open(cfg, folder, say, fault_named(cfg.fault))
    state = line.capture(steps=cfg.steps)
    with purposely(cfg.fault.name):
        stored = line.save(line.quantize(line.prune(state)))
        restored = line.restore(stored)
    return line.finish(line.judge(restored, state))
