"""The page of the loop and that of the referee begin with what they came to, for a stranger, and a picture."""

import json
import re
from pathlib import Path

from harness.engine import library
from harness.report import html, loop
from harness.report.picture import plots
from harness.report.referee import cases
from harness.report.referee import page as referee

RESULT = {
    "loop": {"first_step": 1, "steps": 2, "ended": False, "budget": 24, "mutated_steps": 0},
    "size": {"tokens": 99, "kept_tokens": 24}, "mutation": {"mutated": False}, "reason": "nothing to equal",
}  # fmt: skip
STEPS = [{"step": n, "kept": 24, "probability": 0.5} for n in (1, 2)]


def case(name: str, verdict: str, error: float | None, control: bool = False) -> dict:
    figures = dict.fromkeys(("kl_max", "top1_agreement", "max_abs_diff"))
    known = {"oracle_error": error, "plain_error": 1e-5 if error is not None else None}
    return {"case": name, "verdict": verdict, "control": control, "reason": "r", **figures, **known}


def test_a_loop_says_whether_its_budget_held_and_the_past_was_left_alone(tmp_path: Path) -> None:
    first, why = loop.sentence(RESULT, STEPS).splitlines()
    assert first == "2 steps of one token each: at most 24 of 99 tokens held (budget 24), no step wrote into the past."  # fmt: skip
    assert why == "Not judged: nothing to equal."
    assert [p["text"] for p in loop.pills(RESULT, STEPS)] == ["budget held", "past only read"]
    assert len(loop.sections(RESULT, STEPS)[0]["panels"]) == 2 and not loop.sections(RESULT, [])
    above = [*STEPS, {"step": 3, "kept": 30, "probability": 0.5}]
    wrong = {**RESULT, "mutation": {"mutated": True}}
    assert [p["kind"] for p in loop.pills(wrong, above)] == ["soft", "bad"]
    (tmp_path / loop.TRACE).write_text(json.dumps(STEPS))
    assert loop.trace(tmp_path) == STEPS and loop.trace(tmp_path / "none") == []


def test_a_loop_of_one_step_has_a_mark_in_both_panels_and_a_whole_step(tmp_path: Path) -> None:
    one = {**RESULT, "loop": {**RESULT["loop"], "steps": 1}}
    assert loop.sentence(one, STEPS[:1]).startswith("1 step of one token: at most")
    panels = loop.sections(one, STEPS[:1])[0]["panels"]
    for colour, panel in zip(plots.COLOURS, panels):
        drawn, upright = panel.split('id="matplotlib.axis_2"')
        assert len(re.findall(r">([\d.]+)</text>", upright)) > 2 and re.findall(
            r">([\d.]+)</text>", drawn
        ) == ["1"]
        assert f"fill: {colour}" in panel


def test_a_referee_says_how_many_cases_are_right_before_the_worst_one_and_how_each_came_back() -> (
    None
):
    rows = [case("hit", "equivalent", 1e-5), case("restored", "diverged", 2.0),
            case("other_prompt", "diverged", 9.0, control=True)]  # fmt: skip
    said = referee.summary(rows)
    assert said.startswith("1 of 2 cases gives out of the cache what a run without it gives, 1 does not (restored).")  # fmt: skip
    assert said.endswith("Of 1 wrong state tried as a control, 1 was told apart, as each must be.")
    where = dict.fromkeys(("cpu", "cores", "platform", "python"))
    blocks = referee.sections(rows, {}, {}, where)
    assert html.headed(blocks, "worst").splitlines() == [said, "worst"] and blocks[0]["panels"]
    (why,) = (block for block in blocks if block["title"] == "Why")
    assert all(how for _, how, _ in why["rows"][:2]), "no empty cell"
    assert [round(cases.share(row) or 0, 3) for row in rows] == [0.5, 1e5, 4.5e5]
    assert cases.panel([case("hit", "unjudged", None)]) == "", "nothing was measured"


def test_how_a_case_comes_back_has_no_backticks_which_a_cell_would_show() -> None:
    assert not any("`" in said for said in (*library.GENERATE.values(), *referee.MEANT.values()))
