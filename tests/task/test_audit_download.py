"""A record whose folder is gone, as the tracking server hands it out again."""

import shutil

import pytest
from mlflow.tracking import MlflowClient

from harness.snapshot import record

EVALUATE = ("task=evaluate", "prompt=recall", "prompt.samples=2", "task.prunes=[none]", "task.asked=[after]")  # fmt: skip


@pytest.mark.parametrize(
    "asked",
    [pytest.param((), id="run"), pytest.param(EVALUATE, id="evaluation", marks=pytest.mark.slow)],
)
def test_a_downloaded_record_is_audited_as_it_is(harness, place, asked):
    """Its digests are those of the folder that it was; a file that was edited since is named."""
    (run,) = harness(*asked, "steps=2", "name=gone", "track=mlflow").folders
    run_id = record.read(run / "result.json")["mlflow"]["run_id"]
    shutil.move(run, place / "moved")
    done = harness("task=audit", f"run={run_id}", "track=mlflow")
    command = f"sqlite:///runs/mlflow.db mlflow artifacts download -r {run_id} -d record"
    assert done.code == 2 and command in done.out.replace("\n", " "), done.out
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/runs/mlflow.db")
    (place / "record").mkdir()
    client.download_artifacts(run_id, "", str(place / "record"))
    before = sorted(place.glob("record/**/*"))
    done = harness("task=audit", "run=record", "name=checked")
    assert done.code == 0, done.out
    assert sorted(place.glob("record/**/*")) == before, "a record is only read"
    (told,) = place.glob("runs/checked/*/audit.json")
    assert record.read(told)["run"] == "record"
    typed = place / "record" / "hydra" / "overrides.yaml"
    typed.write_text(typed.read_text() + "- seed=7\n")
    done = harness("task=audit", "run=record")
    assert done.code == 1 and ".hydra/overrides.yaml" in done.out, done.out


def test_one_whose_snapshot_was_too_large_for_the_server_is_not_called_damaged(harness, place):
    (run,) = harness("steps=2", "track=mlflow", "track.artifact_limit_mb=0").folders
    run_id = record.read(run / "result.json")["mlflow"]["run_id"]
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/runs/mlflow.db")
    (place / "record").mkdir()
    client.download_artifacts(run_id, "", str(place / "record"))
    done = harness("task=audit", "run=record")
    assert done.code == 2 and "is not the whole record" in done.out, done.out


CHAT = ("task=chat", "steps=2", "track=mlflow")


@pytest.mark.parametrize(
    "turns, out", [(1, ()), (2, ()), (2, ("out=kept",))], ids=["one", "two", "two-at-out"]
)
def test_a_chat_whose_earlier_turns_are_not_on_the_server_is_not_called_damaged(
    harness, place, turns, out
):
    """The server has the snapshot of the last turn alone: of one turn that is all there is."""
    asks = ["{ask: 'let k be 5 .'}", "{ask: 'what is k ?'}"]
    (run,) = harness(*CHAT, f"task.turns=[{','.join(asks[:turns])}]", *out).folders
    run_id = record.read(run / "result.json")["mlflow"]["run_id"]
    client = MlflowClient(tracking_uri=f"sqlite:///{place}/runs/mlflow.db")
    (place / "record").mkdir()
    client.download_artifacts(run_id, "", str(place / "record"))
    done = harness("task=audit", "run=record")
    if turns == 1:
        assert done.code == 0, done.out
        return
    assert done.code == 2 and "is not the whole record: of a chat" in done.out, done.out
    assert "turn-001 beside it" in done.out and "it was recorded in" in " ".join(done.out.split())
    assert "damaged" not in done.out
