"""Names typed in the page: they never leave the shelf, and nothing is written over."""

import os
import time

import pytest

from harness.config import SaveConfig
from harness.errors import InputProblem, SnapshotInvalid
from harness.save import store
from harness.task.ui.snapshots import LONGEST, SnapshotStore, checked

HOSTILE = (
    "", "   ", ".", "..", "../evil", "a/b", "/etc", "a\\b", ".hidden", "a\0b", "a\nb", "~root", "-rf",
    "a/../../b", "trailing.", "x" * (LONGEST + 1), "é" * LONGEST, "a\u202eb", "C:evil", "%2e%2e",
)  # fmt: skip


SETTINGS = SaveConfig(name="safetensors", sync=False)


@pytest.fixture
def state(captured):
    return captured("text='let k be 5 .'")[1].state


@pytest.fixture
def shelf(tmp_path):
    return SnapshotStore(tmp_path / "snapshots", SETTINGS)


@pytest.mark.parametrize("name", HOSTILE, ids=lambda n: repr(n)[:16])
def test_a_name_cannot_leave_the_shelf(shelf, state, tmp_path, name):
    with pytest.raises(InputProblem):
        shelf.save(state, name)
    with pytest.raises(InputProblem):
        shelf.load(name)
    assert not list(tmp_path.rglob("manifest.json"))


@pytest.mark.parametrize("name", ["a", "day 1", "k", "v1.2", "été", "思考", "a+b_c-d", "x" * LONGEST])  # fmt: skip
def test_a_plain_name_is_a_folder_right_inside(shelf, state, name):
    shelf.save(state, f" {name} ")
    assert shelf.names() == [name] and (shelf.folder / name / "manifest.json").is_file()
    assert shelf.load(name).tokens == state.tokens


def test_a_taken_name_is_refused_and_the_old_snapshot_stays(shelf, state):
    shelf.save(state, "one")
    before = (shelf.folder / "one" / "manifest.json").read_bytes()
    with pytest.raises(InputProblem, match="taken"):
        shelf.save(state, "one")
    assert (shelf.folder / "one" / "manifest.json").read_bytes() == before


def test_links_and_strangers_are_not_on_the_shelf(shelf, state, tmp_path):
    SnapshotStore(tmp_path / "elsewhere", SETTINGS).save(state, "secret")
    shelf.folder.mkdir()
    (shelf.folder / "link").symlink_to(tmp_path / "elsewhere" / "secret")
    (shelf.folder / "stranger").mkdir()
    assert shelf.names() == []
    for name in ("link", "stranger"):
        with pytest.raises(InputProblem):
            shelf.load(name)
    with pytest.raises(InputProblem, match="taken"):
        shelf.save(state, "link")


def test_the_newest_comes_first_and_a_near_name_is_suggested(shelf, state):
    for place, name in enumerate(("first", "second")):
        shelf.save(state, name)
        os.utime(shelf.folder / name, (time.time() + place, time.time() + place))
    assert shelf.names() == ["second", "first"]
    with pytest.raises(InputProblem, match="Did you mean 'second'"):
        shelf.load("secnd")


def test_damage_is_found_before_anything_is_restored(shelf, state):
    shelf.save(state, "one")
    payload = max((shelf.folder / "one").glob("*.safetensors"), key=lambda p: p.stat().st_size)
    data = bytearray(payload.read_bytes())
    data[-1] ^= 1
    payload.write_bytes(data)
    with pytest.raises(SnapshotInvalid):
        shelf.load("one")


def test_a_failed_save_leaves_nothing_and_does_not_speak_of_restoring(shelf, state, monkeypatch):
    def damaged(source):
        raise SnapshotInvalid(str(source), ["kv does not match its digest"])

    monkeypatch.setattr(store, "load", damaged)
    with pytest.raises(
        InputProblem, match=r"was not saved; .*does not match its digest"
    ) as problem:
        shelf.save(state, "four")
    assert "restore" not in str(problem.value) and "four" not in shelf.names()
    assert not [p for p in shelf.folder.iterdir() if "four" in p.name]
    monkeypatch.undo()
    shelf.save(state, "four")  # the name is free


def test_checked_says_what_a_name_may_hold():
    with pytest.raises(InputProblem, match="letters, digits"):
        checked("a/b")
