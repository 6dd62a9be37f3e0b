"""The committed reference records are whole; `make audit` also runs them again."""

from pathlib import Path

import pytest

from harness.task.audit import evidence, sweep

REFERENCE = Path(__file__).resolve().parents[2] / "runs" / "reference"
POINTS = sweep.folders(REFERENCE)


@pytest.mark.parametrize("point", POINTS, ids=lambda p: p.name)
def test_reference_records_are_as_they_were_sealed(point, compose, monkeypatch):
    monkeypatch.chdir(REFERENCE.parents[1])
    cfg = compose("task=audit", "track=none", "runs_dir=nowhere")
    assert list(evidence.verified(point, cfg)) == []


def test_there_are_reference_records_and_their_table_says_what_they_say():
    assert len(POINTS) == 8 and list(sweep.summary(REFERENCE, POINTS)) == []


@pytest.mark.slow
def test_make_audit(shell, tmp_path):
    done = shell("task=audit", "run=runs/reference", f"runs_dir={tmp_path}", "track=none")
    assert done.returncode == 0 and "SAME" in done.stdout, done.stdout
