"""Hydra's own flags and settings: what it stumbles over is one plain message, and its idioms work."""

from pathlib import Path

import pytest
import yaml

from harness.cli.resume import resumed
from harness.errors import ConfigProblem

WRONG = {
    "--resolve": "The --resolve flag can only be used in conjunction with --cfg",
    "-r -m seed=1": "Only one of --run, --multirun, --cfg, --info",
    "hydra.searchpath=[/no/where]": "hydra.searchpath /no/where: there is no such folder",
    "hydra/launcher=slurm": "There is: basic, joblib, submitit_local, submitit",
    "--nope": "harness: --nope is not a flag. `",
    "nothing=1": "'nothing' is not a key of the configuration. There is: a, at, b, cache,",
    "hydra.job.chdir=true": "hydra.job.chdir=true is not possible: runs_dir, out",
    "-m hydra.job.chdir=true seed=1,2": "hydra.job.chdir=true is not possible: runs_dir, out",
    "-m prune=keep_last prune.ratio=0.1,2": "prune.ratio=2.0 is not possible: give 0 < ratio <= 1.",
    "-m prune=knorm prune.ratio=range(0.1,0.5,0.0)": "its step is 0",
    "-m task=inspect snapshot=no seed=1,2": "snapshot=no: there is no such directory",
    "prune=knorm prune.pol=1": "Did you mean 'prune.pool', which prune=snapkv reads?",
    "prune=snapkv prune.pol=1": "Did you mean 'prune.pool'?",
    "experiment=[precision,isolatoin]": "'isolatoin' is not an option of experiment. Did you mean 'isolation'?",
    "restor.strict=false": "Did you mean 'restore.strict'?",
    "trackuri=x": "Did you mean 'track.uri'?",
    "prune_ratio=0.5": "Did you mean 'prune.ratio'?",
    "restore={nope:1}": "'restore.nope' is not a key of the configuration",
}  # fmt: skip


@pytest.mark.parametrize("typed", WRONG)
def test_a_mistake_in_hydra_s_own_words_is_one_message(harness, place: Path, typed: str) -> None:
    done = harness(*typed.split())
    assert done.code == 2 and WRONG[typed] in done.out and "Traceback" not in done.out, done.out
    assert "Warning" not in done.out
    assert "[1/2]" not in done.out and not list(place.iterdir())


@pytest.mark.parametrize("typed", ["+experiment=claims", "++experiment=claims"])
def test_an_experiment_is_added_as_in_other_apps(harness, typed: str) -> None:
    done = harness(typed, "--cfg", "job", "--package", "task.name")
    assert done.code == 0 and done.out.strip() == "claims"


def test_a_fault_in_a_task_is_not_laid_at_hydra_s_door(harness, monkeypatch) -> None:
    from harness import task

    def broken(*_: object) -> None:
        raise AssertionError("ours")

    monkeypatch.setattr(task, "dispatch", broken)
    with pytest.raises(AssertionError, match="ours"):
        harness("hydra.verbose=true")


@pytest.mark.parametrize("typed", [["steps=2"], ["-m", "seed=1,2"]], ids=len)
def test_no_line_of_hydra_s_stands_above_a_plain_message(harness, monkeypatch, typed) -> None:
    def refused(*_: object) -> None:
        raise ConfigProblem("not so")

    monkeypatch.setattr("harness.task.dispatch", refused)
    done = harness(*typed)
    assert done.code == 2 and done.out.endswith("harness: not so\n")
    assert "Error executing job" not in done.out


@pytest.mark.parametrize("kind", ["launcher", "sweeper"])
def test_what_a_flag_is_given_is_no_override(harness, kind: str) -> None:
    done = harness("--cfg", "hydra", "-p", f"hydra.{kind}")
    assert done.code == 0 and f"@package hydra.{kind}" in done.out, done.out


def test_a_sweep_resumed_with_places_of_hydra_s_is_the_same_sweep(
    harness, process, place: Path
) -> None:
    named = ["hydra.sweep.subdir=${hydra.job.override_dirname}", "hydra.sweep.dir=runs/x"]
    named += ["hydra.job.config.override_dirname.exclude_keys=[task,track]"]
    assert harness("-m", "task=save", *named, "seed=1,2").code == 0
    asked = place / "runs" / "x" / "multirun.yaml"
    was = asked.read_bytes(), asked.stat().st_mtime_ns
    done = process("-m", "resume=runs/x")
    assert done.code == 0 and "2 points were there, 0 were run now." in done.out, done.out
    assert was == (asked.read_bytes(), asked.stat().st_mtime_ns)
    assert sorted(p.name for p in place.glob("runs/x/*/")) == ["seed=1", "seed=2"]
    assert len((place / "runs/x/sweep.csv").read_text().splitlines()) == 3


def test_a_resume_keeps_all_that_was_typed_of_hydra_but_what_it_says_anew(tmp_path: Path) -> None:
    before = [
        "hydra.sweep.dir=elsewhere", "hydra.mode=MULTIRUN", "hydra/launcher=joblib",
        "hydra.launcher.n_jobs=2", "hydra.job.name=mine", "+hydra.job.env_set.A=1",
    ]  # fmt: skip
    overrides = {"task": ["seed=1,2"], "hydra": before}
    (tmp_path / "multirun.yaml").write_text(yaml.safe_dump({"hydra": {"overrides": overrides}}))
    head, place = ["-m", "seed=1,2"], f'hydra.sweep.dir="{tmp_path}"'
    resume = f"resume={tmp_path}"
    assert resumed([resume]) == [*head, *before[2:], place]
    typed = ["hydra/launcher=basic", "hydra.job.env_set.A=2"]
    assert resumed([resume, *typed]) == [*head, "hydra.job.name=mine", *typed, place]


HEADER = "# @package _global_\n"


def test_a_point_that_is_called_by_its_overrides_can_be_given_to_a_flag(harness, place) -> None:
    (place / "seed=1" / "prune").mkdir(parents=True)
    (place / "seed=1" / "prune" / "mine.yaml").write_text("name: mine\nratio: 0.3\n")
    done = harness("--config-dir", "seed=1", "prune=mine", "--cfg", "job", "-p", "prune.ratio")
    assert done.code == 0 and done.out == "0.3\n", done.out
