"""What a sweep that goes on takes of the points that are done."""

import json
from dataclasses import asdict

import pytest

from harness.cli import point
from harness.config import Config, TaskConfig


def test_a_point_is_the_same_whatever_its_task_lets_be_typed():
    """No run hangs on which keys a task says are read: an older record has another list."""
    now = Config(task=TaskConfig(name="experiment"))
    recorded = json.loads(json.dumps(asdict(now)))
    recorded["task"] |= {"unread": ["engine"], "reads": ["seed"]}
    assert point.same(now, recorded)
    recorded["task"]["name"] = "save"
    assert not point.same(now, recorded)


@pytest.mark.parametrize(
    "result, code",
    [
        ({"verdict": "unsound", "required": "equivalent"}, 1),
        ({"verdict": "diverged", "required": "diverged"}, 0),
        ({"verdict": "exact", "required": "equivalent", "exit_code": 3}, 3),
    ],
)
def test_a_point_that_is_done_ends_with_the_code_that_its_record_gives(
    tmp_path, monkeypatch, result, code
):
    """A record names its code only where it is another than its verdict says."""
    (tmp_path / "record.json").write_text(json.dumps({"config": {}}))
    (tmp_path / "result.json").write_text(json.dumps({"reason": "", **result}))
    monkeypatch.setattr(point.config, "typed", lambda cfg, swept: None)
    monkeypatch.setattr(point, "same", lambda wanted, recorded: True)
    assert point.kept(None, tmp_path).exit_code == code
