"""What a sweep and its points are called, and what the description of its run says."""

import json

import pytest

from harness.cli import done
from harness.present.sweep import described
from harness.results import points as pages
from harness.results.sweep import sweep_of
from harness.track import contents, description, links
from harness.track.totals import first, summed, totals


@pytest.mark.parametrize(
    "override, said, brief",
    [
        ("prune.ratio=0.5", "prune.ratio=0.5", "prune.ratio=0.5"),
        ("snapshot=/far/away/mine", "snapshot=/far/away/mine", "snapshot=mine"),
        ("text=' a, b'", 'text=" a, b"', 'text=" a, b"'),
        ("text='${literal:\"IGxldCBrIGJlIDUgLg==\"}'", 'text=" let k be 5 ."', 'text=" let k be 5 ."'),
    ],
)  # fmt: skip
def test_a_run_is_named_in_words(override, said, brief):
    assert contents.read(override) == said and contents.read(override, True) == brief


def test_the_parent_run_describes_what_was_varied(swept):
    text = described(sweep_of(swept, pages.rows(done.finished(swept))))[2]
    head, _, *lines = text.splitlines()
    assert head.startswith("| point | cache | prompt.batch | verdict |")
    assert "| 0 | dynamic | 1 | exact |" in text and any(
        "| 99 | failed |" in line for line in lines
    )


def test_a_point_is_named_by_what_was_varied(tmp_path):
    """Hydra spells a point's overrides its own way; what is shared by all is left out."""
    (tmp_path / "multirun.yaml").write_text(
        "hydra: {overrides: {task: ['seed=1,2', 'track.uri=http://127.0.0.1:9', \"text='a b'\"]}}"
    )
    (tmp_path / "0" / ".hydra").mkdir(parents=True)
    (tmp_path / "0" / ".hydra" / "overrides.yaml").write_text(
        r"['seed=1', 'track.uri=http\://127.0.0.1\:9', 'text=a\ b']"
    )
    assert contents.varied(tmp_path / "0") == ["seed=1"]


def test_a_sweeps_description_leads_to_its_points_side_by_side():
    """The addresses are those of MLflow 3.17's own pages."""
    text = links.comparison("1", "abc", ["r1", "r2"])
    assert "[Compare the 2 points](#/compare-runs?runs=%5B%22r1%22%2C%22r2%22%5D&experiments=%5B%221%22%5D&workflowType=machine_learning)" in text  # fmt: skip
    assert "tags.%60mlflow.parentRunId%60%20%3D%20%27abc%27" in text
    many = links.comparison("1", "abc", [f"{i:032x}" for i in range(1000)])
    assert "first 50 points" in many and "all 1000" in many and len(many) < 3000
    assert links.comparison("1", "abc", ["r1"]) == ""
    assert "[Compare the 1 fault and the control]" in links.comparison(
        "1", "abc", ["r1", "r2"], "faults"
    )


@pytest.mark.parametrize("many", (60, 5000))
def test_a_description_ends_with_a_row_below_the_limit_of_a_tag(tmp_path, many):
    """MLflow would cut it within a word, and say so on the console."""
    rows = [f"| {i} | {'x' * 140} |" for i in range(many)]
    table = ["| folder | reason |", "|---|---|", *rows]
    text = description.of_sweep("words", "", "", "\n".join(table))
    *told, blank, last = text.splitlines()
    assert 7700 < len(text) <= description.LIMIT
    assert [line.replace("&emsp;", "") for line in told[2:]] == table[: len(told) - 2]
    assert (blank, last) == ("", f"{many - (len(told) - 4)} more rows.")
    whole = description.of_sweep("words", "", "", "\n".join(table[:40]))
    assert whole.replace("&emsp;", "").endswith(table[39])
    parts = [{"name": row, "metrics": {"kl": 1.0}} for row in rows]
    result = {"task": "experiment", "reason": "r", "verdict": "unjudged", "folder": "f"}
    note = description.note(result, "id", tmp_path, parts)
    assert len(note) <= description.LIMIT and note.endswith("task=audit run=id`")
    there = description.there("http://me:word@host:5000", "mine")
    note = description.note(result, "id", tmp_path, parts, there)
    assert note.endswith("task=audit run=id track.uri=http://...@host:5000 track.experiment=mine`")
    stopped = {**result, "verdict": "failed", "conclusion": "It failed: no room."}
    assert description.note(stopped, "id", tmp_path).startswith("**failed**: no room.\n")
    assert description.there(None, "harness") == ""
    refused = {**result, "reason": "\n".join(["refused:", *rows])}
    note = description.note(refused, "id", tmp_path)
    assert 7700 < len(note) <= description.LIMIT and note.splitlines()[-1] in rows


