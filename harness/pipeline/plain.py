"""The end of a task that loads no model: `result.json`, `report.html`, the exit code."""

import sys
from pathlib import Path
from typing import Any

from harness.compare.conclusion import conclusion
from harness.pipeline.environment import environment
from harness.pipeline.finish import Outcome, options, shown
from harness.report import html
from harness.snapshot.result import SCHEMA, write_json, write_text


def finish(
    cfg: Any, folder: Path, record: dict[str, Any], sections: list[dict[str, Any]], code: int
) -> Outcome:
    """Write `record` (with `verdict` and `reason`) and a page of `sections`; return the Outcome."""
    result = {
        "schema": SCHEMA,
        "task": cfg.task.name,
        **record,
        "conclusion": conclusion(record),
        "environment": environment(cfg, "none", "none"),
        "mlflow": None,
        "options": options(cfg),
        "folder": shown(folder),
    }
    title = f"{cfg.task.name} {cfg.snapshot or ''}".strip()
    page = html.page(title, sections, record["verdict"] or "", record["reason"], code == 0)
    write_text(folder / "report.html", page)
    write_json(folder / "result.json", result)
    return Outcome(code, record["verdict"] or "", str(folder), record["reason"])


def model_given() -> bool:
    """Whether the command line chose a model, so that loading one is wanted."""
    return any(a.lstrip("+").startswith(("model=", "model.")) for a in sys.argv[1:])
