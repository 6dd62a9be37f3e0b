"""Shell completion: what a word may become, and a real bash that asks for it."""

import os
import stat
import subprocess
import sys

import pytest

from harness.cli import completion
from harness.errors import ConfigProblem


@pytest.mark.parametrize(
    "line, expected",
    [
        ("harness cache=ma", ["cache=manual"]),
        ("harness cache=manual,cl", ["cache=manual,cloned"]),
        ("harness prune=snapkv prune.w", ["prune.window="]),
        ("harness prune=knorm prune.w", []),
        ("harness task=ui task.r", ["task.run="]),
        ("harness --c", ["--cfg", "--config-dir", "--config-name", "--config-path"]),
        ("harness --m", ["--multirun"]),
        ("harness --h", ["--help", "--hydra-help"]),
        ("harness save.compact=", ["save.compact=false", "save.compact=true"]),
        ("harness dashboard p", ["port="]),
        ("harness --cfg job --package ca", ["cache"]),
        ("harness --cfg job -p cache.a", ["cache.audit"]),
        ("harness hydra/launcher=jo", ["hydra/launcher=joblib"]),
        ("harness restore.st", ["restore.strict="]),
        ("harness restore.strict=f", ["restore.strict=false"]),
        ("harness hydra/sw", ["hydra/sweeper="]),
        ("harness experiment=clai", ["experiment=claims"]),
        ("harness out=some", []),
        ("harness dtype=b", ["dtype=bfloat16"]),
        ("harness call", []),
        ("harness prune.budget=ad", ["prune.budget=adaptive"]),
        ("harness compare.require=d", ["compare.require=diverged", "compare.require=drifted"]),
        ("harness --cfg ", ["all", "hydra", "job"]),
        ("harness --config-name ", ["config"]),
        ("harness --config-dir ", []),  # the shell's own
        ("harness hydra.sweeper.", ["hydra.sweeper.max_batch_size="]),
        ("harness experiment=prune_search hydra.sweeper.n_t", ["hydra.sweeper.n_trials="]),
        (
            "harness hydra/launcher=submitit_slurm hydra.launcher.part",
            ["hydra.launcher.partition="],
        ),
        (
            "harness hydra/launcher=submitit_local_packed hydra.launcher.p",
            ["hydra.launcher.points_per_job="],
        ),
        ("harness hydra/launcher=joblib hydra.launcher.pre_", ["hydra.launcher.pre_dispatch="]),
        ("harness hydra.job.n", ["hydra.job.name="]),
        ("harness hydra/sweeper=optuna hydra/sweeper/sampler=t", ["hydra/sweeper/sampler=tpe"]),
        ("harness dash", ["dashboard"]),
        ("harness cache=manual dash", []),
        ("harness completion ", ["bash", "fish", "install", "zsh"]),
        ("harness completion install z", ["zsh"]),
        ("harness completion bash ", ["install"]),
    ],
)
def test_a_word_becomes_what_there_is(line, expected, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["harness"])
    assert completion.candidates(line) == expected


def test_a_launcher_that_is_not_installed_is_not_offered(monkeypatch) -> None:
    """The twin: one that is."""
    monkeypatch.setattr("harness.extras.missing", lambda extra: extra == "joblib")
    monkeypatch.setattr(sys, "argv", ["harness"])
    assert completion.candidates("harness hydra/launcher=jo") == []
    assert completion.candidates("harness hydra/launcher=ra") == ["hydra/launcher=ray"]


def test_options_of_a_folder_from_outside_are_offered(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(sys, "argv", ["harness"])
    (tmp_path / "prune").mkdir()
    (tmp_path / "prune" / "mine.yaml").write_text("# Mine.\nname: mine\n_target_: a.B\n")
    line = f"harness --config-dir {tmp_path} prune=mi"
    assert completion.candidates(line) == ["prune=mine"]
    assert completion.candidates("harness prune=mi") == []
    (tmp_path / "whole.yaml").write_text("defaults: [config, _self_]\n")
    assert completion.candidates(f"harness --config-dir {tmp_path} -cn w") == ["whole"]


def test_bash_asks_for_it(tmp_path, monkeypatch) -> None:
    """The script, where a shell that was just started finds it, run by a real bash."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    assert completion.run(["bash"]) == completion.BASH.rstrip()
    assert not list(tmp_path.iterdir())  # it was printed, nothing more
    monkeypatch.setattr(completion, "LOADERS", (str(tmp_path / "none"),))
    alone = completion.run(["install", "bash"])  # the twin: nothing reads that folder
    assert "bash completes" not in alone and "add to ~/.bashrc: source " in alone
    monkeypatch.setattr(completion, "LOADERS", (str(tmp_path),))
    said = completion.run(["install", "bash"])
    assert "bash completes" in said and "in place of `python -m harness ...`" in said
    (script,) = tmp_path.rglob("completions/harness")
    command = tmp_path / "harness"
    command.write_text(f'#!/bin/sh\nexec {sys.executable} -m harness "$@"\n')
    command.chmod(command.stat().st_mode | stat.S_IXUSR)
    asked = (
        f"source {script}; COMP_LINE='harness cache=ma'; COMP_POINT=16; "
        f"COMP_WORDS=({command} cache = ma); COMP_CWORD=3; COMP_WORDBREAKS='= '; "
        'compopt() { :; }; _harness; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(["bash", "-c", asked], capture_output=True, text=True,
                          env={**os.environ})  # fmt: skip
    assert done.stdout.strip() == "manual", done.stderr


def test_a_shell_that_is_not_known(monkeypatch) -> None:
    with pytest.raises(ConfigProblem, match="bash"):
        completion.run(["bsh"])
    with pytest.raises(ConfigProblem, match="'install'"):
        completion.run(["bash", "instal"])


def test_a_group_of_ones_own_is_offered_and_what_a_plus_stands_before(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["harness"])
    (tmp_path / "mygroup").mkdir()
    (tmp_path / "mygroup" / "x.yaml").write_text("a: 1\n")
    line = f"harness --config-dir {tmp_path}"
    assert completion.candidates(f"{line} +my") == ["+mygroup="]
    assert completion.candidates(f"{line} +mygroup=") == ["+mygroup=x"]
    assert completion.candidates(f"{line} myg") == ["mygroup="]
    assert completion.candidates("harness +my") == [] == completion.candidates("harness +cache=ma")
    assert completion.candidates("harness +experiment=cla") == ["+experiment=claims"]
    assert completion.candidates("harness -m hydra.sw") == [
        "hydra.sweep.dir=",
        "hydra.sweep.subdir=",
        "hydra.sweeper.max_batch_size=",
    ]
    line = "harness -m hydra/sweeper=optuna hydra.sweeper.n_t"
    assert completion.candidates(line) == ["hydra.sweeper.n_trials="]
