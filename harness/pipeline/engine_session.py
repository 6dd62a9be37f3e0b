"""A job whose model is somebody else's: what a task ends with, without a model of ours."""

from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from harness.config import Config
from harness.pipeline.environment import environment
from harness.report.terminal.console import Say


@dataclass
class Outside:
    """In place of a Session where no model is loaded. source: what stands in the record's `model`."""

    cfg: Config
    folder: Path
    say: Say
    source: dict[str, Any]
    times: dict[str, float] = field(default_factory=dict)

    @property
    def loaded(self) -> Any:
        return SimpleNamespace(source=self.source)

    def environment(self) -> dict[str, Any]:
        return environment(self.cfg, "outside", "outside")
