"""What a page leads to: the run that left what it read, and the commands that work on what it has left."""

import shlex

from harness.report import footer


def test_a_resume_leads_to_the_run_that_left_its_snapshot(tmp_path):
    """The twins: a run's own snapshot, and one beside which there is no page."""
    run, turn = tmp_path / "run", tmp_path / "chat" / "snapshot" / "turn-002"
    turn.mkdir(parents=True)
    (run / "snapshot").mkdir(parents=True)
    (run / "report.html").write_text("own")
    assert footer.origin(run / "snapshot", run) == [] == footer.origin(turn, run)
    (tmp_path / "chat" / "report.html").write_text("chat")
    assert footer.origin(turn, run) == [("the run that left it", "../chat/report.html")]
    assert footer.origin(run / "snapshot", turn)[0][0] == "the run that left it"


def test_what_was_held_in_memory_is_compared_with_nothing_later():
    """The twin: what lies on disk."""
    told = {"folder": "runs/a", "snapshot": {"path": "runs/a/snapshot", "format": "memory"}}
    assert footer.onward(told) == ["python -m harness task=audit run=runs/a"]
    told["snapshot"]["format"] = "safetensors"
    assert footer.onward(told)[1].startswith("python -m harness task=diff a=runs/a/snapshot b=")


def test_a_folder_with_a_blank_is_one_word_of_each_command():
    """The twin: one without."""
    for name, quoted in (("my run", "'run=runs/my run'"), ("mine", "run=runs/mine")):
        folder = f"runs/{name}"
        result = {"folder": folder, "snapshot": {"path": f"{folder}/snapshot"}, "task": "evaluate"}
        audit, diff = footer.onward(result)
        assert [audit] == footer.again(result) == [f"python -m harness task=audit {quoted}"]
        (a,) = [word for word in shlex.split(diff) if word.startswith("a=")]
        assert a == f"a={folder}/snapshot"
