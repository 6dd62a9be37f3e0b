"""The page of a sweep: its headline, its table of points and its tables over seeds and cells, from rows alone."""

import csv
import json
import re
from pathlib import Path

import pytest
from sweeps import drawn, points

from harness.report import html
from harness.report.sweep import cells as answers
from harness.report.sweep import evaluated as grid
from harness.report.sweep import page as sweep
from harness.report.sweep import points as table
from harness.report.sweep import roles, seeds, summary, variation
from harness.snapshot.result import ROWS


def test_the_answer_is_a_column_only_where_one_was_expected(tmp_path):
    assert sweep._answer({"expected": "5", "restored_right": False}) == {"answer": "wrong"}
    assert sweep._answer({"continuation": "5"}) == {}
    page = drawn(
        tmp_path, points({"prune": "a", "answer": "right"}, {"prune": "b", "answer": "wrong"})
    )
    assert ">diverged, right<" in page and ">diverged, wrong<" in page


@pytest.mark.parametrize(
    "changes, tone",
    [
        ({"verdict": "exact"}, "good"),
        ({"verdict": "equivalent"}, "alike"),
        ({"verdict": "unjudged"}, "soft"),
        ({"verdict": "exact", "answer": "wrong"}, "fair"),
        ({"verdict": "exact", "answer": "right"}, "good"),
        ({"verdict": "diverged"}, "bad"),
    ],
)
def test_the_headline_is_green_only_for_what_was_judged_and_answered(tmp_path, changes, tone):
    page = drawn(tmp_path, points({"prune": "a", **changes}, {"prune": "b", **changes}))
    assert f'<span class="verdict {tone}">2 {changes["verdict"]}</span>' in page
    assert ("No point gives a right answer" in page) is (changes.get("answer") == "wrong")
    assert f'class="verdict {tone}"' in html.page("t", [], changes["verdict"], "r", tone)
    plain = html.page("t", [], "unjudged", "r")
    assert 'class="verdict soft"' in plain


def test_the_table_of_points_says_once_what_is_the_same_and_has_no_more_columns_than_fit(tmp_path):
    told = "error against float64 1.2e-05, plain path 3.54e-05"
    rows = points(
        {"prune": "a", "reason": f"step 2 chooses another token; {told}"},
        {"prune": "b", "reason": f"{told}; every chosen token is the same", "error_ratio": 4.0},
        {"prune": "c", "verdict": "failed", "error_ratio": None, "reason": told},
    )
    block = table.every(rows, ["prune"], {}, {}, alone=False)
    place = block["columns"].index("reason")
    said = [line[place] for line in block["rows"]]
    why = ["step 2 chooses another token", "every chosen token is the same"]
    assert said == [*why, 'see "What failed"']  # which says it whole
    assert "bytes on disk 1,000" in block["text"] and "bytes" not in block["columns"]
    assert "error" in block["columns"] and "sweep.csv" not in block["text"]
    wide = [{**row, **{f"o{i}": i for i in range(9)}, "load_s": float(n), "max_abs_diff": float(n),
             "per_token_s": float(n)} for n, row in enumerate(rows)]  # fmt: skip
    block = table.every(wide, ["prune", *(f"o{i}" for i in range(9))], {}, {}, alone=False)
    assert "logits" not in block["columns"] and "load, s" not in block["columns"]
    assert "error" in block["columns"] and "Every figure: sweep.csv" in block["text"]
    assert all(len(line) == len(block["columns"]) for line in block["rows"])


def evaluated(folder: Path, point: str, full: float, short: float, low: float) -> None:
    """An evaluation of two cells beside the full cache: one that answers `short`, one that answers all."""
    cells = (
        ("none", 1.0, 400, full, 0.0),
        ("random", 0.25, 100, short, low),
        ("random", 0.5, 200, full, 0.0),
    )
    measures = ("contains", "exact", "nll", "kl", "divergence_step")
    rows = [{"measure": m, "prune": p, "quantize": "none", "budget": b, "cache": "dynamic", "asked": "after",
             "kv_bytes": n, "per_token_s": 0.1, "n": 9, "value": v, "low": v, "high": v, "delta": v - full,
             "delta_low": v - full, "delta_high": h}
            for p, b, n, v, h in cells for m in measures]  # fmt: skip
    (folder / point).mkdir()
    (folder / point / ROWS).write_text(json.dumps(rows))


