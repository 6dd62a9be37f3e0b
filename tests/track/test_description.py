"""What a run's description says, in markdown that reads as it was meant; and the figures of a chat and a resume."""

import json

from harness.track import description, metrics, snapshot

RESULT = {"task": "save", "verdict": "unjudged", "conclusion": "Saved: every byte was read back.", "folder": "runs/x",
          "reason": "every byte was read back", "outcome": "saved", "metrics": {}, "elements": []}  # fmt: skip
RESUMED = {"task": "resume", "size": {"tokens": 6}, "next": {"size": {"tokens": 15}}, "time_s": {"load": 0.1}}  # fmt: skip


def test_a_sentence_that_begins_with_the_outcome_says_it_once():
    assert description._headline("saved", "Saved: every byte.") == "**Saved**: every byte."
    assert description._headline("saved", "Saved twice.") == "**saved**: Saved twice."
    assert description._headline("", "Saved: every byte.") == "Saved: every byte."


def test_what_follows_a_list_is_no_part_of_its_last_entry(tmp_path):
    reason = "refused, since:\n  - one\n  - two\nLoad another model."
    refused = {**RESULT, "verdict": "refused", "reason": reason, "conclusion": "Not restored."}
    note = description.note(refused, "1f", tmp_path)
    assert "refused, since:\n\n  - one\n  - two\n\nLoad another model.\n" in note


def test_what_an_audit_compared_is_told_whole(tmp_path):
    compared = "all 60 tokens and all 118 figures are the same to the last digit (the verdicts: 2 equivalent, 4 diverged)"
    far = {"what": "x", "recorded": "z" * 200, "found": "b"}
    table = description._found({}, {"compared": compared, "differences": [far]})
    assert f"| compared | {compared} |  |" in table
    assert table[-1] == f"| x | recorded {'z' * 68}... | found b |"


def test_the_sizes_of_a_resume_say_of_what_they_are(tmp_path):
    assert snapshot.sizes(RESUMED) == {"tokens": 15, "read_tokens": 6}
    told = {key: value for key, value, _ in metrics.metrics(RESUMED)}
    assert (told["size/tokens"], told["size/read_tokens"]) == (15.0, 6.0)
    whole = {**RESULT, **RESUMED, "snapshot": {}, "text": {}}
    assert "those of what it wrote; `size/read_tokens`" in description.note(whole, "1f", tmp_path)
    assert "it wrote none" in description.note({**whole, "next": None}, "1f", tmp_path)
    assert "The sizes" not in description.note({**whole, "task": "save"}, "1f", tmp_path)


def test_a_chat_has_its_turns_as_steps_and_what_they_come_to(tmp_path):
    rows = [{"turn": 1, "cached_s": 0.5, "naive_s": None, "recalled": None}, {"turn": 2, "cached_s": 0.25, "recalled": False}]  # fmt: skip
    (tmp_path / "chat.json").write_text(json.dumps(rows))
    assert [*metrics.turns(tmp_path)] == [
        ("by_turn/cached_s", 0.5, 1),
        ("by_turn/cached_s", 0.25, 2),
        ("by_turn/recalled", 0.0, 2),
    ]
    assert [*metrics.turns(tmp_path / "other")] == []
    result = {"chat": {"turns": 2, "recalled": 0, "naive_growth": None}}
    assert {key for key, *_ in metrics.metrics(result)} == {"chat/turns", "chat/recalled"}


def test_a_run_that_went_on_with_damage_says_which_and_what_was_found(tmp_path):
    cause = {"cause": "layer", "evidence": "layers 0 and 1 are exchanged"}
    told = {**RESULT, "verdict": "diverged", "curves": {"a": 1}, "required": "diverged", "text": {}, "outcome": None,
            "options": {"fault": "layer_swap"}, "diagnosis": cause}  # fmt: skip
    note = "\n".join(description._said(told, tmp_path))
    assert "Fault: `layer_swap`, on purpose" in note
    assert "Diagnosis: LAYER: layers 0 and 1 are exchanged" in note
    kept = {"cause": "block", "evidence": "pruned on purpose: 2 of 9"}
    note = "\n".join(description._said({**told, "diagnosis": kept}, tmp_path))
    assert "Diagnosis: AS ASKED: pruned on purpose" in note, "as the console has it"
    other = {
        "options": {"fault": "none"},
        "diagnosis": None,
        "text": {"continuation": " the key ."},
    }
    sound = "\n".join(description._said({**told, **other}, tmp_path))
    assert "Fault" not in sound and "Diagnosis" not in sound and "the key" in sound
    (tmp_path / "record.json").write_text(json.dumps({"config": {"decrypt": "key"}}))
    assert "the key" not in "\n".join(description._said({**told, **other}, tmp_path))
