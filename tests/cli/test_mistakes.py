"""Mistakes on the command line that a file or a folder explains: one message that names it."""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from harness.cli import help
from harness.cli.resume import resumed
from harness.errors import ConfigProblem, InputProblem
from harness.pipeline import failure
from harness.report.names import in_brief
from harness.variants import conf_dir

ROOT = Path(__file__).resolve().parents[2]

YAMLS = {
    "group": ("override /dtpe: x", "names a group 'dtpe', which there is not. Did you mean 'dtype'?"),
    "new": ("/dtpe: x", "names a group 'dtpe', which there is not. Did you mean 'dtype'?"),
    "near": ("override /cahe: manual", "names a group 'cahe', which there is not. Did you mean 'cache'?"),
    "bare": ("cache: manual", "Write `override /cache: manual`."),
    "twice": ("/cache: manual", "chooses cache: manual, and an option of cache is chosen already. Write `override /cache: manual`."),
    "option": ("override /cache: manul", "'manul' is not an option of cache. Did you mean 'manual'?"),
}  # fmt: skip

HYDRAS = {
    "hydra.sweep.dirr=x": "hydra.sweep.dirr: Hydra has no such key. Did you mean 'hydra.sweep.dir'?",
    "hydra.job.config.override_dirname.kv_spe=x": "'hydra.job.config.override_dirname.kv_sep'?",
    "hydra/sweeper=optuna hydra.sweeper.sampler.sed=3": "hydra.sweeper.sampler.sed: this sweeper.sampler has no such key. Did you mean 'seed'?",
}  # fmt: skip

OWN = {
    "broken": "mine/prompt/broken.yaml, line 2, cannot be read: mapping values are not allowed here.",
    "extra": "prompt.txet is no key of prompt=text, in mine/prompt/extra.yaml. Did you mean 'text'?",
}


@pytest.mark.parametrize("flag", ["--config-dir=mine", "hydra.searchpath=[file://mine]"])
def test_an_option_of_one_s_own_that_has_a_shipped_name_is_not_passed_over(
    harness, place: Path, flag: str
) -> None:
    own, ours = place / "mine" / "prune" / "snapkv.yaml", conf_dir() / "prune" / "snapkv.yaml"
    own.parent.mkdir(parents=True)
    own.write_text(f"{ours.read_text()}# mine\n")
    done = harness(flag, "prune=snapkv", "--cfg", "job")
    assert done.code == 2 and "mine/prune/snapkv.yaml has the name" in done.out
    assert f"would not be read: {ours}" in done.out
    own.write_text(ours.read_text())  # the same options
    assert harness(flag, "prune=snapkv", "--cfg", "job", "-p", "prune.window").out == "8\n"


def test_a_key_of_an_experiment_of_one_s_own_is_told_before_the_first_point(
    harness, place: Path
) -> None:
    """It is the same in every point: none of them is run to say so."""
    path = place / "mine" / "experiment" / "search.yaml"
    path.parent.mkdir(parents=True)
    head = "# @package _global_\ndefaults:\n  - override /prune: knorm\nprune:\n"
    path.write_text(f"{head}  ratoi: 0.5\n")
    for sweep in (["seed=1,2"], ["prune=knorm,none"]):
        done = harness("--config-dir", "mine", "-m", "experiment=search", *sweep)
        assert done.code == 2 and "'prune.ratoi' is not a key" in done.out, done.out
        assert "Did you mean 'prune.ratio'" in done.out and "[1/2]" not in done.out
        assert not done.folders and not list(place.glob("runs/*/*"))
    path.write_text(f"{head}  ratio: 0.5\n")  # which knorm reads, and none does not
    fine = harness(
        "--config-dir", "mine", "-m", "experiment=search", "prune=knorm,none", "task=save"
    )
    assert "is not a key" not in fine.out and len(fine.folders) == 2, fine.out


@pytest.mark.parametrize(
    "given",
    [
        ["-m", "cache=manual,clned"],
        ["-m", "seed=1,x"],
        ["-m", "cachee=a,b"],
        ["task=audit"],
        ["task=diff", "a=x", "b=y"],
    ],
    ids=" ".join,
)
def test_what_is_rejected_leaves_nothing(harness, place: Path, given) -> None:
    done = harness(*given)
    assert done.code == 2 and not list(place.iterdir()), done.out
    assert "folder:" not in done.out  # none is named that is never made


def test_no_list_offers_a_key_that_only_the_harness_sets(harness) -> None:
    done = harness("zzzz=1")
    assert done.code == 2 and " cache, compact," in done.out and "called" not in done.out


def test_a_job_that_fails_removes_nothing_of_others(place: Path) -> None:
    (place / "mine" / "audit" / "now").mkdir(parents=True)
    (place / "mine" / "kept").write_text("mine")
    failure.remove(place / "mine" / "audit" / "now")
    assert [p.name for p in (place / "mine").iterdir()] == ["kept"]
    (place / "here").mkdir()
    failure.remove(place / "here")
    assert place.is_dir(), "the working directory stays"


