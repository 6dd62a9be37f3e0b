"""The thought that tests without a browser share, and the page that those with one share."""

import pytest
from handling import PROMPT, ended, started

from harness.task.ui.session import PageSession
from harness.task.ui.snapshots import SnapshotStore


@pytest.fixture
def thought(session, tmp_path):
    def make(*overrides: str, folder=tmp_path) -> PageSession:
        opened = session("task=ui", *overrides)
        return PageSession(opened, SnapshotStore(folder / "snapshots", opened.cfg.save), folder)

    return make


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """`(process, address, folder)` of one page that the tests share."""
    folder = tmp_path_factory.mktemp("ui")
    process, address = started(folder, f"text={PROMPT}", f"out={folder / 'shelf'}")
    yield process, address, folder
    if process.poll() is None:
        ended(process, folder / "console.txt")
