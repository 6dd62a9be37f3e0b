"""Rows of a sweep made by hand, and the page that is drawn from them."""

import json
import re
from pathlib import Path

from harness.report.sweep import page as sweep

ROW = {
    "point": "0", "verdict": "diverged", "exit_code": 0, "reason": "step 2 chooses another token",
    "prune": "snapkv", "prune.ratio": "0.5", "kl_max": 1.0, "max_abs_diff": 2.0, "error_ratio": 3.0,
    "noise_kl_max": 1e-12, "kept_tokens": 40, "stored_bytes": 1000, "per_token_s": 0.1,
    "save_s": 0.2, "load_s": 0.3,
}  # fmt: skip


def points(*changes: dict) -> list[dict]:
    return [{**ROW, "point": str(i), **change} for i, change in enumerate(changes)]


def drawn(folder: Path, rows: list[dict]) -> str:
    sweep.write(folder, rows, len(rows))
    return (folder / "sweep.html").read_text()


def marked(page: str) -> list[str]:
    return re.findall(
        r'<td[^>]* class="\w+ best(?: nearest)?">[^<]*(?:<i[^<]*</i>)?\s*<a href="(\d+)/', page
    )


LITERAL = "text='${literal:\"IGxldCBrIGJlIDUgLg==\"}'"


def asked(folder: Path, *overrides: str) -> Path:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text(json.dumps(overrides))
    return folder
