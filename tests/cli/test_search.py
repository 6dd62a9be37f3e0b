"""A search is held to what it needs before it begins, and a point without figures fails alone."""

import importlib.util
import json
import math
import sqlite3
import sys
from enum import Enum
from pathlib import Path

import pytest
import yaml
from omegaconf import OmegaConf, flag_override

from harness import variants
from harness.cli import resume, search
from harness.cli.point import swept
from harness.errors import ConfigProblem
from harness.results.sweep import ways_of
from harness.snapshot import objective
from harness.track import contents

ROOT = Path(__file__).resolve().parents[2]

needs_optuna = pytest.mark.skipif(
    importlib.util.find_spec("hydra_plugins.hydra_optuna_sweeper") is None,
    reason="pip install 'harness[optuna]'",
)

OPTUNA = "hydra_plugins.hydra_optuna_sweeper.optuna_sweeper.OptunaSweeper"

GRID = "hydra._internal.core_plugins.basic_sweeper.BasicSweeper"


def asked(objectives: list[str], direction: object, seed: int | None = 0, target: str = OPTUNA):
    sweeper = {"_target_": target, "direction": direction, "sampler": {"seed": seed}}
    hydra = {"sweeper": sweeper, "overrides": {"hydra": [], "task": []}}
    task = {"name": "evaluate" if objectives[:1] == ["contains"] else "experiment"}
    return OmegaConf.create({"report": {"objectives": objectives}, "task": task, "hydra": hydra})


@pytest.mark.parametrize("objectives, direction, said", [
    (["kl_mean", "size.kv_bytes"], ["minimize"] * 2, "kl_mean is no figure of a point. Did you mean metrics.kl_mean?"),
    (["load_s"], "minimize", "Did you mean time_s.load?"),
    (["error_ratio"], "minimize", "Did you mean oracle.ratio?"),
    (["nothing_like_it"], "minimize", "There is: metrics.bitwise_equal"),
    (["metrics.kl_mean"], ["minimize"] * 2, "2 of hydra.sweeper.direction and 1 of report.objectives"),
    (["metrics.kl_meen"], "minimize", "Did you mean metrics.kl_mean? There is: metrics.bitwise_equal, "),
    (["size.foo"], "minimize", "size.foo is no figure of a point. There is: size.tokens, size.kept_tokens, "),
    (["oracle.rato"], "minimize", "Did you mean oracle.ratio?"),
    (["contains"], "maximize", "Did you mean evaluate.contains?"),
    (["metrics.kl_mean"], ["minimise"], "minimise is neither minimize nor maximize"),
    ([], "minimize", "1 of hydra.sweeper.direction and 0 of report.objectives"),
])  # fmt: skip
def test_what_a_search_cannot_be_told_is_said_first(objectives, direction, said):
    with pytest.raises(ConfigProblem) as problem:
        search.check(asked(objectives, direction))
    assert said in str(problem.value)


def test_a_search_that_can_be_told_all_and_a_grid_that_asks_nothing_pass():
    search.check(asked(["metrics.kl_mean", "size.kv_bytes"], ["minimize", "minimize"]))
    search.check(asked(["evaluate.contains"], "maximize"))
    by_default = asked(["metrics.kl_mean"], None)
    with flag_override(by_default, "allow_objects", True):
        by_default.hydra.sweeper.direction = Enum("Direction", "minimize maximize")(1)
    search.check(by_default)
    search.check(asked([], None, target=GRID))


def test_a_grid_of_optuna_s_has_no_more_points_than_values():
    config = asked(["metrics.kl_mean"], "minimize")
    config.hydra.sweeper.n_trials = 20
    assert search.trials(config) == 20
    config.hydra.sweeper.sampler._target_ = "optuna.samplers.GridSampler"
    config.hydra.overrides.task = ["seed=1,2", "steps=range(1,3)"]
    assert search.trials(config) == 4
    config.hydra.sweeper.n_trials = 3
    assert search.trials(config) == 3


