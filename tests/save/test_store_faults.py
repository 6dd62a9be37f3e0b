"""Every call of a save and a load fails once, in every way: old, new or a refusal, nothing left over."""

import shutil

import faulty
import pytest

from harness.save import atomic, leftovers


@pytest.mark.parametrize("name", ["first", "replace", "commit", "load"])
def test_a_disk_that_fails_at_any_call(tmp_path, name):
    """Every seventh call, each case others; `make fuzz` takes all of them in every format."""
    first = ["first", "replace", "commit", "load"].index(name) % 3
    found = list(faulty.attempts(tmp_path, name, "safetensors", step=7, first=first))
    assert [wrong for _, _, wrong in found if wrong] == []
    assert len(found) > 10


@pytest.mark.parametrize("name", ["replace", "load"])
def test_an_encrypted_one_too(tmp_path, name):
    found = list(faulty.attempts(tmp_path, name, "safetensors encrypted", ("broken",), step=6))
    assert [wrong for _, _, wrong in found if wrong] == []


def copied(temporary, target, overwrite):
    """The twin: published file by file."""
    target.mkdir(exist_ok=True)
    (target / "tokenizer").mkdir(exist_ok=True)
    for path in target.rglob("*"):
        if path.is_file():
            path.unlink()
    for path in temporary.rglob("*"):
        if path.is_file():
            shutil.copy(path, target / path.relative_to(temporary))


def test_what_is_not_published_in_one_step_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "_publish", copied)
    monkeypatch.setattr(leftovers, "WAIT", 0.0)  # what the twin leaves is locked by itself
    found = faulty.attempts(tmp_path, "replace", "safetensors", ("broken",))
    assert any("neither old nor new" in wrong for _, _, wrong in found if wrong)


def test_leftovers_that_stay_are_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(leftovers, "remove", lambda folder: None)
    found = faulty.attempts(tmp_path, "first", "safetensors", ("kill",), step=9, first=8)
    assert any("the next save did not remove" in wrong for _, _, wrong in found if wrong)


def test_an_error_that_nobody_catches_is_seen(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "refuse", lambda target, overwrite: list(target.parent.iterdir()))
    monkeypatch.setattr(faulty, "WRITES", ("scandir", "listdir", "mkdir"))
    found = list(faulty.attempts(tmp_path, "first", "safetensors", ("broken",)))
    assert any("OSError" in wrong for _, _, wrong in found if wrong)
