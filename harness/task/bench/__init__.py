"""`task=bench`: decode steps of every cache; `task=restore_bench`: restores; `task=format_bench`: save formats."""

from pathlib import Path

from harness.config import Config
from harness.pipeline.finish import Outcome
from harness.report.terminal.console import Say


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Rows in `bench.json`, one page."""
    from harness.task.bench import decode, formats, restore

    tasks = {"bench": decode, "restore_bench": restore, "format_bench": formats}
    return tasks[cfg.task.name].run(cfg, folder, say)