def test_a_sweep_of_evaluations_says_which_cell_to_choose_and_marks_it_in_each_point(tmp_path):
    rows = points({"seed": "0", "outcome": "done"}, {"seed": "1", "outcome": "done"})
    assert answers.conclusion(tmp_path, rows) == "" and not answers.sections(tmp_path, rows, [])
    evaluated(tmp_path, "0", 1.0, 1.0, 0.0)
    evaluated(tmp_path, "1", 1.0, 0.1, -0.5)
    said = answers.conclusion(tmp_path, rows)
    assert said.startswith(
        "Smallest safe choice: random 25% in 1, random 50% in 1 of 2 points. The full cache answers "
    )
    page = drawn(tmp_path, rows)
    assert said in page and "asked" not in answers.sections(tmp_path, rows, ["seed"])[0]["columns"]
    block = answers.sections(tmp_path, rows, ["seed"])[0]["rows"]
    best = [(line[0]["text"], line[1]["text"]) for line in block if isinstance(line[0], dict)]
    assert best == [("random 25%", "0"), ("random 50%", "1")]
    none = "The prompts of seed=0 cannot tell: the full cache itself fails most of them."
    for point, told in (
        ("0", none),
        ("1", "These prompts cannot tell: in no point does the full cache"),
    ):
        assert "cannot tell" not in said
        (tmp_path / point / ROWS).unlink()
        (tmp_path / point).rmdir()
        evaluated(tmp_path, point, 0.0, 0.0, 0.0)
        assert told in answers.conclusion(tmp_path, rows)
        if told == none:
            assert answers.NONE not in answers.conclusion(tmp_path, rows)
            named = grid.words(grid.completed(tmp_path, rows), ["seed"])
            assert named == "1 of 1 safe (1 cannot tell): random 50%"


def test_an_option_that_changes_nothing_measured_is_said_to(tmp_path):
    rows = points(*({"seed": s, "steps": n, "outcome": "done"} for s in "01" for n in "46"))
    for i, short in enumerate((0.1, 0.5, 0.1, 0.5)):
        evaluated(tmp_path, str(i), 1.0, short, -0.5)
    nothing = "In no cell does seed change anything that is measured"
    (block,) = answers.sections(tmp_path, rows, ["seed", "steps"])
    assert nothing in block["text"] and "does steps change" not in block["text"]
    assert nothing in answers.conclusion(tmp_path, rows) and nothing in drawn(tmp_path, rows)
    table = json.loads((tmp_path / "3" / ROWS).read_text())
    table[-1]["value"] += 0.01  # one figure of one cell
    (tmp_path / "3" / ROWS).write_text(json.dumps(table))
    assert answers.unmoved(tmp_path, rows, ["seed", "steps"]) == []


def test_a_sweep_of_evaluations_has_a_table_of_cells_and_no_empty_column(tmp_path):
    empty = {"kl_max": None, "verdict": "unjudged", "task": "evaluate", "outcome": "done"}
    rows = points(*({**empty, "seed": s} for s in "01"))
    for point in "01":
        evaluated(tmp_path, point, 1.0, 0.25, -0.5)
    sweep.write(tmp_path, rows, 2)
    cells = list(csv.DictReader((tmp_path / "answers.csv").open()))
    assert len(cells) == 6 and {c["point"] for c in cells} == {c["seed"] for c in cells} == {*"01"}
    assert [c["contains"] for c in cells[:3]] == ["1.0", "0.25", "1.0"]
    assert (cells[1]["prune"], cells[1]["budget"], cells[1]["kv_bytes"], cells[1]["n"]) == (
        "random",
        "0.25",
        "100",
        "9",
    )
    (head, *_) = sweep.read_csv(tmp_path)
    assert "kl_max" not in head and head["outcome"] == "done" and head["seed"] == "0"
    assert any("answers.csv" in line for line in summary.closing(tmp_path, rows, 2, []))
    other = tmp_path / "other"  # of experiments: every column stays
    other.mkdir()
    sweep.write(other, [{**row, "task": "experiment"} for row in rows], 2)
    assert "kl_max" in sweep.read_csv(other)[0] and not (other / "answers.csv").exists()


def test_over_seeds_every_other_option_has_one_line_with_its_verdicts_and_its_spread(tmp_path):
    rows = points(*({"prune": p, "seed": str(n), "kl_max": kl * (n + 1), "verdict": v}
                    for p, kl in (("a", 1.0), ("b", 10.0))
                    for n, v in enumerate(("drifted", "diverged", "diverged"))))  # fmt: skip
    rows[5] |= {"verdict": "failed", "kl_max": None}
    (block,) = seeds.sections(rows, ["prune", "seed"])
    assert block["columns"] == ["prune", "seeds", "drifted", "diverged", "failed", "median", "smallest", "largest"]  # fmt: skip
    (first, *some, middle, least, most), other = block["rows"]
    assert (first, middle, least, most) == ("a", 2.0, 1.0, 3.0) and other[-3:] == [15.0, 10.0, 20.0]
    assert [c["text"] if isinstance(c, dict) else c for c in some] == [3, "1", "2", ""]
    assert len(block["panels"]) == 1 and "Over the seeds" in drawn(tmp_path, rows)
    mine = seeds.alike(rows, ["prune", "seed"], ["0", "1", "2"])
    assert mine == ["0", "1", "2"], "one choice under every seed, whose figures stand for the sweep"
    for marked in (["0", "1"], ["0", "1", "5"], ["0"]):
        assert not seeds.alike(rows, ["prune", "seed"], marked), marked
    still = [{**row, "kl_max": 1.0} for row in rows]
    (block,) = seeds.sections(still, ["prune", "seed"])
    assert not block["panels"] and "In no line does seed change it." in block["text"]
    assert block["columns"][-1] == "KL divergence per step, largest (nats)", "one figure, once"
    means = [{**row, "kl_mean": 0.5} for row in still]
    assert "per step, mean" in seeds.sections(means, ["prune", "seed"])[0]["text"], "as the table"
    assert not seeds.sections(rows, ["prune"])  # no seed was varied
    assert not seeds.sections(rows[:1] + rows[4:5], ["prune", "seed"])  # each line has one


