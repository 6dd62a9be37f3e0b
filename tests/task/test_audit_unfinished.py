"""What a sweep that was stopped did not come to is named as not compared, and what was taken from it is missed."""

import shutil

from audited import store_of

from harness.task import audit
from harness.task.audit import copies, server, unfinished
from harness.track import parent


def test_what_a_sweep_did_not_come_to_claims_nothing_and_what_was_taken_from_it_is_missed(
    above, swept, tmp_path
):
    cfg, left = above[0], {}
    sweep = shutil.copytree(swept, tmp_path / "sweep")
    (sweep / "9" / ".hydra").mkdir(parents=True)  # Ctrl-C
    every = audit._points(sweep)
    assert unfinished.points(cfg, sweep, every, left) == every[:-1]
    assert left == {"1 point without a result (9)": unfinished.WHY}
    for name in ("result.json", "record.json"):
        (sweep / "0" / name).unlink()
    assert unfinished.points(cfg, sweep, every, {}) == every[:-1], "the table was sealed with it"
    for name in unfinished.CONCLUDED:
        (sweep / name).unlink()
    assert unfinished.concluded(cfg, sweep, left) and len(left) == 1, "the store has copies of them"
    assert not unfinished.concluded(store_of(tmp_path / "other")[0], sweep, left)  # kill -9
    assert left["its table and page"] == unfinished.WHY


def test_a_sweep_that_was_stopped_says_which_of_its_points_never_ran(above, swept, tmp_path):
    """And that its own run had no files by then, not that there are none of its points; a point that the store
    knows was taken away."""
    sweep, left, seen = shutil.copytree(swept, tmp_path / "sweep"), {}, server.Seen()
    for name in unfinished.CONCLUDED:
        (sweep / name).unlink()
    every = audit._points(sweep)
    parent.keep(sweep, {**parent.known(sweep), "asked": len(every) + 2})
    assert unfinished.points(above[0], sweep, every, left) == every
    (told,), n = left, len(every)
    assert told == f"2 of {n + 2} points ({n} and {n + 1} never ran)"
    folder = str(sweep / str(n))
    above[1].create_run("1", tags={"folder": folder, "record": "0" * 64})
    assert [*unfinished.points(above[0], sweep, every, {})][n:] == [sweep / str(n)]
    run_id = above[1].create_run("1").info.run_id
    assert not [*copies.of_sweep(above[0], run_id, sweep, seen)]
    assert [*seen.left] == [f"{copies.OWN} (it was stopped before it had any)"]
    assert not [*copies.of_run(above[0], run_id, every[0], seen)]
    assert [*seen.left][1:] == [copies.SOME], "not of all the others, which were compared"
