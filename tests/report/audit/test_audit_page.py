"""The page of an audit: how many runs, what differs, and what was recorded beside what came again."""

import json
import re

from harness.report.audit import clause, figures
from harness.report.audit import page as audit
from harness.report.terminal.console import Say


def test_an_audit_says_first_of_how_many_runs_and_folds_what_is_the_same(tmp_path, capsys) -> None:
    result = {"verdict": "exact", "metrics": {"kl_max": 0.0}}
    (tmp_path / "r.json").write_text(json.dumps(result))
    told = {"record": "ab" * 32, "where": {}, "noise_floor": {}, "floors": {},
            **{side: {"result.json": {"file": "r.json"}} for side in ("recorded", "again")}}  # fmt: skip
    document = {"verdict": "same", "run": "runs/s", "points": 3, "compared": "bitwise", "differences": [],
                "environment": {p: [] for p in "012"}, "evidence": dict.fromkeys("012", told)}  # fmt: skip
    audit.write(tmp_path / "report.html", document)
    page = (tmp_path / "report.html").read_text()
    assert "Every figure and token of 3 runs is reproduced, bitwise." in page
    assert page.count("<summary>Run again") == 1 and "the same: 3 runs</summary>" in page
    (tmp_path / "other.json").write_text(json.dumps({**result, "metrics": {"kl_max": 1.0}}))
    document["evidence"]["1"] = {**told, "again": {"result.json": {"file": "other.json"}}}
    audit.write(tmp_path / "report.html", document)
    assert "<summary>Run again: 1</summary>" in (tmp_path / "report.html").read_text()
    wrong = {"what": "verdict", "recorded": "exact", "found": "drifted", "explanation": "why"}
    differs = {**document, "verdict": "differs", "differences": [wrong], "compared": "nothing"}
    for said, first in ((document, "SAME: "), (differs, "DIFFERS: ")):
        audit.show(Say(), said, "runs/a")
        line = capsys.readouterr().out.splitlines()[0]
        assert line.startswith(first) and "3 runs" in line
    audit.write(tmp_path / "report.html", differs)
    heads = re.findall(r'<th scope="col">(.*?)</th>', (tmp_path / "report.html").read_text())
    assert heads[:4] == ["what", "in the record", "found now", "explanation"], "which is which"
    assert "run again now" in heads and "recorded" not in heads
    assert audit.sentence(differs).startswith("3 runs: verdict: recorded exact, found drifted")
    assert audit.sentence(differs).endswith("Compared: nothing.")
    placed = {**differs, "differences": [{**wrong, "point": "2"}]}
    assert audit.reason(placed) == "verdict of point .../2: recorded exact, found drifted"


def test_what_explains_the_others_comes_first_in_an_audit() -> None:
    told = [{"point": p, "what": w} for p in "10" for w in ("verdict", "run")]
    assert [d["point"] + d["what"] for d in audit.explaining(told)] == ["1run", "1verdict", "0run", "0verdict"]  # fmt: skip


def test_an_audit_shows_what_was_recorded_beside_what_came_again(tmp_path):
    results = {
        "recorded": {"verdict": "exact", "metrics": {"kl_max": 1e-12, "max_ulp": 3000}},
        "again": {"verdict": "exact", "metrics": {"kl_max": 2e-12, "max_ulp": 3000}},
    }
    for side, result in results.items():
        (tmp_path / f"{side}.json").write_text(json.dumps(result))
    told = {side: {"result.json": {"file": f"{side}.json"}} for side in results}
    held = {"metrics.kl_max": {"held_to": "at most 5e-12 apart", "why": "noise"}}
    one, two = figures.results(tmp_path, told)
    said, rows = figures.rows(one, two, held)
    assert "2 of 3" in said
    assert all(cell["kind"] == "n" for row in rows for cell in row[1:3]), "no screen breaks them"
    assert [[c["text"] if isinstance(c, dict) else c for c in row] for row in rows] == [
        ["verdict", "exact", "the same", "", ""],
        [
            "KL divergence per step, largest (nats)",
            "1e-12",
            "2e-12",
            "at most 5e-12 apart",
            "noise",
        ],
        ["largest difference in units in the last place", "3,000", "the same", "", ""],
    ]
    assert len(figures.rows(one, two, {})[1][0]) == 3