@needs_optuna
@pytest.mark.filterwarnings("error:The distribution is specified")
def test_a_range_that_ends_between_two_steps_is_no_warning():
    config = asked(["metrics.kl_mean"], "minimize")
    config.hydra.overrides.task = ["prune.tokens=range(1, 8, 2)"]
    search.check(config)


def test_a_sampler_without_a_seed_is_given_one_that_is_recorded_like_a_typed_one():
    config = asked(["metrics.kl_mean"], "minimize", None)
    OmegaConf.set_readonly(config, True)
    seed = search.seeded(config)
    assert config.hydra.sweeper.sampler.seed == seed is not None
    assert config.hydra.overrides.hydra == [f"hydra.sweeper.sampler.seed={seed}"]
    assert search.seeded(config) is None  # it has one


def point(folder: Path, verdict: str = "drifted", **metrics: object) -> Path:
    folder.mkdir()
    result = {
        "verdict": verdict,
        "metrics": metrics,
        "size": {"kv_bytes": 12},
        "time_s": {"load": None},
    }
    (folder / "result.json").write_text(json.dumps(result))
    return folder


def test_what_a_point_tells_its_sweeper(tmp_path):
    whole = point(tmp_path / "0", kl_mean=0.5, first_divergence=None)
    assert search.answer(whole, ["metrics.kl_mean"]) == 0.5  # one number is no list of one
    assert search.answer(whole, ["metrics.kl_mean", "size.kv_bytes"]) == (0.5, 12)
    assert search.answer(whole, ["metrics.first_divergence"]) is None  # none here; there may be
    with pytest.raises(
        ConfigProblem, match=r"no metrics\.kl_meen\. Did you mean metrics\.kl_mean\?"
    ):
        search.answer(whole, ["metrics.kl_meen", "size.kv_bytes"])
    failed = point(tmp_path / "1", "failed")
    assert search.answer(failed, ["metrics.kl_mean"]) is None
    assert search.answer(failed, ["metrics.kl_mean", "size.kv_bytes"]) == (None, None)
    odd = point(tmp_path / "2", kl_mean=math.inf)
    assert search.answer(odd, ["metrics.kl_mean"]) is None


def test_the_figures_of_a_table_have_names_too(tmp_path):
    folder = point(tmp_path / "0", kl_mean=None)
    rows = [{"measure": "contains", "value": 1.0, "kv_bytes": 9, "prune": "none"}]
    (folder / "evaluate.json").write_text(json.dumps(rows))
    there = objective.names(folder)
    assert {"evaluate.contains", "evaluate.kv_bytes", "size.kv_bytes"} <= {*there}
    assert "metrics.kl_mean" not in there and "evaluate.prune" not in there  # nothing was measured


@needs_optuna
def test_a_point_that_fails_does_not_end_the_search_and_one_objective_is_enough(harness, place):
    done = harness(
        "-m", "hydra/sweeper=optuna", "hydra/sweeper/sampler=random", "hydra.sweeper.sampler.seed=1", "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=1",
        "hydra.sweeper.direction=minimize", "report.objectives=[metrics.kl_mean]", "name=one",
        "prune=knorm", "prune.ratio=choice(2.5,0.5)", "steps=2", "compare=lossy",
    )  # fmt: skip
    (folder,) = place.glob("runs/one/*")
    best = yaml.safe_load((folder / "optimization_results.yaml").read_text())
    assert best["best_params"] == {"prune.ratio": 0.5} and best["best_value"] > 0
    assert (
        done.code == 2 and "launcher failed" not in done.out and "Failed experiment" not in done.out
    )


@needs_optuna
@pytest.mark.slow
def test_a_search_for_what_no_point_has_ends_at_once_and_is_failed(harness, place):
    done = harness(
        "-m", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.n_jobs=1", "name=lost",
        "hydra.sweeper.direction=minimize", "report.objectives=[sizes.foo]", "prune=knorm",
        "prune.ratio=interval(0.2,0.6)", "steps=2", track="mlflow",
    )  # fmt: skip
    assert done.code == 2 and "a point has no sizes.foo" in done.out
    base = sqlite3.connect(place / "runs" / "mlflow.db")
    asked = "select status from runs where name like '%sweep prune.ratio%'"
    assert base.execute(asked).fetchall() == [("FAILED",)]


