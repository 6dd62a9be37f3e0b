"""What is asked for and cannot be had is told from the configuration alone, before torch is imported."""

import json

import pytest

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


def test_a_place_that_is_taken_is_told_at_once(compose, tmp_path) -> None:
    held = tmp_path / "a"
    held.mkdir()
    (held / "manifest.json").write_text(json.dumps({"files": [{"file": "kv.safetensors"}]}))
    with pytest.raises(HarnessError, match="holds a snapshot already"):
        place.check(compose("task=save", f"out={held}"))
    place.check(compose("task=save", f"out={held}", "overwrite=true"))
    (held / "mine.txt").touch()  # who writes says what that is
    place.check(compose("task=save", f"out={held}"))
