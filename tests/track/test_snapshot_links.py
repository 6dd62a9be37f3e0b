"""What `out=` was given is on the server too: the snapshot that a run left, beside the one that it read."""

import json

import pytest
from mlflow.tracking import MlflowClient

from harness.snapshot import record
from harness.track import snapshot


@pytest.fixture
def resumed(harness, place):
    """A client, what two resumes of one snapshot with other texts left on the server, and the folder of the first."""
    assert harness("task=save", "text=let k be 5 .", "out=a", track="mlflow").code == 0
    runs = []
    for out, text in (("b", " what is k ?"), ("c", " what is m ?")):
        words = ("task=resume", "snapshot=a", f"text={text}", "steps=2", f"out={out}")
        folder = harness(*words, track="mlflow").folders[-1]
        runs.append((folder, record.read(folder / "result.json")))
    client = MlflowClient(tracking_uri=f"sqlite:///{place / 'runs' / 'mlflow.db'}")
    return client, [(f, r, client.get_run(r["mlflow"]["run_id"])) for f, r in runs]


def test_what_a_resume_wrote_is_what_its_run_tells_of(resumed, place):
    client, ((_, result, run), _) = resumed
    tags, after = run.data.tags, result["next"]
    saved = json.loads((place / "a" / "manifest.json").read_text())["id"]
    assert (tags["snapshot_id"], tags["parent_snapshot_id"], tags["out"]) == (
        after["id"],
        saved,
        "b",
    )
    (found,) = client.search_runs(["1"], "tags.out = 'b'")
    assert found.info.run_id == run.info.run_id
    for key, value in after["size"].items():
        assert run.data.metrics[f"size/{key}"] == value != result["size"][key]
    assert f", {after['size']['stored_bytes'] / 1024:.0f} KiB written" in result["conclusion"]
    copied = {a.path for a in client.list_artifacts(run.info.run_id, "next")}
    assert "next/manifest.json" in copied and any(p.endswith(".safetensors") for p in copied)
    assert not client.list_artifacts(run.info.run_id, "snapshot"), (
        "an audit would take it for what was read"
    )
    (maker,) = client.search_runs(["1"], f"tags.snapshot_id = '{saved}'")
    assert maker.data.tags["task"] == "save" and maker.data.tags["out"] == "a"
    assert "snapshot/manifest.json" in {
        a.path for a in client.list_artifacts(maker.info.run_id, "snapshot")
    }


def test_of_what_is_not_copied_the_manifest_is_there_and_where_it_is(harness, place):
    assert harness("task=save", "text=let k be 5 .", "out=a", "track.artifact_limit_mb=0", track="mlflow").code == 0  # fmt: skip
    client = MlflowClient(tracking_uri=f"sqlite:///{place / 'runs' / 'mlflow.db'}")
    (run,) = client.search_runs(["1"])
    names = {a.path for a in client.list_artifacts(run.info.run_id, "snapshot")}
    assert names == {"snapshot/manifest.json", "snapshot/kept_on_disk.json"}


def test_what_was_written_over_is_not_taken_for_it(resumed, place):
    _, ((folder, result, _), _) = resumed
    assert snapshot.lies(folder, result) == place / "b"
    (place / "b" / "manifest.json").write_text('{"id": "of another"}')
    assert snapshot.lies(folder, result) is None
