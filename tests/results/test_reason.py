"""Every reason has one code and one sentence, and no sentence hides in it."""

import pytest

from harness import errors
from harness.present import messages
from harness.results.reason import Code, find, of, reason


def every_class(kind: type) -> set[type]:
    return {kind}.union(*(every_class(sub) for sub in kind.__subclasses__()))


def test_every_code_has_a_sentence_and_every_sentence_a_code() -> None:
    assert set(messages.REASONS) == set(Code)


def test_every_expected_error_has_a_code() -> None:
    for kind in every_class(errors.HarnessError):
        assert kind.reason_code in set(Code), kind


def test_an_unknown_code_is_refused() -> None:
    with pytest.raises(ValueError, match="no_such"):
        reason("no_such")


def test_a_reason_within_a_reason_is_found_and_shown(monkeypatch) -> None:
    rule = reason(Code.ORACLE_ERROR, restored=0.5, plain=None)
    why = reason(Code.SAME_TOKENS, why=rule, how="chosen")
    assert rule["args"] == {"restored": 0.5}
    assert find(why, Code.ORACLE_ERROR) == rule and find(why, Code.ROW) is None
    said = "error against float64 0.5, plain path ?; every chosen token is the same"
    assert messages.worded(why) == said
    monkeypatch.setenv("HARNESS_MESSAGES", "codes")
    assert messages.worded(why) == "same_tokens why=(oracle_error restored=0.5) how=chosen"
    assert messages.worded(why, plain=True) == said


def test_what_was_waived_follows_any_reason() -> None:
    waived = reason(Code.WAIVED, count=1, first="dtype")
    assert messages.worded(reason(Code.SAVED, waived=waived)).endswith(
        "; restored with 1 waived, the first: dtype"
    )


def test_a_text_is_a_summary() -> None:
    assert of("done") == {"code": "summary", "args": {"message": "done"}}
    assert of("") == reason(Code.NOTHING) and of(reason(Code.SAVED)) == reason(Code.SAVED)
