"""What a page begins with: what was found, of what and how much, in a sentence."""

from harness.report import headline, html

SIZE = {"tokens": 22, "kept_tokens": 22, "stored_bytes": 51200}
SAVED = {
    "task": "save", "conclusion": "Saved: every byte was read back and matches its digest.", "size": SIZE,
    "reason": "saved: every byte was read back and matches its digest", "snapshot": {"path": "runs/mine"},
}  # fmt: skip
WHOLE = {"task": "verify", "conclusion": "Every byte matches its digest.", "size": SIZE,
         "reason": "every byte matches its digest"}  # fmt: skip


def test_the_conclusion_comes_first_then_the_reason_where_that_says_more() -> None:
    result = {"conclusion": "Same thought.", "reason": "error 1.2\nseconds: 3"}
    assert headline.said(result).splitlines() == ["Same thought.", "error 1.2", "seconds: 3"]
    again = {"conclusion": "All noticed.", "reason": "all noticed.\nseconds: 3"}
    assert headline.said(again).splitlines() == ["All noticed.", "seconds: 3"]
    page = html.page("t", [], "exact", headline.said(result))
    assert '<p class="soft">seconds: 3</p>' in page


def test_a_save_says_how_much_is_stored_and_where() -> None:
    assert headline.said(SAVED) == (
        "The state after 22 tokens is stored in 50 KiB in `runs/mine`: every byte was read back and matches its digest."
    )
    few = SAVED | {"size": SIZE | {"kept_tokens": 5}}
    assert headline.said(few).startswith("The state after 22 tokens, 5 of them kept, is stored")
    judged = SAVED | {"curves": {"restored": {}}, "conclusion": "Same thought.", "reason": ""}
    assert headline.said(judged) == "Same thought.", "of another program's file, which is compared"


def test_a_check_says_of_what_it_is_and_names_the_first_fault() -> None:
    assert headline.said(WHOLE) == (
        "The state after 22 tokens is whole, 50 KiB on disk: every byte matches its digest."
    )
    damaged = WHOLE | {"conclusion": "Not restored: 2 faults.", "reason": "2 faults"}
    damaged["faults"] = ["kv-1.safetensors: another digest.", "no tokenizer.json"]
    assert headline.said(damaged) == (
        "Not whole, and no restore would take it: kv-1.safetensors: another digest; and 1 more fault."
    )


def test_faults_say_in_one_sentence_what_a_plain_script_does_with_them() -> None:
    plain = "A plain script goes on without an error in 99 of them."
    reason = f"101 faults: all noticed.\n{plain}\nTime: 3 s."
    result = {"task": "faults", "conclusion": "101 faults: all noticed.", "reason": reason}
    assert headline.said(result).splitlines() == [f"101 faults: all noticed. {plain}", "Time: 3 s."]
