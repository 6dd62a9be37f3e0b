"""The page of a chat: what its verdict rests on, how often what was asked is so, and which pause was stored whole."""

from harness.report import chat, footer

ROW = {"ask": "what is k ?", "answer": "k is 5 .", "sent_tokens": 7, "total_tokens": 9, "cached_s": 0.01,
       "naive_s": 0.02, "naive_equal": True, "restored_equal": True, "stored_bytes": 52000, "mismatch": None}  # fmt: skip
ROWS = [
    ROW | {"turn": 1},
    ROW | {"turn": 2, "stored_bytes": 294 * 1024, "stored_whole": True, "restored_equal": None},
]
RESULT = {
    "task": "chat", "folder": "runs/c", "verdict": "equivalent", "metrics": {"kl_max": 1e-9}, "noise_floor": {"kl_max": 1e-8},
    "oracle": {"restored": 1e-5, "plain": 2e-5}, "curves": {"restored": {"kl": [0.0, 1e-9, 0.0]}},
    "soundness": {"sound": True, "tolerance": 1e-9, "paths": {}},
}  # fmt: skip


def blocks(judged: dict | None = None) -> dict[str, dict]:
    figures = {"turns": 2, "cached_growth": 1.0}
    return {block["title"]: block for block in chat.sections(ROWS, figures, judged)}


def test_the_verdict_of_a_chat_has_its_figures_and_which_turn_they_are_of() -> None:
    made = blocks(RESULT)
    assert "Of turn 2, restored from the pause after turn 1" in made["Figures"]["text"]
    assert "3 steps" in made["Figures"]["text"] and made["Figures"]["rows"]
    assert [row[1] for row in made["Against float64"]["rows"]] == [1e-5, 2e-5]
    assert "Figures" not in blocks() and "Against float64" not in blocks()


def test_a_chat_says_in_how_many_turns_and_marks_the_pause_that_was_stored_whole() -> None:
    turns = blocks()["Turns"]
    assert turns["text"].startswith("In 2 of 2 turns the naive chat says the same. In 1 of 1 turn")
    first, second = (row[-1] for row in turns["rows"])
    assert first == 51 and second["text"] == "294 (whole)"
    assert "Whole: what the pauses before it hold is written anew" in turns["text"]


def test_a_turn_that_is_said_otherwise_has_the_number_that_the_reason_gives_it() -> None:
    """`chat.json` keeps what was found beside the pause; people read it beside the question."""
    apart = {"restored_equal": False}
    rows = [
        ROW | {"turn": 1} | apart,
        ROW | {"turn": 2, "restored_verdict": "equivalent"} | apart,
        ROWS[1],
    ]
    rows[-1] = rows[-1] | {"turn": 3}
    shown = [row["restored says the same"] for row in chat.told(rows)[1]]
    assert shown == [None, False, "but for a near tie"]
    turns = chat.sections(rows, {"turns": 3})[1]
    place = turns["columns"].index("restored says the same")
    assert turns["rows"][1][place]["kind"] == "bad" and turns["rows"][2][place] == shown[2]


def test_the_page_names_the_turn_that_the_chat_is_judged_by() -> None:
    rows = [ROW | {"turn": turn} for turn in (1, 2, 3)]
    made = chat.sections(rows, {"turns": 3, "judged_turn": 2}, RESULT)
    said = {block["title"]: block for block in made}
    assert "Of turn 2, restored from the pause after turn 1" in said["Figures"]["text"]
    assert [row[1] for row in said["Counted"]["rows"]] == [3]


def test_the_ratios_that_the_reason_names_stand_on_the_page_with_what_they_are_worth() -> None:
    made = blocks()
    assert [row[1] for row in made["Counted"]["rows"]] == [2, 1.0]
    assert "a ratio of two of them says little" in made["Time per turn"]["text"]


def test_the_command_that_audits_a_judged_chat_stands_on_its_page() -> None:
    assert footer.again(RESULT) == ["python -m harness task=audit run=runs/c"]
    assert not footer.again({"task": "chat", "folder": "runs/c"}), "nobody judged what was typed"
