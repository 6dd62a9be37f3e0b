"""An audit tells an edit of a record once, names what was sealed where that is known, and says whether MLflow agrees
and what was compared."""

import json

from harness.report.audit import edits, figures
from harness.report.audit import page as audit
from harness.snapshot.digest import digest_document


def edited(claim: str, now: object, was: object, **more: object) -> dict:
    return {"what": f"result.json: {claim}", "recorded": now, "found": "another value was sealed",
            "explanation": f"edited after the run; sealed digest {digest_document(was)}", **more}  # fmt: skip


def tracked(key: str, recorded: object, found: object, **more: object) -> dict:
    return {"what": f"mlflow: {key}", "recorded": recorded, "found": found, "explanation": "e", **more}  # fmt: skip


ROWS = [
    edited("metrics.max_abs_diff", 1.06e-06, 9.06e-06),
    tracked("logits/max_abs_diff", 1.06e-06, 9.06e-06),
    tracked("artifact result.json", "ab", "cd"),
]


def test_one_edit_is_told_once_with_the_value_that_mlflow_still_shows(tmp_path) -> None:
    said = "1 figure was edited after the record was sealed: metrics.max_abs_diff"
    known = f"{said} 9.06e-06 -> 1.06e-06 (MLflow still shows the original); 2 more differences follow from that"
    document = {"verdict": "differs", "run": "runs/s", "points": 1, "compared": "the seal", "differences": ROWS,
                "environment": {}, "evidence": {}, "tracked": {"runs": 1, "copies": 13}}  # fmt: skip
    assert audit.reason(document) == known
    assert audit._differing(ROWS[:1]) == f"{said} is 1.06e-06, another value was sealed"
    audit.write(tmp_path / "report.html", document)
    page = (tmp_path / "report.html").read_text()
    assert ">9.06e-06 was sealed</td>" in page and "another value was sealed" not in page
    assert page.count(": this follows from the edit</td>") == 2
    assert ROWS[0]["found"] == "another value was sealed", "audit.json keeps its rows"
    assert "disagree with the record in 2 places: logits/max_abs_diff, artifact result.json" in page
    assert audit.tracked({**document, "differences": []}).endswith("13 files agree with the record")


def test_an_edited_sentence_is_shown_whole_where_the_sealed_one_is_not_known() -> None:
    """The twin: where it is known both are shown from the first other word on."""
    was = (
        "Smallest safe choice by right answers where the question was asked after: int8, 16 points."
    )
    now = was.replace("16", "6")
    row = edited("reason", now, was)
    assert audit._differing([row]).endswith(f'reason is "{now}", another value was sealed')
    assert audit._cell(row, "recorded", [row], []) == now
    known = [row, tracked("reason", now, was)]
    assert "reason ...16 points. -> ...6 points. (MLflow" in audit._differing(known)
    long = edited("reason", f"{now} " * 20, was)
    assert len(audit._cell(long, "recorded", [long], [])) < len(now) * 3


def test_what_mlflow_has_that_nobody_sealed_is_a_difference_of_its_own() -> None:
    """The twin: a server that was edited too explains nothing."""
    other = tracked("logits/max_abs_diff", 1.06e-06, 3.0)
    said = audit._differing([ROWS[0], other])
    assert said.endswith("another value was sealed; and 1 more difference")
    assert "max_abs_diff of point .../2 is" in audit._differing([{**ROWS[0], "point": "2"}])
    elsewhere = tracked("logits/max_abs_diff", 1.06e-06, 9.06e-06, point="1")
    assert audit._differing([ROWS[0], elsewhere]).endswith("; and 1 more difference")
    assert not edits.told([other], str), "nothing of the record was edited"


def test_a_verdict_that_was_edited_explains_what_mlflow_makes_of_it_and_a_count_is_no_float() -> (
    None
):
    rows = [edited("verdict", "exact", "drifted"), tracked("verdict", "exact", "drifted"),
            tracked("outcome", "exact", "drifted"), tracked("status", "FINISHED", "FAILED")]  # fmt: skip
    said = "1 value was edited after the record was sealed: verdict drifted -> exact"
    follow = "(MLflow still shows the original); 3 more differences follow from that"
    assert audit._differing(rows) == f"{said} {follow}"
    assert audit._differing([*rows, tracked("size/tokens", 9, 22.0)]).endswith("1 more difference")
    sizes = [edited("size.tokens", 9, 22), tracked("size/tokens", 9, 22.0), rows[0]]
    assert audit._differing(sizes).startswith("2 values were edited after the record was sealed: size.tokens 22 -> 9")  # fmt: skip