def test_a_reason_is_cut_between_words_and_its_list_is_joined() -> None:
    said = "refused:\n  - layer 1 is not layer 2\n  - nor 3\nSave it again"
    assert in_brief(said) == "refused: layer 1 is not layer 2; nor 3. Save it again"
    assert in_brief(said, 30) == "refused: layer 1 is not ..."


def test_make_clean_leaves_the_runs_and_clean_runs_asks(tmp_path: Path) -> None:
    shutil.copy(ROOT / "Makefile", tmp_path)
    for name in ("mine/snapshot", "reference/point"):
        (tmp_path / "runs" / name).mkdir(parents=True)
    (tmp_path / "runs" / "mlflow.db").touch()
    (tmp_path / "__pycache__").mkdir()

    def make(*words: str, answer: str = "") -> str:
        done = subprocess.run(["make", *words], cwd=tmp_path, input=answer, capture_output=True, text=True)  # fmt: skip
        return done.stdout

    make("clean")
    assert not (tmp_path / "__pycache__").exists() and (tmp_path / "runs" / "mlflow.db").exists()
    said = make("clean-runs")
    assert "runs/mine" in said and "runs/reference" not in said and "nothing was deleted" in said
    assert (tmp_path / "runs" / "mine" / "snapshot").is_dir()
    make("clean-runs", answer="y\n")
    assert [p.name for p in (tmp_path / "runs").iterdir()] == ["reference"]


def test_diff_names_the_key_that_was_typed(harness, place: Path) -> None:
    done = harness("task=diff", "a=/nope", "b=/nope")
    assert done.code == 2 and "a=/nope: there is no such directory" in done.out
    (place / "file.bin").write_bytes(b"no cache of anybody's")
    other = harness("task=diff", "a=/nope", "b=file.bin")
    assert other.code == 2 and "a=/nope" in other.out
    assert "snapshot=" not in done.out + other.out


def test_an_audit_of_a_snapshot_names_the_run_that_saved_it(harness, place: Path) -> None:
    (place / "one" / "snapshot").mkdir(parents=True)
    (place / "one" / "snapshot" / "manifest.json").write_text("{}")
    done = harness("task=audit", "run=one/snapshot")
    assert done.code == 2 and "It is what a run saved" not in done.out
    (place / "one" / "result.json").write_text("{}")
    done = harness("task=audit", "run=one/snapshot")
    assert done.code == 2 and "It is what a run saved; the run is run=one" in done.out
    for other, at in (("two", 1), ("three", 2)):
        (place / "above" / other).mkdir(parents=True)
        (place / "above" / other / "result.json").write_text("{}")
        os.utime(place / "above" / other, (at, at))
    done = harness("task=audit", "run=above")
    assert done.code == 2 and "Below it lie 2; the newest is run=above/three" in done.out
    assert "The one below it is run=" not in done.out


@pytest.mark.parametrize(
    "folder, says",
    [
        ("half", "holds 2 sweeps; the newest is resume=runs/half/2"),
        ("", "holds 3 sweeps; the newest is resume=runs/half/2"),
        ("nope", "there is no such directory"),
        ("bare", "holds no readable multirun.yaml"),
    ],
)
def test_resume_of_what_is_no_sweep_says_where_one_is(place: Path, folder: str, says: str) -> None:
    for stamp in ("zoo", "half/1", "half/2", "bare"):
        (place / "runs" / stamp).mkdir(parents=True)
    for stamp in ("zoo", "half/1", "half/2"):
        (place / "runs" / stamp / "multirun.yaml").write_text("hydra: {}")
    with pytest.raises(InputProblem, match=says):
        resumed(["-m", f"resume=runs/{folder}"])


@pytest.mark.parametrize(
    "words, says, never",
    [
        (["--config-dir", "."], "usage:", "no help for"),
        (["steps=3"], "usage:", "no help for"),
        (["task=evaluate"], "seed=N", "snapshot=DIR"),
        (["task=inspect"], "snapshot=DIR", "steps=32"),
        (["task=resume"], "restore.verify=proof", "run=DIR"),
    ],
)
def test_help_is_of_what_is_read(words, says, never) -> None:
    told = help.show(conf_dir(), [*words, "--help"])
    assert says in told and never not in told


def test_there_is_no_help_for_a_word_that_means_nothing() -> None:
    for word, says in (("nosuch", "no help for 'nosuch'"), ("evaluate", "Did you mean task=eval")):
        with pytest.raises(ConfigProblem, match=says):
            help.show(conf_dir(), [word, "--help"])


def test_a_folder_above_snapshots_names_them(harness, place: Path) -> None:
    for name in ("old", "new"):
        folder = place / "above" / name / "1" / "snapshot"
        folder.mkdir(parents=True)
        (folder / "manifest.json").write_text("{}")
    os.utime(place / "above/old/1/snapshot/manifest.json", (1, 1))
    copied = place / "above" / "artifacts" / "snapshot"
    copied.mkdir(parents=True)
    (copied / "manifest.json").write_text("{}")
    done = harness("task=inspect", "snapshot=above")
    assert done.code == 2
    assert "Below it lie 2; the newest is snapshot=above/new/1/snapshot" in done.out
    done = harness("task=inspect", "snapshot=above/old")
    assert "There is one below it: snapshot=above/old/1/snapshot" in done.out
