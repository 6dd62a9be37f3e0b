"""Two processes that come to one folder: the second waits, and finds it done."""

import fcntl
import json
import shutil
import threading

import pytest
from test_recorder import SETTINGS, statuses

from harness.track.mlflow import Mlflow


@pytest.mark.parametrize("done", [True, False], ids=["recorded meanwhile", "left to it"])
def test_who_comes_second_waits_and_records_only_what_is_left(recorded, tmp_path, done) -> None:
    folder = shutil.copytree(recorded, tmp_path / "run")
    result = {**json.loads((folder / "result.json").read_text()), "mlflow": None}
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "pending.json").write_text("{}")
    told: list[dict] = []
    tracker = Mlflow(SETTINGS, tmp_path / "runs")
    first = tracker.log(folder, result, "x") if done else None
    (folder / "result.json").write_text(json.dumps(result))
    (folder / "pending.json").write_text("{}")
    second = threading.Thread(target=lambda: told.append(tracker.log(folder, result, "x")))
    with (folder / "record.json").open() as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        second.start()
        second.join(3)
        assert second.is_alive() and not told
        if first:
            (folder / "result.json").write_text(json.dumps({**result, "mlflow": first}))
            (folder / "pending.json").unlink()
    second.join(60)
    (block,) = told
    assert first in (None, block) and not (folder / "pending.json").exists()
    assert statuses(tmp_path / "runs") == ["FINISHED"]
    elsewhere = Mlflow(SETTINGS, tmp_path / "another").log(folder, result, "x")
    assert elsewhere["run_id"] != block["run_id"] and statuses(tmp_path / "another") == ["FINISHED"]