def of_table(column: str, recorded: str, found: str, point: str) -> dict:
    return {"what": f"sweep.csv: {column}", "recorded": recorded, "found": found, "explanation": "e", "point": point}  # fmt: skip


def test_what_was_compared_and_what_not_stands_below_the_sentence(tmp_path) -> None:
    result = {"verdict": "exact", "metrics": {"kl_max": 0.0}, "noise_floor": {"kl_max": 1e-9},
              "soundness": {"sound": True, "paths": [{"path": "x", "error": 1.0, "bound": 2.0}]},
              "oracle": {"plain": None}}  # fmt: skip
    (tmp_path / "r.json").write_text(json.dumps(result))
    told = {"record": "ab" * 32, "where": {}, "floors": {},
            **{side: {"result.json": {"file": "r.json"}} for side in ("recorded", "again")}}  # fmt: skip
    document = {"verdict": "same", "run": "runs/s", "points": 1, "compared": "bitwise", "differences": [],
                "environment": {"p": []}, "evidence": {"p": told}}  # fmt: skip
    said = figures.covered(tmp_path, document)
    assert said.startswith(
        "Compared: the verdict, every figure of the logits, every figure of the noise floor and "
    )
    assert (
        "the yardstick (its plain runs and their bounds); each the same to the last bit. " in said
    )
    assert "float64" not in said and said.endswith(figures.UNTIMED)
    audit.write(tmp_path / "report.html", document)
    page = (tmp_path / "report.html").read_text()
    assert f'<p class="soft">{said}</p>' in page
    assert ">figures of the yardstick: its plain runs and their bounds</td>" in page
    moved = {
        **document,
        "environment": {"p": [{"what": "cpu", "recorded": 1, "found": 2, "decisive": True}]},
    }
    assert "; each within its bound, where its row names one. " in figures.covered(tmp_path, moved)
    assert (
        figures.covered(tmp_path, {**document, "evidence": {"p": {**told, "came": "refused"}}})
        == ""
    )


def test_of_a_text_that_was_edited_both_sides_begin_where_they_part() -> None:
    long = "Same thought: the tokens of the run that was never interrupted, within rounding (error {} of it)"
    rows = [
        edited("conclusion", long.format(0.01), long.format(0.36)),
        tracked("conclusion", long.format(0.01), long.format(0.36)),
    ]
    said = edits.told(rows, lambda value: str(value)[:60])
    assert (
        "conclusion ...0.36 of it) -> ...0.01 of it) (MLflow still shows the original)" in said
    ), said


def test_a_missing_point_is_named_first_and_the_count_is_that_of_the_table() -> None:
    gone = {"what": audit.GONE, "recorded": 4, "found": 3, "explanation": "1 point missing: 1"}
    more = tracked("size/tokens", 9, 22.0)
    document = {"differences": [ROWS[0], gone, more], "points": 3, "compared": "only the seal"}
    said = audit.sentence(document)
    first = f"3 runs, 3 differences: 1 point missing: 1 ({audit.GONE}: recorded 4, found 3); 1 figure was edited"
    assert said.startswith(first) and "; and 1 more difference." in said, said
    alone = audit.sentence({**document, "differences": [more, gone]})
    assert "point missing: 1 (" in alone and alone.count("difference") == 2, alone


def test_a_file_that_was_edited_is_said_to_be() -> None:
    row = {
        "what": "report.html",
        "recorded": "ab" * 32,
        "found": edits.FILE,
        "explanation": "not the file",
    }
    document = {"differences": [row], "points": 1, "compared": "only the seal"}
    assert audit.sentence(document).startswith(
        "1 run: report.html was edited after the record was sealed."
    )
    mark = {"what": "report.html: a mark", "recorded": 1.0, "found": 0.0, "explanation": "e"}
    both = audit._differing([row, mark, {**mark, "what": "other"}])
    told = "report.html was edited after the record was sealed; report.html: a mark: recorded 1"
    assert both.startswith(told) and both.endswith("; and 1 more difference"), both


def test_a_figure_comes_before_the_words_that_tell_of_it() -> None:
    rows = [edited("reason", "off by 0.1", "off by 12.7"), edited("metrics.max_abs_diff", 0.1, 12.7)]  # fmt: skip
    assert [edits.claim(row) for row in edits.parts(rows).edits] == [
        "metrics.max_abs_diff",
        "reason",
    ]
