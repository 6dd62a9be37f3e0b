"""Hydra's own flags and settings: what it stumbles over is one plain message, and its idioms work."""

import shlex
import subprocess
from pathlib import Path

import pytest
import yaml
from hydra.core.override_parser.overrides_parser import OverridesParser

from harness.cli.resume import resumed
from harness.config.grammar import pasted
from harness.errors import ConfigProblem

WRONG = {
    "track=none --config-dir": "--config-dir needs a value after it.",
    "track=none --cfg": "--cfg needs a value after it.",
    "--cfg job -p": "-p needs a value after it.",
    "--cfg job -p stepz": "harness: 'stepz' is not a key of the configuration. Did you mean 'steps'?",
    "--cfg job -p prune.windw prune=snapkv": "Did you mean 'prune.window'?",
    "--cfg hydra -p hydra.runn": "harness: Hydra has no key hydra.runn",
    "--info nope": "--info nope is not possible. There is: all, config",
    "--resolve": "The --resolve flag can only be used in conjunction with --cfg",
    "-r -m seed=1": "Only one of --run, --multirun, --cfg, --info",
    "--config-name nope": "Options of your own are added with --config-dir DIR.",
    "+model=tiny": "model is chosen already; without the plus: model=tiny",
    "~restore.strict": "Leave it out, or set it: restore.strict=...",
    "hydra.nope=1": "hydra.nope: Hydra has no such key or group",
    "hydra.verbose={}": "hydra.verbose={} is not possible: Hydra cannot use such a value",
    "hydra.callbacks.sweep=null": "the harness itself calls that callback sweep",
    "~hydra.callbacks.sweep": "the harness itself calls that callback sweep",
    "+hydra.callbacks.mine._target_=no.X": "no.X: there is no such class, or its module cannot be imported. Is the folder that holds it on PYTHONPATH?",
    "-m launcher=joblib seed=1,2": "Did you mean 'hydra/launcher=joblib'?",
    "run.dir=x": "'run.dir' is not a key of the configuration. Did you mean 'hydra.run.dir'?",
    "-m hydra.launcher=joblib seed=1,2": "is chosen with a slash: hydra/launcher=joblib",
    "-m hydra.sweeper.max_batch_size=0 seed=1,2": "hydra.sweeper.max_batch_size=0 is not possible",
    "-m hydra.sweeper.params={seed:1} task=save": "Hydra takes hydra.sweeper.params from a file",
    "-m +hydra.sweeper.params.seed=1 --cfg job": "Hydra takes hydra.sweeper.params from a file",
    "-m hydra/sweeper=optuna hydra.sweeper.n_trials=0 report.objectives=[metrics.kl_mean] seed=1,2": "hydra.sweeper.n_trials=0 is no search: give 1 or more",
    "seed=${oc.env:NOT_SET_AT_ALL}": "seed: there is no environment variable NOT_SET_AT_ALL. Set it",
    "--cfg hydra --resolve": "Interpolation key 'runs_dir' not found: Hydra's own part names keys of the job",
    "hydra.searchpath=[/no/where]": "hydra.searchpath /no/where: there is no such folder",
    "-m hydra/sweeper=optuna hydra/sweeper/sampler=tpee seed=1": "hydra/sweeper/sampler. Did you mean 'tpe'?",
    "hydra/launcher=slurm": "There is: basic, joblib, submitit_local, submitit",
    "--nope": "harness: --nope is not a flag. `",
    "~nothing": "there is no nothing here to take away. Leave it out.",
    "nothing=1": "'nothing' is not a key of the configuration. There is: a, at, b, cache,",
    "steps=null": "harness: steps=null is not possible: give a value, or leave it out.",
    "prune=knorm prune.positions=null": "prune.positions is not possible: give a value, or leave it out.",
    "prune=snapkv,tova": "`-m prune=snapkv,tova` runs one after the other.\n",
    "hydra.sweper.n_trials=3": "Did you mean 'hydra.sweeper.n_trials'?",
    "=3": "=3 names no key: KEY=3",
    "hydra.job.chdir=true": "hydra.job.chdir=true is not possible: runs_dir, out",
    "-m hydra.job.chdir=true seed=1,2": "hydra.job.chdir=true is not possible: runs_dir, out",
    "hydra.job.env_set.A=b": "add it with a plus: +hydra.job.env_set.A=...",
    "+hydra/launcher=joblib -m seed=1,2": "hydra/launcher is chosen already; without the plus: hydra/launcher=joblib",
    "~hydra/launcher -m seed=1,2": "~hydra/launcher takes away what every run needs: hydra/launcher=",
    "-m hydra.sweeper.params.seed=1,2": "Hydra takes hydra.sweeper.params from a file",
    "--experimental-rerun a.pickle": "--experimental-rerun reads a pickle, which nothing here does",
    "track.name=none": "is chosen by its group: track=none. In a file: `override /track: none`",
    "-m name=${oc.env:NOT_SET_AT_ALL} seed=1,2": "there is no environment variable NOT_SET_AT_ALL",
    "-m hydra/sweeper=optuna hydra.sweeper.storage=sqlite:///a.db report.objectives=[metrics.kl_mean] prune=knorm prune.ratio=interval(0.1,0.5)": "keep no study in a database together (AssertionError). Leave it out",
    "-m hydra/sweeper=optuna report.objectives=[metrics.kl_mean] prune=knorm prune.ratio=interval(0.5,0.1)": "give the smaller number first, interval(0.1,0.5)",
    "-m hydra/launcher=joblib hydra.launcher.n_jobs=0 seed=1,2": "hydra.launcher.n_jobs=0 runs nothing",
    "-m prune=keep_last prune.ratio=0.1,2": "prune.ratio=2.0 is not possible: give 0 < ratio <= 1.",
    "seed=${steps": "seed=${steps: a brace is missing, a reference is ${KEY}: 'seed=${steps}'",
    "+trusted.foo=1": "+trusted.foo=1: trusted is a list, given as a whole: 'trusted=[A,B]'",
    "restore.trusted.0=1": "restore.trusted.0=1: restore.trusted is a list, given as a whole",
    "-m prune=glob([a-z]*,exclude=[none,r*])": """needs quotes of its own: 'prune=glob("[a-z]*",exclude=[none,r*])'""",
    "-m steps=range(1,3,0)": "harness: steps=range(1,3,0): its step is 0, so it never comes to its end.",
    "-m prune=knorm prune.ratio=range(0.1,0.5,0.0)": "its step is 0",
    "-m task=save out=x seed=1,2": "out=x is one place for the snapshots of seed=1 and of seed=2",
    "-m task=inspect snapshot=no seed=1,2": "snapshot=no: there is no such directory",
    "~": "~ names no key: ~KEY.",
    "~task.name": "~task.name: an option brings all of its keys, and is chosen by its group: task=OPTION",
    "prune=knorm prune.pol=1": "Did you mean 'prune.pool', which prune=snapkv reads?",
    "prune=snapkv prune.pol=1": "Did you mean 'prune.pool'?",
    "experiment=prune_serch": "Did you mean 'prune_search' or 'prune_sweep'?",
    "~prune.ratio": "~prune.ratio: no file gives prune.ratio, so there is nothing to take away",
    "~prompt.chunk": "Leave it out, or set it: prompt.chunk=...",
    "~restore.device": "Leave it out, or set it: restore.device=...",
    "~compare.oracle": "~compare.oracle cannot be taken away: a run without it would go by its default",
    "prune=snapkv ~prune.window": "Leave it out, or set it: prune.window=...",
    "~restore.verify": "Leave it out, or set it: restore.verify=...",
    "~hydra.sweeper.params.prune.window": "For one value of it here: prune.window=VALUE.",
    "~restore.divice": "there is no restore.divice here to take away",
    "prune=chain prune.stages.5.ratio=0.3": "prune.stages has 2 entries, and they are counted from 0",
    "cache.branches.x=1": "cache.branches is one value and has no keys below it: cache.branches=...",
    "experiment=[precision,isolatoin]": "'isolatoin' is not an option of experiment. Did you mean 'isolation'?",
    "--cfg job prune=snapkv prune.ratio=half": "prune.ratio=half is not possible: give a number.",
    "foo.bar=3": "'foo.bar' is not a key of the configuration. There is: cache, compare",
    "restor.strict=false": "Did you mean 'restore.strict'?",
    "trackuri=x": "Did you mean 'track.uri'?",
    "prune_ratio=0.5": "Did you mean 'prune.ratio'?",
    "dashbord": "'dashbord' is not key=value. Did you mean dashboard?",
    "dashbord --help": "Did you mean dashboard?",
    "evalute": "Did you mean task=evaluate?",
    "~seed=3": "~seed=3 cannot be taken away: a run without it would go by its default. Leave it out, or set it: seed=...",
    "~steps": "Leave it out, or set it: steps=...",
    "~restore": "Leave it out, or set it: restore=...",
    "hydra.sweper=x": "Did you mean 'hydra.sweeper'?",
    "cache=glob(*)": "cache=glob(*) names several values: `-m 'cache=glob(*)'` runs one after the other",
    "restore={nope:1}": "'restore.nope' is not a key of the configuration",
    "prune=knorm prune.ratio=${nope}": "prune.ratio=${nope}: ${nope} names no key of the configuration",
    "track.uri=http://h?a=b": "needs quotes of its own: \"track.uri='http://h?a=b'\"",
    "-m steps=???,2": "steps=???,2: `???` stands for a value that must be given: steps=VALUE.",
    "name=???": "must be given: name=VALUE.",
    "prune=knorm prune.ratio='???'": "harness: prune.ratio=???: `???` stands for a value that must be given",
    "-m task=save steps=2,4": "steps=2,4 is not read by task=save without from=FILE",
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


@pytest.mark.parametrize("typed", REFERS)
def test_a_value_of_the_environment_that_cannot_be_is_told_with_its_variable(
    harness, monkeypatch, typed: str
) -> None:
    monkeypatch.setenv("VALUE", "cloed")
    done = harness(typed)
    assert done.code == 2 and REFERS[typed] in done.out and not done.folders, done.out


@pytest.mark.parametrize("key, shown", [("snapshot", "null\n"), ("seed", "0\n")])
def test_a_key_that_holds_nothing_is_shown_as_null(harness, key: str, shown: str) -> None:
    done = harness("--cfg", "job", "-p", key)
    assert done.code == 0 and done.out == shown, done.out


@pytest.mark.parametrize("value", ["http://h?a=b", "it's", 'a"b$c', "a\\", "a\\'b,c", "\u65e5"])
def test_a_remedy_with_quotes_means_the_value_in_a_shell(value: str) -> None:
    (word,) = shlex.split(pasted("track.uri", value))
    assert OverridesParser.create().parse_override(word).value() == value
    told = subprocess.run(["bash", "-c", f"printf %s {pasted('k', value)}"], capture_output=True)
    assert told.stdout.decode() == word.replace("track.uri", "k")


def test_what_is_shown_of_a_configuration_is_what_was_typed(harness) -> None:
    done = harness("text=it's: $5, {a}", "snapshot=???", "--cfg", "all")
    assert "\ntext: 'it''s: $5, {a}'\n" in done.out and "\nsnapshot: ???\n" in done.out
    assert "num: null  # known once it runs" in done.out and "literal" not in done.out


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


@pytest.mark.parametrize("typed", FIRST)
def test_the_first_point_of_a_sweep_that_a_file_declares_is_shown(
    harness, place: Path, typed: str
) -> None:
    own(place, "week", WEEK)
    shown = ["--config-dir", "own", "--cfg", "job", "-p", "prune.ratio"]
    done = harness("-m", *shown, *typed.split())
    assert done.code == 0 and done.out == FIRST[typed], done.out


HEADER = "# @package _global_\n"
OWN = {
    HEADER + "stps: 4\n": "typo.yaml sets 'stps', which is not a key of the configuration. Did you mean 'steps'?",
    HEADER + "restore:\n  strct: false\n": "sets 'restore.strct', which is not a key of the configuration. Did you mean 'restore.strict'?",
    HEADER + "hydra:\n  swep:\n    dir: x\n": "sets 'hydra.swep', which is not a key of the configuration. Did you mean 'hydra.sweep'?",
    HEADER + "steps: few\n": "typo.yaml sets steps to 'few', which is not possible: give a whole number.",
    "defaults:\n  - override /cache: cloned\n": "typo.yaml has no `# @package _global_` as its first line",
    "# mine\n" + HEADER + "steps: 2\n": "typo.yaml has no `# @package _global_` as its first line",
}  # fmt: skip


@pytest.mark.parametrize("text", OWN)
def test_a_mistake_in_an_experiment_of_one_s_own_is_told_with_its_file(
    harness, place: Path, text: str
) -> None:
    own(place, "typo", text)
    done = harness("--config-dir", "own", "experiment=typo")
    assert done.code == 2 and done.out.startswith("harness: experiment=typo: own/experiment/typo")
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
        assert "harness: own/experiment/typo.yaml: 'prune.ration' is not a key" in done.out


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


def test_a_recorded_configuration_is_not_mistaken_for_a_folder_of_options(
    harness, place: Path
) -> None:
    (place / "run").mkdir()
    (place / "run" / "config.yaml").write_text("steps: 2\n")
    shown = ["--config-name", "config", "--cfg", "job", "-p", "steps"]
    done = harness("--config-dir", "run", *shown)
    assert done.code == 2 and f"--config-path={place}/run --config-name config" in done.out


def test_a_point_that_is_called_by_its_overrides_can_be_given_to_a_flag(harness, place) -> None:
    (place / "seed=1" / "prune").mkdir(parents=True)
    (place / "seed=1" / "prune" / "mine.yaml").write_text("name: mine\nratio: 0.3\n")
    done = harness("--config-dir", "seed=1", "prune=mine", "--cfg", "job", "-p", "prune.ratio")
    assert done.code == 0 and done.out == "0.3\n", done.out


def test_a_package_without_what_shows_it_is_refused(harness):
    """It is a part of what `--cfg` shows; by itself a whole run would be made."""
    done = harness("--package", "prune")
    assert done.code == 2 and "--cfg job" in done.out and not done.folders


def test_a_file_that_varies_keys_says_so_in_a_run_without_m(process, place: Path) -> None:
    """Hydra runs one point of its own defaults, in silence."""
    (place / "own" / "experiment").mkdir(parents=True)
    varied = "# @package _global_\nhydra: {sweeper: {params: {cache: 'manual,cloned', seed: 'range(0,2)'}}}\n"
    (place / "own" / "experiment" / "grid.yaml").write_text(varied)
    given = "--config-dir", "own", "experiment=grid", "task=verify"
    said = "note: cache, seed would be varied by this configuration with -m; this is one run"
    assert said in process(*given).out
    assert said not in process("-m", *given, "snapshot=a").out