def test_a_search_tells_its_objectives_to_its_parent_run():

    rows = [
        {"verdict": "unjudged", "point": str(value), "evaluate.contains": value}
        for value in (0.5, None, 1.0)
    ]
    best = [told for told in totals(rows, ["evaluate.contains"], (), "1.0") if "best" in told[0]]
    assert best == [("best/contains", 1.0, 0)]
    told = list(totals(rows, ["evaluate.contains"]))
    assert ("sweep/largest_contains", 1.0, 0) in told
    older = dict.fromkeys(["sweep/largest_evaluate.contains", "best/contains"])
    kept = {key: value for key, value, _ in totals(rows, ["evaluate.contains"], older)}
    assert kept["sweep/largest_evaluate.contains"] == 1.0, "as an older version called it"
    assert kept["best/contains"] != kept["best/contains"], "none is best any more"
    row = {"verdict": "exact", "point": "0", "error_ratio": 0.5, "per_token_s": 0.1, "kv_bytes": 9}
    own = {"best/oracle/ratio": 0.5, "best/per_token": 0.1, "best/kv_bytes": 9.0}
    assert {k: v for k, v, _ in totals([row], (), (), "0") if "best/" in k} == own, "as the point's"
    corrected = {key: value for key, value, _ in totals([row], (), ["best/error_ratio"], "0")}
    assert corrected["best/error_ratio"] == 0.5, "where an older version called it so"
    some = [{**row, "point": p, "kv_bytes": n} for p, n in (("0", 9), ("1", 5), ("2", 1))]
    middle = {k: v for k, v, _ in totals(some, (), (), "", ["0", "1"])}
    assert middle["best/kv_bytes"] == 7.0, "of one choice under two seeds"
    assert not any(step for *_, step in told), (
        "of a series the last point's would pose as the sweep's"
    )
    assert "sweep/exact" not in {key for key, *_ in told}  # nothing to draw
    assert ("sweep/exact", 0.0, 0) in totals(
        rows, before=["sweep/exact"]
    )  # a later try may correct it
    alike = [{"verdict": "exact", "kl_max": value} for value in (0.0, 0.0)]
    assert {key for key, *_ in totals(alike)} == {"sweep/points", "sweep/exact"}


def test_a_description_has_what_was_measured_and_each_sentence_once(tmp_path):
    nothing = dict.fromkeys(("kl_max", "top1_agreement"))
    result = {"task": "evaluate", "verdict": "unjudged", "reason": "24 prompts: all right", "metrics": nothing,
              "conclusion": "24 prompts: all right.", "folder": "f"}  # fmt: skip
    cells = [{"name": "full cache", "metrics": {"answers/contains": 1.0, "size/kv_bytes": 10}},
             {"name": "knorm 50%", "metrics": {"answers/contains": 0.25}}]  # fmt: skip
    note = description.note(result, "id", tmp_path, cells)
    assert note.count("24 prompts: all right") == 1 and "None" not in note and "kl_max" not in note
    table = ("| &emsp; | contains (share)&emsp; | kv_bytes |", "|---|---|---|", "| full&nbsp;cache&emsp; | 1&emsp; | 10 bytes |",
             "| knorm&nbsp;50%&emsp; | 0.25&emsp; | - |", "", "&nbsp;", "", "Folder: `f`")  # fmt: skip
    assert "\n".join(table) in note, "MLflow draws no room around a cell"
    marked = description.note(
        result, "id", tmp_path, [cells[0] | {"as": "best"}, cells[1]], None, "LINKS\n\n"
    )
    assert (
        "\n\nLINKS\n\n| &emsp;" in marked and "| **full&nbsp;cache**&nbsp;(best)&emsp; |" in marked
    )
    assert "|" not in description.note(result, "id", tmp_path)  # nothing measured, no table
    judged = {
        **result,
        "task": "experiment",
        "metrics": {**nothing, "kl_max": 2.0, "bitwise_equal": False},
    }
    assert "`time/` are seconds" in description.note(
        judged | {"time_s": {"load": 1.0}}, "id", tmp_path
    )
    note = description.note({**judged, "reason": "other tokens"}, "id", tmp_path, cells)
    assert (
        "| kl_max (nats)&emsp; | 2&emsp; | - |\n| bitwise_equal&emsp; | no&emsp; | - |" in note
        and "top1" not in note
        and "other tokens" in note
    )


def test_a_point_of_a_search_is_named_by_the_figures_that_it_was_asked_for(tmp_path):
    result = {"task": "evaluate", "verdict": "unjudged", "size": {"kv_bytes": 173568}}
    (tmp_path / "result.json").write_text(json.dumps(result))
    assert contents.word(result, tmp_path) == ""
    config = {"config": {"report": {"objectives": ["size.kv_bytes", "size.no"]}}}
    (tmp_path / "record.json").write_text(json.dumps(config))
    assert contents.word(result, tmp_path) == "kv_bytes 170 KiB, no -"
    assert contents.word({**result, "verdict": "failed"}, tmp_path) == "failed"
    assert "verdict" not in contents.tags(result, tmp_path)
    assert contents.tags({**result, "task": "experiment"}, tmp_path)["verdict"] == "unjudged"


def test_points_that_tie_are_counted_where_one_of_them_is_named(swept):
    rows = [{"exit_code": 0}, {"exit_code": 2}]
    one = {"exit_code": "2", "best": "dynamic batch=1"}
    assert summed(swept, rows, "0", ["0"]) == summed(swept, rows, "0") == one
    tied = one | {"best": "dynamic batch=1 (and 2 more)"}
    assert summed(swept, rows, "0", ["0", "2", "4"]) == tied, "they tie"
    assert summed(swept, rows, "", ["0", "2", "4"]) == tied, "each is best in a question of its own"
    assert "best" not in summed(swept, rows, "", [])
    assert summed(swept, rows, "", ["2"], whole=False) == {
        "best": summed(swept, rows, "2")["best"]
    }, "so far"
    chance = summed(swept, rows, "2", sentence="The nearest: x. No nearer than chance: the control")
    assert chance["best"] == f"{summed(swept, rows, '2')['best']} (no nearer than chance)"
    assert (first("", ["2", "4"]), first("0", ["2"]), first("", [])) == ("2", "0", "")
    two = links.of_sweep("1", "above", {"sweep/2": "two"}, "2", 2)
    assert "[Open the first marked point](#/experiments/1/runs/two?" in two
    assert "The first marked point alone: `" in description.repeated(swept, "2", "id", "", None, 2)
