"""What is said of `out=` when a job is stopped: a chat's pauses lie below it, and are kept."""

from types import SimpleNamespace

from harness.pipeline.failure import left_behind


def test_the_pauses_of_a_chat_that_was_stopped_are_said_to_be_kept(tmp_path) -> None:
    cfg = SimpleNamespace(task=SimpleNamespace(name="chat"), out=str(tmp_path / "chat"))
    assert "was not written" in left_behind(cfg, tmp_path / "run", "record", None, False)
    for turn in ("turn-001", "turn-002"):
        (tmp_path / "chat" / turn).mkdir(parents=True)
        (tmp_path / "chat" / turn / "manifest.json").write_text("{}")
    told = left_behind(cfg, tmp_path / "run", "record", None, False)
    assert "2 pauses of the chat" in told and "the last of them turn-002" in told
    assert "was not written" not in told and "nothing was written" not in told
