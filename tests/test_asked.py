"""What is asked for and cannot be had is told from the configuration alone, before torch is imported."""

import json

import pytest

from harness import machine
from harness.config import place
from harness.errors import HarnessError


@pytest.mark.parametrize(
    "given, said",
    [
        (["task=resume"], "task=resume needs snapshot=DIR"),
        (["task=verify"], "task=verify needs snapshot=DIR"),
        (["task=inspect"], "task=inspect needs snapshot=DIR"),
        (["task=prune", "prune=knorm"], "task=prune needs snapshot=DIR"),
        (["task=prune"], "task=prune needs a policy"),
        (["task=diff", "a=."], "task=diff needs a=DIR and b=DIR"),
        (["task=audit"], "task=audit needs run=DIR"),
    ],
)
def test_a_missing_key_is_told_at_once(compose, given, said) -> None:
    with pytest.raises(HarnessError, match=said):
        place.check(compose(*given))


def test_a_gpu_is_missed_where_no_driver_is(compose, monkeypatch) -> None:
    monkeypatch.setattr(place.sys, "platform", "linux")
    monkeypatch.setattr(machine, "nvidia", lambda: False)
    monkeypatch.setattr(place, "DRIVERS", ())
    for key in ("device", "restore.device"):
        with pytest.raises(HarnessError, match=rf"^{key}=cuda: this machine has no usable CUDA"):
            place.check(compose(f"{key}=cuda"))
    monkeypatch.setattr(machine, "nvidia", lambda: True)
    place.check(compose("device=cuda"))  # whether it can be used, torch finds out


def test_a_place_that_is_taken_is_told_at_once(compose, tmp_path) -> None:
    held = tmp_path / "a"
    held.mkdir()
    (held / "manifest.json").write_text(json.dumps({"files": [{"file": "kv.safetensors"}]}))
    with pytest.raises(HarnessError, match="holds a snapshot already"):
        place.check(compose("task=save", f"out={held}"))
    place.check(compose("task=save", f"out={held}", "overwrite=true"))
    (held / "mine.txt").touch()  # who writes says what that is
    place.check(compose("task=save", f"out={held}"))


def test_what_is_to_be_read_is_looked_at_before_torch_is(compose, tmp_path) -> None:
    binary, bare, held = tmp_path / "binary", tmp_path / "bare", tmp_path / "held"
    binary.write_bytes(b"let \xff")
    (wide := tmp_path / "wide.txt").write_text("let k be", encoding="utf-16")
    for folder in (bare, held):
        folder.mkdir()
    (held / "manifest.json").write_text(json.dumps({"tokens": 9}))
    back = ("task=resume", f"snapshot={held}")
    for given, said in (
        (("text=a", "prompt=file", f"prompt.path={binary}"), "text= and prompt=file both say"),
        (("prompt=file", f"prompt.path={binary}"), "is not UTF-8: byte 4 is 0xff"),
        (
            ("prompt=file", f"prompt.path={wide}"),
            "iconv -f UTF-16 -t UTF-8 .*wide.txt > .*wide.utf8.txt",
        ),
        (("model=path", f"model.path={bare}"), "it has no config.json"),
        ((*back, "at=99"), "has 9 tokens: give 1 to 9"),
    ):
        with pytest.raises(HarnessError, match=said):
            place.check(compose(*given))
    place.check(compose(*back, "at=9"))
    place.check(compose("task=inspect", f"snapshot={held}"))