def test_the_figures_that_are_known_before_are_those_that_are_measured():
    """A name that is not among them is refused before any point."""
    for path in sorted((ROOT / "runs" / "reference").glob("*/result.json")):
        result = json.loads(path.read_text())
        for block, known in search.FIXED.items():
            assert {*(result.get(block) or {})} <= {*known}, (path, block)


def test_a_resume_goes_on_with_the_folder_of_options_that_the_sweep_was_begun_with(tmp_path):
    mine = tmp_path / "mine"
    mine.mkdir()
    sources = [{"path": str(mine), "schema": "file", "provider": "command-line"}]
    hydra = {
        "overrides": {"task": ["prune=own"], "hydra": []},
        "runtime": {"config_sources": sources},
    }
    sweep = tmp_path / "sweep"
    sweep.mkdir()
    (sweep / "multirun.yaml").write_text(yaml.safe_dump({"hydra": hydra}, sort_keys=False))
    words = resume.resumed(["-m", f"resume={sweep}"])
    assert words[:4] == ["-m", "--config-dir", str(mine), "prune=own"]
    other = tmp_path / "other"
    mine.rename(other)
    with pytest.raises(ConfigProblem, match="there is no such folder"):
        resume.resumed(["-m", f"resume={sweep}"])
    words = resume.resumed(["-m", "--config-dir", str(other), f"resume={sweep}"])
    assert words[:4] == ["-m", "--config-dir", str(other), "prune=own"]


def test_folders_of_options_are_known_however_they_are_named(tmp_path, monkeypatch):
    (tmp_path / "prune").mkdir()
    (tmp_path / "prune" / "mine.yaml").write_text("name: keep_last\ntokens: 4\n")
    for typed in (["--config-dir", str(tmp_path)], [f"hydra.searchpath=[file://{tmp_path}]"]):
        monkeypatch.setattr(sys, "argv", ["harness", *typed, "prune=mine"])
        assert "mine" in variants.options("prune"), typed
    monkeypatch.setattr(sys, "argv", ["harness", "hydra.searchpath=[pkg://other]", "prune=mine"])
    assert "mine" not in variants.options("prune")


def test_a_grid_of_evaluations_tells_what_each_answered(harness, place):
    done = harness(
        "-m", "task=evaluate", "prompt=recall", "prompt.samples=2", "task.prunes=[keydiff],[random]",
        "task.budgets=[0.25]", "task.asked=[after]", "steps=6", "name=grid",
    )  # fmt: skip
    assert done.code == 0, done.out
    assert "unjudged" not in done.out and done.out.count("They could miss a loss of up to") >= 1
    (folder,) = place.glob("runs/grid/*")
    header, *rows = (folder / "sweep.csv").read_text().splitlines()
    assert len(rows) == 2 and {*objective.ANSWERS} <= {*header.split(",")}
    page = (folder / "sweep.html").read_text()
    assert "right answers" in page and "unjudged" not in page
    best = "task.prunes=[keydiff] ("
    assert f"Best: {best}" in page and best in " ".join(done.out.split())
    asked = [{"seed": str(n), "evaluate.contains": n, "evaluate.kv_bytes": n} for n in (1, 2)]
    done = harness(
        "-m", "task=evaluate", "prompt=recall", "prompt.samples=2,3", "task.prunes=[keydiff,random]",
        "task.budgets=[0.25]", "task.asked=[after]", "steps=6", "name=cells",
    )  # fmt: skip
    page = next(place.glob("runs/cells/*/sweep.html")).read_text()
    assert "What each point answered" in page and page.count(">random 25%<") == 2, done.out
    best = "Smallest safe cell: keydiff 25% in each of 2 points."
    assert best in page and best in " ".join(done.out.split())
    assert page.count('class="good best">keydiff 25%') == 2 and 'best">random' not in page
    assert ways_of(folder, asked) == {}  # other questions are not told apart by their answers


