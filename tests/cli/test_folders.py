"""Where runs and sweeps are written: nothing is written over, and nothing is taken for what it is not."""

from pathlib import Path

import pytest


@pytest.mark.parametrize(
    "subdir", ["s${seed}", "p${hydra.job.num}_${seed}", "${hydra.job.override_dirname}"]
)
def test_points_are_called_as_in_any_hydra_app(harness, subdir: str) -> None:
    done = harness("-m", "task=save", "seed=1,2", f"hydra.sweep.subdir={subdir}")
    called = {
        "s${seed}": ["s1", "s2"],
        "p${hydra.job.num}_${seed}": ["p0_1", "p1_2"],
        "${hydra.job.override_dirname}": [f"seed={i},task=save,track=none" for i in (1, 2)],
    }[subdir]
    assert done.code == 0 and [f.name for f in done.folders] == called, done.out


def test_a_point_of_a_search_is_not_written_over_another(harness) -> None:
    """Which only the points tell: nobody knows them before."""
    search = ["hydra/sweeper=optuna", "hydra.sweeper.n_trials=4", "hydra.sweeper.sampler.seed=1"]
    figures = ["report.objectives=[size.kv_bytes]", "hydra.sweeper.direction=minimize"]
    done = harness("-m", "task=save", *search, *figures, "seed=1,2,3,4", "hydra.sweep.subdir=same")
    assert done.code == 2 and "holds the record of another run" in done.out, done.out
    assert len(done.folders) == 1 and "[2/4]" not in done.out


def test_a_point_that_a_worker_finds_written_otherwise_is_left(harness, place: Path) -> None:
    """A sweep that was typed alike, whose sampler draws otherwise."""
    words = ["-m", "task=save", "hydra.sweep.dir=runs/s", "seed=1"]
    assert harness(*words).code == 0
    point = place / "runs" / "s" / "0"
    record = (point / "record.json").read_bytes()
    (point / ".hydra" / "overrides.yaml").write_text("- task=save\n- seed=7\n")
    (point / "record.json").write_bytes(record.replace(b'"seed": 1', b'"seed": 7'))
    before = (point / "result.json").stat().st_mtime_ns
    done = harness(*words)
    assert done.code == 2 and "holds the record of another run (task=save seed=7)" in done.out
    assert (point / "result.json").stat().st_mtime_ns == before


def test_a_run_is_not_mixed_with_a_sweep(harness, place: Path) -> None:
    assert harness("-m", "task=save", "seed=1", "hydra.sweep.dir=runs/s").code == 0
    done = harness("task=save", "hydra.run.dir=runs/s")
    assert done.code == 2 and "runs/s is the folder of a sweep" in done.out, done.out
    assert "Error executing" not in done.out and not (place / "runs/s/result.json").exists()
    below = harness("task=save", "hydra.run.dir=runs/s/9")
    assert below.code == 2 and "count a run in 9 below it as a point" in below.out, below.out
    assert not (place / "runs" / "s" / "9").exists()

    assert harness("task=save", "hydra.run.dir=runs/one").code == 0
    for folder in ("runs/one", "runs"):
        done = harness("-m", "task=save", "seed=1", f"hydra.sweep.dir={folder}")
        assert done.code == 2 and "is the folder of other runs (one)" in done.out, done.out
        assert not (place / folder / "multirun.yaml").exists()


@pytest.mark.parametrize("folder", ["runs", "./runs/", "{}/runs", "link"])
def test_a_sweep_does_not_become_the_folder_of_all_runs(harness, place: Path, folder) -> None:
    """It would take each later run for a point of its own."""
    (place / "link").symlink_to("runs")
    words = ["-m", "task=save", "seed=1", f"hydra.sweep.dir={folder.format(place)}"]
    done = harness(*words)
    assert done.code == 2 and "is the folder of other runs (runs_dir=runs)" in done.out, done.out
    assert not (place / "runs").exists() or not list((place / "runs").iterdir())


def test_a_run_over_another_is_one_message(harness) -> None:
    assert harness("task=save", "hydra.run.dir=runs/one").code == 0
    again = harness("task=save", "hydra.run.dir=runs/one")  # the same
    assert again.code == 0 and "runs/one has this run already; its record is replaced" in again.out
    done = harness("task=save", "hydra.run.dir=runs/one", "seed=3")
    assert done.code == 2 and "holds the record of another run" in done.out
    assert done.out.count("\n") == 1, done.out


def test_a_folder_whose_name_nobody_knows_is_one_message(harness, place: Path, recwarn) -> None:
    done = harness("task=save", "name=${oc.env:NOT_SET_AT_ALL}")
    assert done.code == 2 and "NOT_SET_AT_ALL" in done.out and done.out.count("\n") == 1, done.out
    assert not list(place.iterdir()) and not [w for w in recwarn if "Callback" in str(w.message)]


def test_a_point_of_a_task_that_compares_nothing_says_what_it_came_to(harness) -> None:
    done = harness("-m", "task=save", "save=gzip,torch")
    assert "[2/2] saved" in done.out and "2 saved" in done.out and "unjudged" not in done.out
