"""A sweep's parent run: one, from its first point to its end, with the latest run of each point below."""

import json
import os
import shutil
import sqlite3
from types import SimpleNamespace

import pytest
from mlflow.tracking import MlflowClient

from harness import track
from harness.cli import lines
from harness.present.sweep import described
from harness.results import points as pages
from harness.results.sweep import sweep_of
from harness.snapshot.record import read
from harness.snapshot.result import write_json
from harness.track import artifacts, contents, parent
from harness.track.run import PARTS
from harness.track.store import DELETED

SETTINGS = SimpleNamespace(name="mlflow", uri=None, experiment="harness", artifact_limit_mb=0.0)


@pytest.fixture
def sweep(swept, tmp_path):
    """A sweep of two points, one of which failed, that no store knows; and a client of its store."""
    folder, runs = tmp_path / "runs" / "s" / "now", tmp_path / "runs"
    folder.mkdir(parents=True)
    shutil.copy(swept / "multirun.yaml", folder)
    for point in ("0", "1"):
        shutil.copytree(swept / point, folder / point, ignore=shutil.ignore_patterns("snapshot"))
        record = json.loads((folder / point / "record.json").read_text())
        record["config"] |= {"runs_dir": str(runs)}
        (folder / point / "record.json").write_text(json.dumps(record))
    return folder, runs, MlflowClient(tracking_uri=f"sqlite:///{runs / 'mlflow.db'}")


def recorded(folder, runs, point) -> str:
    """The run id of a point that was just run."""
    place = folder / point
    result = json.loads((place / "result.json").read_text())
    result |= {"mlflow": None, "folder": str(place)}
    (place / "result.json").write_text(json.dumps(result))  # as `finish` leaves it
    return track.log(SETTINGS, str(runs), place, result, "s")[0]["run_id"]


def concluded(folder) -> dict:
    points = [folder / "0", folder / "1"]
    rows = pages.rows(points)
    block = track.summarise(folder, points, rows, described(sweep_of(folder, rows)))
    (folder / "sweep.json").write_text(json.dumps({"mlflow": block}))
    return block


def test_the_parent_runs_from_the_first_point_to_the_end_and_is_one(sweep):
    folder, runs, client = sweep
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=1000.0)
    above = parent.known(folder)["run_id"]
    run = client.get_run(above)
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("RUNNING", 1000000, None)
    assert run.data.tags["task"] == "experiment"
    for point in ("0", "1"):
        child = client.get_run(recorded(folder, runs, point))
        assert child.data.tags["mlflow.parentRunId"] == above  # before the sweep is at its end
    assert concluded(folder)["run_id"] == above
    run = client.get_run(above)
    assert run.info.status == "FAILED" and run.info.end_time
    assert run.data.tags["outcome"] == "1 failed, 1 exact"
    assert "verdict" not in run.data.tags, "a search for one word of it finds points"
    assert run.info.run_name == parent.name(folder) + ": 1 failed, 1 exact"
    assert run.data.tags["conclusion"] == run.data.tags["mlflow.note.content"]
    assert run.data.tags["conclusion"].startswith("1 failed: ")
    assert run.data.params.items() >= contents.axes(folder).items(), "what was typed"
    assert run.data.params.items() >= {"model": "tiny", "task": "experiment", "steps": "6"}.items()
    assert {f.path for f in client.list_artifacts(above)} == {
        p.name for p in artifacts.of_sweep(folder)
    }
    parent.abandon()
    assert client.get_run(above).info.status == "FAILED"  # it had ended
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=2000.0)  # resumed
    (folder / parent.PARENT).unlink(), (folder / "sweep.json").unlink()
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=3000.0)  # as if it was not kept
    assert parent.known(folder)["run_id"] == above
    points = [folder / "0", folder / "1"]
    track.summarise(folder, points, pages.rows(points), ("", "", "", ""), total=3)
    assert client.get_run(above).info.status == "KILLED"  # stopped before its last point
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=4000.0)
    parent.abandon()
    assert client.get_run(above).info.status == "KILLED"  # nobody ended it
    asked = "tags.kind = 'sweep summary'"
    assert [r.info.run_id for r in client.search_runs(["1"], asked)] == [above]


