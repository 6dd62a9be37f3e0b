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


REFERS = {
    "seed=${oc.env:VALUE}": "harness: seed=cloed (which is ${oc.env:VALUE}) is not possible: give a whole number.",
    "restore.strict=${oc.env:VALUE}": "restore.strict=cloed (which is ${oc.env:VALUE}) is not possible: give true or false.",
    "cache=${oc.env:VALUE}": "cache=${oc.env:VALUE} is cloed, which is not an option of cache. Did you mean 'cloned'?",
}  # fmt: skip


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


WEEK = """\
# @package _global_
defaults:
  - override /prune: knorm
hydra:
  sweeper:
    params:
      prune.ratio: 0.25,0.5
      seed: range(0,2)
"""

FIRST = {
    "experiment=week": "# the first of 4 points\n0.25\n",
    "experiment=week seed=4 prune.ratio=0.1,0.2,0.3": "# the first of 3 points\n0.1\n",
    "experiment=prune_search": "# a point of the search of 20 trials\n0.02\n",
}


def own(place: Path, name: str, text: str) -> None:
    """An experiment of one's own, in the folder `own`."""
    (place / "own" / "experiment").mkdir(parents=True)
    (place / "own" / "experiment" / f"{name}.yaml").write_text(text)


HEADER = "# @package _global_\n"

OWN = {
    HEADER + "stps: 4\n": "'stps' is not a key of the configuration. Did you mean 'steps'?",
    HEADER + "restore:\n  strct: false\n": "'restore.strct' is not a key of the configuration. Did you mean 'restore.strict'?",
    HEADER + "hydra:\n  swep:\n    dir: x\n": "Key 'swep' not in 'HydraConf'",
    HEADER + "steps: few\n": "Value 'few' of type 'str' could not be converted to Integer",
    "defaults:\n  - override /cache: cloned\n": "Could not override 'cache@experiment.cache'",
    "# mine\n" + HEADER + "steps: 2\n": "needs `# @package _global_` as its first line",
}  # fmt: skip


@pytest.mark.parametrize("text", OWN)
def test_a_mistake_in_an_experiment_of_one_s_own_is_told_with_its_file(
    harness, place: Path, text: str
) -> None:
    own(place, "typo", text)
    done = harness("--config-dir", "own", "experiment=typo")
    assert done.code == 2 and done.out.startswith("harness: own/experiment/typo")
    assert OWN[text] in done.out and done.out.count("\n") == 1, done.out


def test_a_key_that_an_option_does_not_read_is_told_with_the_file_that_gives_it(
    harness, place: Path
) -> None:
    """Of an experiment, of one that is built on it, and in a sweep."""
    own(place, "typo", HEADER + "prune:\n  ration: 0.5\n")
    above = HEADER + "defaults:\n  - /experiment/typo\n  - _self_\nsteps: 2\n"
    (place / "own" / "experiment" / "above.yaml").write_text(above)
    for typed in (["experiment=typo"], ["experiment=above"], ["-m", "experiment=typo", "seed=1,2"]):
        done = harness("--config-dir", "own", *typed)
        assert done.code == 2, done.out
        assert "'prune.ration' is not a key" in done.out


def test_help_names_one_s_own_options_first(process, place: Path) -> None:
    (place / "own" / "experiment").mkdir(parents=True)
    for i in range(1, 10):
        (place / "own" / "experiment" / f"week{i}.yaml").write_text(HEADER)
    (place / "own" / "experiment" / "week1.yaml").write_text(HEADER + "name: mine\n")
    one = process("--config-dir", "own", "experiment=week1", "--help").out
    assert one == "experiment=week1:\n\nit sets:\n  name: mine\n"
    told = " ".join(process("--config-dir", "own", "--help").out.split())
    assert "experiment week1 week2 week3 week4 week5 week6 week7 week8 week9 and" in told
    assert "more: experiment --help" in told


def test_help_of_an_option_shows_the_keys_that_it_inherits(harness, place: Path) -> None:
    (place / "own" / "prune").mkdir(parents=True)
    own = "# Mine.\ndefaults:\n  - snapkv\n  - _self_\nwindow: 4  # of mine\n"
    (place / "own" / "prune" / "gentle.yaml").write_text(own)
    told = harness("--config-dir", "own", "prune=gentle", "--help").out
    assert "  window: 4  # of mine\n" in told and "  pool: 5" in told
    assert "defaults" not in told and "window: 8" not in told


@pytest.mark.parametrize("typed", ["hydra/launcher", "hydra/launcher=joblib"])
def test_help_of_a_launcher_says_where_its_keys_are(harness, typed: str) -> None:
    done = harness(typed, "--help")
    asked = f"hydra/launcher={typed.partition('=')[2] or 'OPTION'} --cfg hydra -p hydra.launcher`"
    assert done.code == 0 and f"`python -m harness {asked}" in done.out


def test_a_point_that_is_called_by_its_overrides_can_be_given_to_a_flag(harness, place) -> None:
    (place / "seed=1" / "prune").mkdir(parents=True)
    (place / "seed=1" / "prune" / "mine.yaml").write_text("name: mine\nratio: 0.3\n")
    done = harness("--config-dir", "seed=1", "prune=mine", "--cfg", "job", "-p", "prune.ratio")
    assert done.code == 0 and done.out == "0.3\n", done.out


def test_a_file_that_varies_keys_says_so_in_a_run_without_m(process, place: Path) -> None:
    """Hydra runs one point of its own defaults, in silence."""
    (place / "own" / "experiment").mkdir(parents=True)
    varied = "# @package _global_\nhydra: {sweeper: {params: {cache: 'manual,cloned', seed: 'range(0,2)'}}}\n"
    (place / "own" / "experiment" / "grid.yaml").write_text(varied)
    given = "--config-dir", "own", "experiment=grid", "task=verify"
    said = (
        "note: this config sweeps cache, seed; add -m to run the sweep (running a single point now)"
    )
    assert said in process(*given).out
    assert said not in process("-m", *given, "snapshot=a").out
