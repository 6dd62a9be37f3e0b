"""What an evaluation and a chat say of their answers: right or wrong, which are others, which cell is worse."""

from harness.pipeline.questions.question import Question
from harness.report import chat
from harness.report.evaluate import page as evaluate
from harness.report.evaluate import wrong

ROW = {"turn": 1, "ask": "what is k ?", "answer": "k is 5 .", "sent_tokens": 7, "total_tokens": 9,
       "cached_s": 0.0126, "naive_s": None, "naive_equal": None, "restored_equal": True,
       "stored_bytes": 2048, "mismatch": None, "expect": "5", "recalled": True}  # fmt: skip


def test_a_chat_says_right_or_wrong_and_has_no_column_without_a_value() -> None:
    wrong = ROW | {"turn": 2, "recalled": False, "restored_equal": None}
    asked = [ROW | {"restored_equal": False}, wrong]
    _, turns, figures = chat.sections(asked, {"recalled": 1, "naive_growth": None})
    assert turns["columns"] == ["turn", "asked", "answered", "tokens sent", "tokens in all",
                                "cached, ms", "restored says the same", "KiB on disk"]  # fmt: skip
    first, second = turns["rows"]
    assert first[2] == {"text": "k is 5 . (right)", "href": "", "kind": "good long", "sign": ""}
    assert second[2]["text"] == "k is 5 . (wrong, expected 5)" and second[6]["kind"] == "bad"
    assert first[5:] == [12.6, None, 2], "no pause is before the first turn"
    assert figures["rows"] == [["answers that were right", 1]]
    _, turns, _ = chat.sections([ROW, ROW | {"restored_equal": None}], {})
    assert "restored says the same" not in turns["columns"]
    assert turns["text"].startswith(
        "In 1 of 1 turn the chat restored from the pause before it says"
    )


FULL = {"prune": "none", "quantize": "none", "budget": 1.0, "cache": "auto", "asked": "after"}


def test_an_evaluation_quotes_the_first_other_word_and_gives_ids_where_it_reads_the_same() -> None:
    full = FULL | {"said": " y is 5", "contains": 1.0, "divergence_step": 6, "ids": [4, 5, 6]}
    alike = full | {"prune": "knorm", "budget": 0.5}
    other = alike | {"divergence_step": 2, "ids": [4, 5, 9], "said": " y is 5"}
    ended = alike | {"divergence_step": 2, "ids": [4, 5], "said": " y is", "contains": 0.0}
    asking = [Question("c", "what is y ?", "y is 5")] * 3
    answered = {"0/after": [full, alike], "1/after": [full, other], "2/after": [full, ended]}
    short, same = evaluate.otherwise(answered, asking)
    assert (
        same[:4] == ["knorm 50%", "after", "what is y ?", "y is 5"]
        and same[-1] == "token 3: the same words, id 9 for 6"
    )
    assert [c["text"] for c in same[4:6]] == ["y is 5 (right)"] * 2
    assert short[-1] == "token 3: the end for \u201c5\u201d" and short[4]["kind"] == "bad long"
    assert evaluate.otherwise({"0/after": [full, alike]}, asking) == []


def test_no_wrong_answer_is_hidden_behind_right_ones_or_behind_itself() -> None:
    full = FULL | {"said": " y is 5", "contains": 1.0, "divergence_step": 6, "ids": [4, 5, 6]}
    changed = {"prune": "knorm", "budget": 0.5, "divergence_step": 2, "ids": [4, 5, 9]}
    right, wrong = full | changed, full | changed | {"said": " y is 7", "contains": 0.0}
    asking = [Question("c", f"what is {name} ?", "y is 5") for name in "abcde"]
    answered = {f"{n}/after": [full, right] for n in range(4)} | {"4/after": [full, wrong]}
    other = {"cache": "manual"}  # which says the same
    answered["4/after"] += [full | other, wrong | other]
    answered |= {
        "4/before": [full | {"asked": "before"}, right | {"asked": "before", "prune": "random"}]
    }
    answered["4/before"] += [right | {"asked": "before"}]
    rows = evaluate.otherwise(answered, asking)
    assert [row[4]["kind"] for row in rows] == ["bad long", *["good long"] * 4]
    assert [row[:3] for row in rows if row[0] == "knorm 50%"] == [
        ["knorm 50%", when, f"what is {name} ?"]
        for when, name in (("after", "e"), ("after", "a"), ("after", "b"), ("before", "e"))
    ]


