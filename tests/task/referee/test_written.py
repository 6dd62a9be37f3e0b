"""What the page of the engines says that the named command finds is what it finds."""

import json
import re
from pathlib import Path

import pytest

from harness import engine

PAGE = Path(engine.__file__).with_name("README.md")


@pytest.mark.parametrize("model", ["tiny", "tiny_gemma3"])
def test_what_is_wrong_is_as_wrong_as_it_is_written(harness, model: str) -> None:
    """Beyond rounding, so that another machine finds the same; no other figure of the table is."""
    text = PAGE.read_text("utf-8")
    if model == "tiny":
        row = re.search(r"\| `generate_whole`, `generate_twice` \| ([\d.]+), ([\d.]+) \|", text)
        written = list(map(float, row.groups())) if row else []
    else:
        (each,) = re.findall(r"in the same two \(([\d.]+) each\)", text)
        written = [float(each)] * 2
    done = harness("experiment=referee_library", f"model={model}", "task.cases=[generate_whole,generate_twice]")  # fmt: skip
    assert done.code == 1, done.out
    rows = json.loads((done.folders[0] / "referee.json").read_text())
    found = [row["max_abs_diff"] for row in rows if row["case"].startswith("generate")]
    assert found == pytest.approx(written, rel=0.06)