def test_every_figure_that_an_audit_compares_is_counted_those_of_lists_too():
    one = {"verdict": "exact", "metrics": {"kl_max": 1.0}, "curves": {"restored": {"kl": [1.0, 2.0, 3.0]}},
           "noise_floor": {"kl_max": 4.0}, "text": {"token_ids": [1, 2]},
           "elements": [{"name": "kv_cache", "digest": "a"}]}  # fmt: skip
    two = {**one, "curves": {"restored": {"kl": [1.0, 2.5, 3.5]}}, "noise_floor": {"kl_max": 4.5}}
    assert figures.tally(one, two) == (3, 6) and figures.tally(one, one) == (6, 6)
    told = figures.told(one, two)
    assert (told["figures"], told["same"], told["tokens"]) == (6, 3, 2)
    assert figures.rows(one, two, {})[0] == "Of its figures 3 of 6 are the same to the last digit."
    assert clause.within([told]).startswith("all 2 tokens and 3 of 6 figures are the same to the")
    shorter = {**one, "curves": {"restored": {"kl": [1.0]}}}
    assert figures.tally(one, shorter) == (4, 6) and figures.tally(shorter, one) == (4, 4)


def test_two_figures_of_an_audit_have_as_many_digits_as_tell_them_apart():
    assert figures.apart(0.340000001, 0.351) == ("0.34", "0.351")
    assert figures.apart(1.20338070535834e-05, 1.20339e-05) == ("1.20338e-05", "1.20339e-05")
    assert figures.apart(12.71629788078059, 12.716297880780587) == ("12.7", "12.7 (3.6e-15 less)")


def test_two_long_texts_are_shown_where_they_differ() -> None:
    was, now = ("the tokens of the run, within rounding", "the tokens of the run, bit for bit")
    told = {"what": "conclusion", "recorded": was, "found": now}
    assert [audit._told(told, side, 24) for side in audit.COMPARED] == ["...within rounding", "...bit for bit"]  # fmt: skip
    assert audit._told(told, "recorded") == was, "where there is room, all of it"
    digests = {"what": "d", "recorded": "a" * 30 + "b", "found": "a" * 30 + "c"}
    assert not audit._told(digests, "found", 24).startswith("...")


def test_an_audit_of_an_evaluation_counts_its_answers_and_the_figures_of_its_cells(tmp_path):
    """And has no row of what such a record does not have."""
    result = {"task": "evaluate", "verdict": "unjudged", "size": {"tokens": 0, "kv_bytes": 0},
              "soundness": {"paths": [{"error": 1e-9}]}}  # fmt: skip
    cell = {"prune": "none", "quantize": "none", "budget": 1.0, "cache": "auto", "asked": "after",
            "kv_bytes": 90.0, "kept_tokens": 9.0}  # fmt: skip
    row = [cell | {"measure": m, "value": v} for m, v in (("contains", 1.0), ("kl", 0.5))]
    moved = [*row[:1], row[1] | {"value": 0.25}]
    for side, table, ids in (("recorded", row, [1, 2]), ("again", moved, [1, 3])):
        (tmp_path / f"{side}-result.json").write_text(json.dumps(result))
        (tmp_path / f"{side}-evaluate.json").write_text(json.dumps(table))
        said = [{"ids": [7]}, {"ids": ids}]
        (tmp_path / f"{side}-answers.jsonl").write_text("\n".join(map(json.dumps, said)))
    told = {"record": "ab" * 32, "where": {}, "noise_floor": {}, "floors": {},
            **{side: {n: {"file": f"{side}-{n}"} for n in ("result.json", "evaluate.json", "answers.jsonl")}
               for side in ("recorded", "again")}}  # fmt: skip
    one, two = figures.results(tmp_path, told)
    said, rows = figures.rows(one, two, {})
    assert said == "Of its figures 4 of 5 are the same to the last digit."
    shown = [[c["text"] if isinstance(c, dict) else c for c in row] for row in rows]
    assert shown == [
        ["figures of the yardstick: its plain runs and their bounds", "1", "the same"],
        ["answers, by their tokens", "2", "1 is another, the first is number 2"],
        ["share of right answers, of each cell", "1", "the same"],
        [
            "KL divergence from the full cache (nats), of each cell",
            "1",
            "1 is another, the first is number 1",
        ],
        ["bytes of keys and values held, of each cell", "1", "the same"],
        ["tokens kept, of each cell", "1", "the same"],
    ]
    counted = figures.told(one, two)
    assert clause.within([counted]) == (
        "1 of 2 answers and 4 of 5 figures are the same to the last digit, the others within their stated bounds"
    )
    document = {"verdict": "same", "run": "runs/s", "points": 1, "compared": "bitwise", "differences": [],
                "environment": {"p": []}, "evidence": {"p": {**told, **figures.told(one, one)}}}  # fmt: skip
    assert audit.sentence(document) == (
        "Every figure and answer of 1 run is reproduced, bitwise (2 answers, 5 figures)."
    )
    assert figures.covered(tmp_path, document).startswith(
        "Compared: every answer, right answers, likelihood, divergence and bytes of every cell and the yardstick"
    )


