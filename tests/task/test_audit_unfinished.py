"""What a sweep that was stopped did not come to is named as not compared, and what was taken from a finished one is missed."""

import shutil

from harness.task.audit import sweep


def test_what_a_sweep_did_not_come_to_claims_nothing_and_what_was_taken_from_it_is_missed(
    swept, tmp_path
):
    folder, left = shutil.copytree(swept, tmp_path / "sweep"), {}
    (folder / "9" / ".hydra").mkdir(parents=True)  # Ctrl-C
    every = sweep.folders(folder)
    assert sweep.points(folder, left) == every[:-1]
    assert left == {"1 points without a result: 9": "stopped before"}
    for name in ("result.json", "record.json"):
        (folder / "0" / name).unlink()
    assert every[0] in sweep.points(folder, {}), "the table was sealed with it"
    named = [f.what for f in sweep.summary(folder, every[:-1])]
    assert named[:2] == ["sweep.json: finished", "sweep.json: records"]
    shutil.rmtree(folder / "0")
    assert every[0] in sweep.points(folder, {}), "and where nothing of it is left"


def test_a_sweep_that_was_killed_is_audited_as_far_as_it_came(swept, tmp_path):
    folder, left = shutil.copytree(swept, tmp_path / "sweep"), {}
    for name in (sweep.TABLE, sweep.RECORD, "sweep.html"):
        (folder / name).unlink()
    assert sweep.points(folder, left) == sweep.folders(folder)
    assert [*left] == ["its tables"] and list(sweep.summary(folder, sweep.folders(folder))) == []
