"""Rows of sweeps made by hand, and their facts."""

from pathlib import Path
from typing import Any

from harness.results.sweep import Sweep, sweep_of

ROW = {
    "point": "0", "verdict": "diverged", "outcome": "diverged", "exit_code": 0, "reason": "step 2 chooses another token",
    "task": "experiment", "sampling": "greedy", "prune": "snapkv", "prune.ratio": "0.25", "quantize": "none",
    "restore": "equivalent", "kl_mean": 0.13, "kl_max": 1.0, "max_abs_diff": 2.0, "top1_agreement": 0.5,
    "error_ratio": 3.8e5, "tokens": 97, "kept_tokens": 24, "kv_bytes": 900, "stored_bytes": 140_796,
    "per_token_s": 0.1, "save_s": 0.9, "load_s": 0.3, "mutated": False, "folder": "runs/s/0",
}  # fmt: skip
EXACT = {"verdict": "exact", "outcome": "exact", "kl_mean": 0.0, "max_abs_diff": 0.0, "prune": "none",
         "kept_tokens": 97, "restore": "exact", "first_divergence_from_1": None}  # fmt: skip


def rows(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    made = [
        {**ROW, "point": str(i), "folder": f"runs/s/{i}", **change}
        for i, change in enumerate(changes)
    ]
    columns = dict.fromkeys(key for row in made for key in row)
    return [{key: row.get(key) for key in columns} for row in made]


def facts(
    *changes: dict[str, Any], asked: int | None = None, folder: Path = Path("nowhere")
) -> Sweep:
    return sweep_of(folder, rows(*changes), asked)
