"""A chat's description has its turns, and says what its last snapshot needs."""

import json

from harness.track import turns


def test_a_chats_turns_are_listed_and_its_copy_says_what_it_needs(tmp_path):
    """The twin: another task, and a snapshot that needs nothing."""
    rows = [
        {"turn": 1, "ask": "let k be `5` .", "answer": "ok .", "recalled": None, "expect": None},
        {"turn": 2, "ask": "what is k ?", "answer": "k is 7 .", "recalled": False, "expect": "5"},
        {"turn": 3, "ask": "what is k ?", "answer": "", "recalled": True, "expect": "5"},
    ]
    (tmp_path / "chat.json").write_text(json.dumps(rows))
    inside = tmp_path / "snapshot" / "turn-003"
    inside.mkdir(parents=True)
    manifest = {"id": "x", "lineage": [{"place": "turn-001"}, {"place": "turn-002"}]}
    (inside / "manifest.json").write_text(json.dumps(manifest))
    result = {"task": "chat", "snapshot": {"path": str(inside), "id": "x"}}
    told = turns.listed(tmp_path, result)
    assert told[:3] == [
        "1. `let k be '5' .` `ok .`",
        "2. `what is k ?` `k is 7 .` (wrong, `5` is expected)",
        "3. `what is k ?` nothing (right)",
    ]
    assert "needs `turn-001, turn-002` beside it" in "\n".join(told)
    assert "they lie in the run's own folder" in "\n".join(told)
    away = "\n".join(turns._needs(tmp_path / "run", result))
    assert f"they lie in `{inside.parent}`" in away, "at out= they are elsewhere"
    assert turns.listed(tmp_path, {**result, "task": "resume"}) == []
    (inside / "manifest.json").write_text(json.dumps({"id": "x", "lineage": []}))
    assert "needs" not in "\n".join(turns.listed(tmp_path, result))
    (tmp_path / "chat.json").write_text(json.dumps(rows * 10))
    assert "10 more turns." in "\n".join(turns.listed(tmp_path, result))
    (tmp_path / "record.json").write_text(json.dumps({"config": {"encrypt": "key"}}))
    hidden = "\n".join(turns.listed(tmp_path, result))
    assert "what is k" not in hidden and "k is 7" not in hidden, "as its snapshot is"
