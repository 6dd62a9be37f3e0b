"""A sweep of evaluations over seeds: what each cell answers over all of their prompts."""

import json
from pathlib import Path

from sweeps import drawn, points
from test_sweep_page import evaluated

from harness.report.sweep import pooled
from harness.snapshot.result import ROWS


def test_every_cell_is_told_over_all_prompts_with_the_seeds_that_have_fewest_and_most(
    tmp_path: Path,
):
    rows = points({"prompt.seed": "1", "outcome": "done"}, {"prompt.seed": "2", "outcome": "done"})
    evaluated(tmp_path, "0", 1.0, 1.0, 0.0)
    assert not pooled.sections(tmp_path, rows, ["prompt.seed"]), "one alone"
    evaluated(tmp_path, "1", 1.0, 1.0, 0.0)
    assert not pooled.sections(tmp_path, rows, ["prompt.seed"]), "the same prompts twice"
    table = json.loads((tmp_path / "1" / ROWS).read_text())
    for row in table:
        row["n"] *= 3
        if row["prune"] == "random" and row["budget"] == 0.25:
            row["value"] = 0.5
    (tmp_path / "1" / ROWS).write_text(json.dumps(table))
    (block,) = pooled.sections(tmp_path, rows, ["prompt.seed"])
    few = table[0]["n"] // 3
    (line,) = [line for line in block["rows"] if line[0] == "random 25%"]
    assert line[1] == f"{few + round(0.5 * 3 * few)} of {4 * few}"
    assert line[3:5] == [50, 100] and 50 < line[2] < 100
    assert len(block["panels"]) == 1 and "random 25%" in drawn(tmp_path, rows)
    assert not pooled.sections(tmp_path, rows, ["outcome"]), "no seed was varied"