@needs_optuna
def test_a_direction_that_the_sweeper_meets_first_is_told_in_our_words(harness, place):
    done = harness(
        "-m", "hydra/sweeper=optuna", "hydra.sweeper.direction=maximise", "prune=knorm",
        "prune.ratio=interval(0.1,0.9)", "report.objectives=[metrics.kl_mean]", "name=word",
    )  # fmt: skip
    assert done.code == 2 and "maximise is neither minimize nor maximize" in done.out
    assert "launcher" not in done.out and not list(place.glob("runs/word/*"))


def test_what_was_typed_replaces_what_a_sweeper_was_configured_to_vary(tmp_path):
    params = {"seed": "range(0,2)", "prune.ratio": "0.25,0.5"}
    hydra = {"sweeper": {"params": params}, "overrides": {"task": ["seed=5,6"], "hydra": []}}
    (tmp_path / "multirun.yaml").write_text(yaml.safe_dump({"hydra": hydra}))
    assert contents.axes(tmp_path) == {"seed": "5,6", "prune.ratio": "0.25,0.5"}
    cfg = OmegaConf.create({"hydra": hydra})
    assert swept(cfg) == ("prune.ratio=0.25,0.5", "seed=5,6")


@pytest.mark.parametrize("axis", ["prune=glob(zz*)", "steps=range(5,2)"])
def test_a_sweep_of_nothing_is_a_mistake(harness, place, axis):
    done = harness("-m", axis, "name=none")
    assert (
        done.code == 2 and f"{axis} gives no point" in done.out and not list(place.glob("runs/*"))
    )


def test_points_of_another_sweep_are_not_written_over(harness, place):
    first = harness("-m", "seed=1,2", "hydra.sweep.dir=runs/fix", "steps=2")
    assert first.code == 0, first.out
    kept = {p: p.read_bytes() for p in (place / "runs" / "fix").rglob("*") if p.is_file()}
    other = harness("-m", "seed=3,4", "hydra.sweep.dir=runs/fix", "steps=2")
    assert other.code == 2 and "holds the points of another sweep" in other.out
    assert kept == {p: p.read_bytes() for p in (place / "runs" / "fix").rglob("*") if p.is_file()}
    again = harness("-m", "seed=1,2", "hydra.sweep.dir=runs/fix", "steps=2", "limit_s=600")
    assert again.code == 0 and "2 points were there, 0 were run now" in again.out, again.out


@pytest.mark.parametrize("axis", ["experiment=cursor,rebind", "name=a,b"])
def test_points_of_several_names_stay_in_the_folder_of_their_sweep(harness, place, axis):
    done = harness("-m", axis)
    (table,) = place.glob("runs/*/*/sweep.csv")
    points = {p.parent for p in place.glob("runs/*/*/*/result.json")}
    assert done.code == 0 and points == {table.parent / n for n in ("0", "1")}, done.out


def test_what_the_environment_said_is_in_the_record(harness, place, monkeypatch):
    monkeypatch.setenv("WORDS", "let k be 5 .")
    run = harness("text=${oc.env:WORDS}", "steps=2", "name=env").folders[-1]
    monkeypatch.delenv("WORDS")
    written = (run / ".hydra" / "config.yaml").read_text()
    assert "oc.env" not in written and "let k be 5 ." in written
    done = harness("task=audit", f"run={run}")
    assert done.code == 0 and "SAME" in done.out, done.out


def test_the_record_of_another_run_is_not_written_over(harness, place):
    first = harness("hydra.run.dir=runs/fix", "steps=2")
    record = (place / "runs" / "fix" / "record.json").read_bytes()
    other = harness("hydra.run.dir=runs/fix", "steps=3")
    assert first.code == 0 and other.code == 2 and "the record of another run" in other.out
    assert record == (place / "runs" / "fix" / "record.json").read_bytes()
    assert harness("hydra.run.dir=runs/fix", "steps=2").code == 0