def test_an_audit_of_a_pruned_run_has_both_of_its_verdicts():
    """The twin was not pruned: its one verdict is that on the restore."""
    whole = {"verdict": "equivalent", "oracle": {"ratio": 0.5}}
    itself = {"against": "saved", "verdict": "equivalent"}
    less = {"verdict": "diverged", "oracle": {"ratio": 1e6}, "itself": itself}
    names = [row[0] for row in figures.rows(less, less, {})[1]]
    assert names == ["verdict: against the full cache", "verdict: restored as saved", "times the plain path's error against float64"]  # fmt: skip
    names = [row[0] for row in figures.rows(whole, whole, {})[1]]
    assert names == ["verdict", "times the plain path's error against float64 (2 is allowed)"]
    told = [figures.told(one, one) for one in (less, whole)]
    assert clause.verdicts(told[:1]) == " (the verdicts: restore equivalent, against the full cache diverged)"  # fmt: skip
    assert clause.verdicts(told[1:]) == " (the verdict: equivalent)"
    assert clause.verdicts(told[:1] * 2) == " (the verdicts: 2 diverged; of the restores alone: 2 equivalent)"  # fmt: skip
    another = less | {"itself": itself | {"verdict": "drifted"}}
    assert figures.tally(less, another) == (2, 3)


def test_a_record_of_another_form_is_counted_without_the_blocks_that_have_it():
    """And its twin, as a run writes it, whole."""
    sound = {"verdict": "exact", "metrics": {"kl_max": 1.0}, "diagnosis": {"picture": [1.0]},
             "elements": [{"name": "kv_cache", "digest": "a"}]}  # fmt: skip
    assert figures.shaped(sound) == sound
    for block, value in (("diagnosis", "none"), ("metrics", [1]), ("metrics", {"kl_max": {}}), ("elements", ["a"]),
                         ("verdict", ["exact"])):  # fmt: skip
        told = figures.told({**sound, block: value}, sound)
        assert told["figures"] <= figures.told(sound, sound)["figures"]
        assert block not in figures.shaped({**sound, block: value})
    assert figures.shaped("a text") == {}


def test_of_points_that_failed_nothing_is_said_of_figures_and_each_place_names_its_points(tmp_path):
    """And its twin, of which all ended, names none."""
    for name, result in (
        ("r", {"verdict": "exact", "metrics": {"kl_max": 0.0}}),
        ("f", {"verdict": "failed", "stages": []}),
    ):
        (tmp_path / f"{name}.json").write_text(json.dumps(result))

    def told(file: str, **more) -> dict:
        sides = {side: {"result.json": {"file": f"{file}.json"}} for side in ("recorded", "again")}
        return {"record": "ab" * 32, "where": {}, "floors": {}, **sides, **more}

    ended, failed = told("r", where={"platform": "Linux", "threads": 2}), told("f", came="failed")
    document = {"verdict": "same", "run": "runs/s", "points": 3, "compared": "bitwise", "differences": [],
                "environment": {p: [] for p in "012"}, "evidence": {"0": ended, "1": failed, "2": ended}}  # fmt: skip
    audit.write(tmp_path / "report.html", document)
    page = (tmp_path / "report.html").read_text()
    assert ".../0 and .../2: On Linux" in page and ".../1: It did not come to its end." in page
    assert audit.FAILED.format(".../1") in page and audit.UNPLACED not in page
    audit.write(tmp_path / "report.html", document | {"evidence": dict.fromkeys("012", ended)})
    page = (tmp_path / "report.html").read_text()
    assert "The environment: of what failed" not in page and ".../0" not in page
