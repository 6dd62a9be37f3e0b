"""Mistakes on the command line that a file or a folder explains: one message that names it."""

from pathlib import Path

import pytest

YAMLS = {
    "group": ("override /dtpe: x", "names a group 'dtpe', which there is not. Did you mean 'dtype'?"),
    "new": ("/dtpe: x", "names a group 'dtpe', which there is not. Did you mean 'dtype'?"),
    "near": ("override /cahe: manual", "names a group 'cahe', which there is not. Did you mean 'cache'?"),
    "option": ("override /cache: manul", "'manul' is not an option of cache. Did you mean 'manual'?"),
}  # fmt: skip


@pytest.mark.parametrize("name", YAMLS)
def test_an_experiment_that_names_what_is_not_there_is_told_so(harness, place: Path, name) -> None:
    entry, says = YAMLS[name]
    path = place / "mine" / "experiment" / f"{name}.yaml"
    path.parent.mkdir(parents=True)
    path.write_text(f"# @package _global_\ndefaults:\n  - {entry}\n")
    done = harness("--config-dir", "mine", f"experiment={name}")
    assert done.code == 2 and says in done.out and f"mine/experiment/{name}.yaml" in done.out
    assert "is not an option of experiment" not in done.out