def test_seeds_are_no_curve_and_the_headline_says_what_they_came_to(tmp_path):
    rows = points(*({"verdict": "equivalent", "seed": s, "error_ratio": e, "kl_max": e, "per_token_s": e}
                    for s, e in (("10", 0.5), ("9", 0.25), ("1", 0.75))))  # fmt: skip
    said = seeds.sentence(rows, ["seed"])
    assert said == (
        "over seed: all equivalent, error 0.25 to 0.75 of rounding's own (median 0.5, 2 allowed)"
    )
    page = drawn(tmp_path, rows)
    assert f"3 points {said}." in page.replace("&#39;", "'")
    named = [re.findall(r">(10|9|1)</text>", figure)[:3] for figure in page.split("<figure>")[2:]]
    assert named and all(
        names == ["1", "9", "10"] for names in named
    )  # in order, one beside the other
    far = [{**row, "verdict": v, "prune": p, "prompt.seed": s} for row in rows[:1]
           for p in "ab" for s, v in (("1", "drifted"), ("2", "diverged"))]  # fmt: skip
    assert seeds.sentence(far, ["prune", "prompt.seed"]) == (
        "over prompt.seed and prune: " + "; ".join(f"prune={p} 1 drifted, 1 diverged, KL divergence per step, "
                                         "largest (nats) 0.5 in each" for p in "ab")
    )  # fmt: skip
    assert seeds.sentence(rows, ["prune"]) == "" == seeds.sentence(rows[:1], ["seed"])
    across = [
        {**row, "kept_tokens": 2 * int(row["prompt.seed"]) + n // 2} for n, row in enumerate(far)
    ]
    assert roles.ordered(across, "prompt.seed", "kept_tokens") == []  # no line leads through them


def test_the_table_counts_the_first_other_token_as_its_reason_does():
    assert sweep._from_1({"first_divergence": 4}) == {"first_divergence_from_1": 5}
    assert sweep._from_1({}) == {"first_divergence_from_1": None}
    rows = points({"first_divergence_from_1": 5}, {"first_divergence_from_1": 6})
    assert variation.varied(rows) == []


def test_the_title_says_what_was_varied_and_of_which_model_and_the_command_is_below(tmp_path):
    rows = points({"model": "path", "model.path": "/m/qwen/"}, {"prune": "a", "model": "path", "model.path": "/m/qwen/"})  # fmt: skip
    (tmp_path / "multirun.yaml").write_text("hydra: {overrides: {task: ['prune=a,b', steps=2]}}")
    page = sweep.drawn(tmp_path, rows, 2, "2026-11-22_13-50")
    assert (
        "<h1>Sweep of prune: qwen</h1>" in page
        and '<p class="soft">2026-11-22_13-50: steps 2</p>' in page
    )
    assert "<pre>python -m harness -m prune=a,b steps=2</pre>" in page
    (tmp_path / "multirun.yaml").write_text("hydra: {}")
    assert "Run it again" not in sweep.drawn(tmp_path, rows, 2, "n")


def test_bytes_are_read_in_groups_of_three_digits():
    assert table._shown("bytes_copied_per_token", 206130.0)["text"] == "206,130"
    assert table._shown("kl_max", 206130.0) == 206130.0


def test_the_table_of_every_figure_is_a_link_beside_the_page(tmp_path):
    page = drawn(tmp_path, points({"prune": "a"}, {"prune": "b"}))
    assert '<p class="links"><a href="sweep.csv">sweep.csv</a>\n<a href="sweep.json">' in page


def test_where_pruning_varies_the_table_says_what_is_held():
    rows = points(
        {"prune": "a", "kv_bytes": 900}, {"prune": "b", "kept_tokens": 20, "kv_bytes": 500}
    )
    columns = table.every(rows, ["prune"], {}, {}, alone=False)["columns"]
    assert "tokens kept" in columns and "K/V bytes" in columns
    other = table.every([{**r, "seed": r["prune"]} for r in rows], ["seed"], {}, {}, alone=False)[
        "columns"
    ]
    assert "tokens kept" not in other and "K/V bytes" not in other
