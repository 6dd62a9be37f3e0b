"""A sweep's parent run: one, from its first point to its end, with the latest run of each point below."""

import json
import shutil
from types import SimpleNamespace

import pytest
from mlflow.tracking import MlflowClient

from harness import track
from harness.report import sweep as pages
from harness.track import parent

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
    return track.log(SETTINGS, str(runs), place, result, "s")[0]["run_id"]


def concluded(folder) -> dict:
    points = [folder / "0", folder / "1"]
    block = track.summarise(folder, points, pages.rows(points), "")
    (folder / "sweep.json").write_text(json.dumps({"mlflow": block}))
    return block


def test_the_parent_runs_from_the_first_point_to_the_end_and_is_one(sweep):
    folder, runs, client = sweep
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=1000.0)
    above = parent.known(folder)["run_id"]
    run = client.get_run(above)
    assert (run.info.status, run.info.start_time, run.info.end_time) == ("RUNNING", 1000000, None)
    for point in ("0", "1"):
        child = client.get_run(recorded(folder, runs, point))
        assert child.data.tags["mlflow.parentRunId"] == above  # before the sweep is at its end
    assert concluded(folder)["run_id"] == above
    assert client.get_run(above).info.status == "FAILED" and client.get_run(above).info.end_time
    parent.abandon()
    assert client.get_run(above).info.status == "FAILED"  # it had ended
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=2000.0)  # resumed
    (folder / parent.PARENT).unlink(), (folder / "sweep.json").unlink()
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=3000.0)  # as if it was not kept
    assert parent.known(folder)["run_id"] == above
    points = [folder / "0", folder / "1"]
    track.summarise(folder, points, pages.rows(points), "", total=3)
    assert client.get_run(above).info.status == "KILLED"  # stopped before its last point
    track.begin_sweep(vars(SETTINGS), str(runs), folder, began=4000.0)
    parent.abandon()
    assert client.get_run(above).info.status == "KILLED"  # nobody ended it
    asked = "tags.kind = 'sweep summary'"
    assert [r.info.run_id for r in client.search_runs(["1"], asked)] == [above]


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
    ],
)
def test_what_missed_what_was_required_shows_no_green_tick(sweep, changes, status):
    folder, runs, client = sweep
    result = json.loads((folder / "0" / "result.json").read_text())
    (folder / "0" / "result.json").write_text(json.dumps({**result, **changes}))
    assert client.get_run(recorded(folder, runs, "0")).info.status == status
