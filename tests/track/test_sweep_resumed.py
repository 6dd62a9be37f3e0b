"""What of a sweep goes on: a real kill in its middle, a search, another launcher, a changed point."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml
from stores import table
from tracking import whole

from harness.cli import resume
from harness.cli.point import same
from harness.config.literal import spelled
from harness.errors import ConfigProblem, InputProblem
from harness.snapshot import record

ROOT = Path(__file__).resolve().parents[2]


def test_what_hydra_writes_anew_is_no_other_choice():
    for typed, written in (("a=true", "a=True"), ("a=1e-3", "a=0.001"), ("a='x y'", "a=xy"), ("a=null", "a=NULL"), ("~a", "~a=null")):  # fmt: skip
        assert spelled(typed) == spelled(written)
    assert len({spelled(o) for o in ("a=true", "a=false", "a=1", "a=10", "a=True,False", "a=b", "a=B")}) == 7  # fmt: skip


def test_a_changed_point_is_not_taken_for_finished(swept, compose):
    overrides = ["steps=6", f"runs_dir={swept.parent.parent}", "name=swept", "cache=dynamic",
                 "prompt.batch=1"]  # fmt: skip
    cfg = compose(*overrides)
    held = record.read(swept / "0" / "record.json")["config"]
    assert same(cfg, held)
    assert not same(compose(*overrides, "seed=1"), held)


def test_resume_of_what_is_no_sweep(tmp_path):
    with pytest.raises(InputProblem, match="not a sweep"):
        resume.resumed([f"resume={tmp_path}"])
    with pytest.raises(InputProblem, match="leave out steps=3"):
        resume.resumed([f"resume={tmp_path}", "steps=3"])
    with pytest.raises(InputProblem, match="not a sweep"):  # a limit may be another
        resume.resumed([f"resume={tmp_path}", "limit_s=3"])


def test_resume_of_a_search_goes_on_with_the_same_sweeper(tmp_path):
    told = {
        "task": ["seed=1"],
        "hydra": ["hydra.sweeper.n_trials=6", "hydra/sweeper=optuna", "hydra.mode=MULTIRUN"],
    }
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": {"overrides": told}}))
    words = resume.resumed([f"resume={tmp_path}"])
    assert words[:4] == ["-m", "seed=1", "hydra.sweeper.n_trials=6", "hydra/sweeper=optuna"]
    assert "hydra.mode=MULTIRUN" not in words
    again = resume.resumed([f"resume={tmp_path}", "hydra.sweeper.n_trials=9"])
    assert [w for w in again if "n_trials" in w] == ["hydra.sweeper.n_trials=9"]


def test_resume_goes_on_with_the_launcher_that_there_was_unless_another_is_asked_for(tmp_path):
    ran = ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"]
    told = {"task": ["seed=1,2"], "hydra": ran}
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": {"overrides": told}}))
    assert resume.resumed([f"resume={tmp_path}"])[2:4] == ran
    other = resume.resumed([f"resume={tmp_path}", "hydra/launcher=basic"])
    assert "hydra/launcher=basic" in other and not set(ran) & set(other)


def test_a_search_that_draws_other_values_each_time_is_not_resumed(tmp_path):
    hydra = {
        "overrides": {"task": [], "hydra": ["hydra/sweeper=optuna"]},
        "sweeper": {"sampler": {"seed": None}},
    }
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": hydra}))
    with pytest.raises(InputProblem, match="a search without a seed"):
        resume.resumed([f"resume={tmp_path}"])
    hydra["sweeper"]["sampler"]["seed"] = 0
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": hydra}))
    assert "hydra/sweeper=optuna" in resume.resumed([f"resume={tmp_path}"])


SIX = ("steps=4", "prompt=text", "seed=range(6)")


FIFTY = ("model=tiny", "cache=dynamic,cloned,static,view,manual",
         "save=safetensors,torch,pickle,gzip,blosc2", "prune=none,keep_last")  # fmt: skip


@pytest.mark.parametrize(
    "points, varied", [(6, SIX), pytest.param(50, FIFTY, marks=pytest.mark.slow)]
)
def test_killed_sweep_is_finished_by_resume(tmp_path, shell, points, varied):
    """A real SIGKILL half-way; then the rest, and only the rest."""
    runs = tmp_path / "runs"
    command = [sys.executable, "-m", "harness", "-m", *varied, f"runs_dir={runs}", "name=killed"]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # fmt: skip
    give_up = time.time() + 240
    while len(list(runs.glob("killed/*/*/result.json"))) < points // 2 and time.time() < give_up:
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.wait()
    (folder,) = (runs / "killed").iterdir()
    before = {p: p.stat().st_mtime_ns for p in folder.glob("*/record.json")}
    assert points // 2 - 1 <= len(before) < points and not (folder / "sweep.csv").exists()
    done = shell("-m", f"resume={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(p.stat().st_mtime_ns == before[p] for p in before)
    ran = [line for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(ran) == points - len(before), done.stdout
    whole(runs / "mlflow.db", folder, points)
    assert [r["point"] for r in table(folder)] == [str(i) for i in range(points)]
    links = set((folder / "sweep.html").read_text().split('href="')[1:])
    assert len({link.split('"')[0] for link in links if link[0].isdigit()}) == points


def test_a_sweep_that_a_file_declares_otherwise_by_now_is_not_resumed_as_another(tmp_path):
    """Its points are numbered by those values: half of them would be another sweep's."""
    was = {"cache": "manual,cloned", "seed": "range(0,2)"}
    told = {"hydra": {"overrides": {"task": ["experiment=grid"]}, "sweeper": {"params": was}}}
    (tmp_path / "multirun.yaml").write_text(yaml.safe_dump(told))
    (tmp_path / "0").mkdir()
    (tmp_path / "0" / "result.json").write_text("{}")

    def check(params=None) -> None:
        resume.check(tmp_path, ["experiment=grid"], params, "runs")

    check(was)
    check()  # a search may go on in another space
    with pytest.raises(
        ConfigProblem, match=r"params\.seed was range\(0,2\) and is range\(0,3\) by now"
    ):
        check({**was, "seed": "range(0,3)"})
    with pytest.raises(ConfigProblem, match=r"params\.seed was range.* and is not varied by now"):
        check({"cache": was["cache"]})
    del told["hydra"]["sweeper"]
    (tmp_path / "multirun.yaml").write_text(yaml.safe_dump(told))
    check(was)  # of which less was kept
