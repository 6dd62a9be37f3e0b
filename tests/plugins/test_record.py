"""What a record says beside what was read: an edit of it is seen all the same."""

import pytest
import yaml

from harness.task.audit import evidence

EDITS = {
    "where code lay": lambda tree: tree["plugins"].update(path="/elsewhere"),
    "whom it trusted": lambda tree: tree["plugins"].update(trust=["os"]),
    "a key that nothing reads": lambda tree: tree["prune"].update(ratio=0.125),
}


@pytest.fixture
def point(harness):
    made = harness("steps=2")
    assert made.code == 0, made.out
    return made.folders[0]


def test_an_edit_of_what_nothing_reads_is_seen(point, compose):
    cfg = compose("task=audit", "track=none")
    assert list(evidence.verified(point, cfg)) == []
    path = point / ".hydra" / "config.yaml"
    text = path.read_text()
    for what, edit in EDITS.items():
        tree = yaml.safe_load(text)
        edit(tree)
        path.write_text(yaml.safe_dump(tree))
        found = [d.what for d in evidence.verified(point, cfg)]
        assert ".hydra/config.yaml" in found, what
    path.write_text(text)
    assert list(evidence.verified(point, cfg)) == []