def test_of_the_answers_that_are_others_it_is_said_how_many_there_are() -> None:
    full = FULL | {"said": " y is 5", "contains": 1.0, "divergence_step": 6, "ids": [4, 5, 6]}
    asking = [Question("c", f"what is {n} ?", "y is 5") for n in range(9)]

    def told(policies: str, *askings: str) -> str:
        other = {"budget": 0.5, "divergence_step": 2, "ids": [4, 5, 9]}
        answered = {
            f"{n}/{when}": [full | {"asked": when}, *(full | other | {"prune": p, "asked": when} for p in policies)]
            for n in range(len(asking)) for when in askings
        }  # fmt: skip
        return evaluate._some(answered, asking)

    assert told("ab", "after") == "Shown: 3 of 9 by a 50%; 3 of 9 by b 50%"
    both = "Shown: 3 of 9 by a 50% asked after; 3 of 9 by a 50% asked before"
    assert told("a", "after", "before") == both
    many = "Shown: 21 of 63 answers, up to 3 of each cell and asking"
    assert told("abcdefg", "after") == many


def test_a_difference_is_called_worse_only_where_its_interval_says_so() -> None:
    def said(measure: str, low: float | None, high: float | None) -> str:
        row = FULL | {"prune": "knorm", "measure": measure, "delta": 0.0, "delta_low": low, "delta_high": high}  # fmt: skip
        return evaluate._differences([row])[0][-1]["text"]

    assert [said("contains", -0.5, -0.1), said("nll", 0.1, 0.2)] == ["worse", "worse"]
    assert [said("contains", 0.1, 0.2), said("nll", -0.2, -0.1)] == ["better", "better"]
    assert [said("contains", -0.1, 0.1), said("nll", None, None)] == ["not told apart"] * 2


def test_a_cell_that_lost_5_points_is_not_chosen_and_its_line_says_so() -> None:
    def row(budget: float, value: float, size: int) -> dict:
        return FULL | {"prune": "keydiff", "measure": "contains", "budget": budget, "value": value, "low": 0.7, "n": 16,
                       "kv_bytes": size, "delta": value - 1.0, "delta_low": -0.3, "delta_high": 0.0}  # fmt: skip

    full = FULL | {"measure": "contains", "value": 1.0, "low": 0.8, "kv_bytes": 100, "n": 16}
    lost, kept = row(0.1, 0.9375, 10), row(0.25, 0.96, 25)
    said = evaluate.conclusion([full, lost, kept])
    assert said.startswith(
        "By 16 prompts, smallest safe choice: keydiff 25% (15 of 16 right, 16 with"
    )
    lines = [line[-1]["text"] for line in evaluate._differences([full, lost, kept])]
    assert lines == ["not told apart, but 6.2 percentage points down", "not told apart"]
    safe = "A cell is a safe choice where by right answers it is not measurably worse than the full cache and less than 5 "
    assert evaluate.AGAINST.endswith(f"{safe}percentage points below it.")


def test_tokens_without_text_are_shown_by_their_numbers() -> None:
    said = {
        "answer": "",
        "shown": "<63425><7>",
        "without_text": 2,
        "expect": None,
        "recalled": None,
    }
    _, turns, _ = chat.sections([ROW | said], {})
    assert turns["rows"][0][2] == "<63425><7>" and chat.WORDLESS in turns["text"]
    full = FULL | {
        "said": "",
        "said_shown": "<63425>",
        "contains": 0.0,
        "divergence_step": 1,
        "ids": [63425],
    }
    other = full | {
        "prune": "knorm",
        "budget": 0.5,
        "divergence_step": 0,
        "said_shown": "<7>",
        "ids": [7],
    }
    (row,) = evaluate.otherwise({"0/after": [full, other]}, [Question("c", "what ?", "y")])
    assert (
        row[4]["text"] == "<7> (wrong)"
        and row[-1] == "token 1: \u201c<7>\u201d for \u201c<63425>\u201d"
    )


def test_the_table_of_a_console_has_units_and_not_the_words_again() -> None:
    columns, rows = chat.told([ROW, ROW | {"turn": 2, "restored_equal": None}])
    assert columns == ["turn", "cached, ms", "restored says the same", "recalled"]
    assert [[*row.values()] for row in rows] == [[1, 12.6, None, True], [2, 12.6, True, True]]


def test_what_the_full_cache_answers_wrongly_is_shown_and_only_that() -> None:
    """The twin: a cell that is wrong where the full cache is right is among those that say otherwise."""
    full = FULL | {"said": " y is 5", "contains": 1.0, "divergence_step": 6, "ids": [4, 5, 6]}
    lost = full | {"prune": "knorm", "budget": 0.5, "contains": 0.0}
    bad = full | {"contains": 0.0, "said": " y is 7"}
    asking = [Question("c", "what is y ?", "y is 5"), Question("c", "what is z ?", "blue")]
    assert wrong.sections({"0/after": [full, lost]}, asking) == []
    answered = {"0/after": [full, lost], "1/after": [bad, bad | {"cache": "manual"}]}
    (block,) = wrong.sections(answered, asking)
    assert [row[:3] for row in block["rows"]] == [["after", "what is z ?", "blue"]]
    assert block["rows"][0][3]["text"] == " y is 7" and block["text"].startswith("1 answer without")
