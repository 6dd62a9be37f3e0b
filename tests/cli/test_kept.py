"""What a sweep that goes on takes of the points that are done."""

import json
from dataclasses import asdict

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