def test_a_sweep_that_was_stopped_says_what_is_missing_and_how_to_go_on(sweep):
    """Until nothing is missing any more; however late it is uploaded, it lasted as long as its points."""
    folder, _, client = sweep
    points = [folder / "0", folder / "1"]
    for point, end in zip(points, (2000, 3000), strict=True):
        os.utime(point / ".hydra" / "hydra.yaml", (end - 500, end - 500))
        os.utime(point / "record.json", (end, end))
    rows = pages.rows(points)
    again = "python -m harness -m resume=x"
    ran = {}
    for total in (12, 2):
        told = described(sweep_of(folder, rows, total))
        block = track.summarise(folder, points, rows, told, total=total, again=again)
        ran[total] = client.get_run(block["run_id"])
        parent.keep(folder, block)
    stopped, whole = (run.data.tags for run in ran.values())
    assert ran[12].info.run_id == ran[2].info.run_id
    assert ran[12].info.run_name.endswith(": 2 of 12 points: 1 failed, 1 exact")
    assert stopped["conclusion"].startswith("Stopped after 2 of 12 points")
    assert "exit_code" not in stopped and whole["exit_code"] == "2"
    assert [ran[n].data.metrics["sweep/seconds"] for n in (12, 2)] == [1000.0, 1000.0], (
        "and 500 between"
    )
    assert stopped["reason"] == f"stopped after 2 of 12 points; go on with `{again}`"
    assert whole["reason"].startswith("1 of 2 points failed") and again in whole["reason"]
    assert "12" not in whole["conclusion"] + whole["outcome"]
    assert {(r.info.start_time, r.info.end_time) for r in ran.values()} == {(1500000, 3000000)}


def test_a_point_that_is_run_again_has_one_run_and_knows_the_earlier_one(sweep):
    folder, runs, client = sweep
    first = {point: recorded(folder, runs, point) for point in ("0", "1")}
    above = concluded(folder)["run_id"]
    again = recorded(folder, runs, "1")
    elsewhere = client.create_run("1", tags={"mlflow.parentRunId": above, "folder": "/copied/1"})
    assert again != first["1"] and concluded(folder)["run_id"] == above
    old = client.get_run(first["1"])
    assert (old.info.lifecycle_stage, old.data.tags["superseded"]) == ("deleted", again)
    below = client.search_runs(["1"], f"tags.`mlflow.parentRunId` = '{above}'")
    assert {r.info.run_id for r in below} == {first["0"], again, elsewhere.info.run_id}
    blocks = [json.loads((folder / p / "result.json").read_text())["mlflow"] for p in ("0", "1")]
    assert [b.get("superseded") for b in blocks] == [None, [first["1"]]]


@pytest.mark.parametrize(
    "changes, status",
    [
        ({"verdict": "diverged", "required": "drifted"}, "FAILED"),
        ({"verdict": "diverged", "required": "diverged"}, "FINISHED"),
        ({"verdict": "refused", "exit_code": 3}, "FAILED"),
        ({"verdict": "unjudged", "required": "exact"}, "FINISHED"),
        ({"task": "diff", "verdict": "unjudged", "exit_code": 1}, "FINISHED"),
        ({"task": "diff", "verdict": "failed", "exit_code": 1}, "FAILED"),
        ({"task": "audit", "verdict": "unjudged", "exit_code": 1}, "FAILED"),
    ],
)
def test_what_missed_what_was_required_shows_no_green_tick(sweep, changes, status):
    folder, runs, client = sweep
    result = json.loads((folder / "0" / "result.json").read_text())
    (folder / "0" / "result.json").write_text(json.dumps({**result, **changes}))
    assert client.get_run(recorded(folder, runs, "0")).info.status == status
    assert contents.status([{"verdict": "exact", "exit_code": 0}, result | changes]) == status


