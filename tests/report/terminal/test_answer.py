"""Whether the expected answer came, on the console as on the page."""

import pytest

from harness.present.conclusion import conclusion
from harness.report.terminal import command
from harness.snapshot import words


@pytest.mark.parametrize(
    "full, other, done, judged, said",
    [
        (True, True, "", True, "right in both"),
        (True, False, "pruned", True, "pruned wrong, full cache right"),
        (False, True, "", True, "restored right, uninterrupted wrong"),
        (False, False, "", False, "wrong"),
    ],
)
def test_the_console_says_whether_the_answer_is_right(full, other, done, judged, said):
    text = {"expected": "y is 60", "continuation_right": full, "restored_right": other}
    assert command.answer(text, done, judged) == f"{said} ('y is 60' is expected)"
    assert command.answer({}, done, judged) == ""


def test_a_step_that_reads_a_given_token_changes_none():
    """The twins: a step that generates, and a run that diverged."""
    told = {"verdict": "drifted", "metrics": {"first_divergence": 1}, "text": {"read": 4}}
    assert words.unchosen(told).startswith("Step 2 reads a token that was given")
    assert (
        words.unchosen({**told, "text": {"read": 1}}) == "" == words.unchosen({**told, "text": {}})
    )
    assert words.unchosen({**told, "verdict": "diverged"}) == ""


def test_what_is_held_in_memory_is_not_said_to_be_on_disk(harness):
    """The twin: a snapshot on disk."""
    held, there = (harness(f"save={save}", "steps=2").result for save in ("memory", "safetensors"))
    assert held["conclusion"].endswith("on disk beside the keys and values, which are in memory.")
    assert conclusion(there).endswith("KiB on disk.")


def test_a_fault_on_purpose_is_named_on_the_console(harness):
    """The twin: a run without one."""
    done = harness("fault=layer_swap", "restore.strict=false", "steps=2")
    assert "fault:        layer_swap, on purpose" in done.out
    assert "on purpose" not in harness("steps=2").out