def test_a_run_above_others_has_the_figures_of_the_marked_ones_alone(swept, tmp_path):
    """What was left below it by a try that was cut off comes there once."""
    runs, settings = tmp_path / "runs", SETTINGS
    rows = [{"name": n, "tags": {}, "metrics": {"answers/kl": v}} for n, v in (("a", 1.0), ("b", 0.5))]  # fmt: skip
    rows[0]["as"] = "best"
    place = shutil.copytree(swept / "0", tmp_path / "run")
    result, waiting = read(place / "result.json"), {"reason": "x", "children": rows}
    for _ in range(2):
        write_json(place / "pending.json", waiting)
        block, problem = track.log(settings, str(runs), place, result | {"mlflow": None}, "x")
        assert not problem and not (place / "pending.json").exists()
        waiting |= {"run_id": block["run_id"]}
    base = sqlite3.connect(runs / "mlflow.db")
    asked = "select distinct value from metrics where run_uuid=? and key='best/kl'"
    mine = "select count(*) from metrics where run_uuid=? and key='answers/kl'"
    assert base.execute(asked, (block["run_id"],)).fetchall() == [(1.0,)]
    assert base.execute(mine, (block["run_id"],)).fetchone() == (0,), (
        "the last one's is not its own"
    )
    below = (
        "select r.name from runs r join tags t using (run_uuid) where r.lifecycle_stage='active'"
        " and t.key='mlflow.parentRunId' and t.value=? order by r.name"
    )
    assert base.execute(below, (block["run_id"],)).fetchall() == [("a",), ("b",)]
    many = [rows[0], *([rows[1]] * PARTS)]
    write_json(place / "pending.json", {"reason": "x", "children": many})
    block, _ = track.log(settings, str(runs), place, result | {"mlflow": None}, "x")
    assert base.execute(asked, (block["run_id"],)).fetchall() == [(1.0,)]
    assert base.execute(below, (block["run_id"],)).fetchall() == [], (
        "they would fill the first page"
    )


def test_a_sweep_of_what_is_not_tracked_leaves_no_run(harness, swept, tmp_path):
    """It would say KILLED for ever."""
    done = harness("-m", "task=verify", f"snapshot={swept / '0' / 'snapshot'}", "seed=1,2",
                   f"runs_dir={tmp_path}", track="mlflow")  # fmt: skip
    assert done.code == 0 and not (tmp_path / "mlflow.db").exists(), done.out


def test_a_killed_sweep_runs_there_until_it_is_resumed(sweep):
    folder, runs, client = sweep
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=1000.0)
    run_id = parent.known(folder)["run_id"]
    parent._open.clear()  # nobody is left
    assert client.get_run(run_id).info.status == "RUNNING"
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=2000.0)
    assert concluded(folder)["run_id"] == run_id
    assert client.get_run(run_id).info.status == "FAILED", "a point failed"


def test_a_point_that_somebody_deleted_does_not_keep_its_sweep_from_ending(sweep):
    folder, runs, client = sweep
    ids = [recorded(folder, runs, point) for point in ("0", "1")]
    client.delete_run(ids[0])
    assert concluded(folder)["deleted"] == [ids[0]] and "1 point's run was" in lines.deleted(1)
    assert read(folder / parent.PARENT)["experiment"] == "harness"  # made at its end
    above = client.create_run(client.get_run(ids[1]).info.experiment_id).info.run_id
    assert parent._adopt(client, above, {"0": ids[0], "1": ids[1]}) == ({"1": ids[1]}, [ids[0]])
    assert client.get_run(ids[1]).data.tags["mlflow.parentRunId"] == above


def test_a_run_that_is_deleted_while_it_is_uploaded_stays_so_and_keeps_nothing_waiting(
    sweep, monkeypatch
):
    """Before its upload went on, and in the middle of it: points beside it go up all the same."""
    folder, runs, client = sweep
    first = recorded(folder, runs, "0")
    client.delete_run(first)
    (folder / "0" / "pending.json").write_text(json.dumps({"run_id": first}))
    log = artifacts.log

    def erase(client, run_id, place, *more):
        client.delete_run(run_id)
        log(client, run_id, place, *more)

    monkeypatch.setattr(artifacts, "log", erase)
    (folder / "1" / "pending.json").write_text("{}")
    assert track.upload([folder / "0", folder / "1"]) == ""
    assert not [*folder.glob("*/pending.json")]
    both = [read(folder / p / "result.json")["mlflow"]["run_id"] for p in "01"]
    assert both[0] == first and len({*both}) == 2
    assert concluded(folder)["deleted"] == both


def test_a_sweep_whose_own_run_or_experiment_was_deleted_says_so(sweep):
    folder, runs, client = sweep
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=1000.0)
    above = parent.known(folder)["run_id"]
    client.delete_run(above)
    assert "deleted" in concluded(folder)["reason"]
    client.restore_run(above)
    assert "reason" not in concluded(folder)
    client.delete_experiment(client.get_run(above).info.experiment_id)
    track.tracker(SETTINGS, str(runs)).retry()
    assert DELETED in concluded(folder)["reason"]
