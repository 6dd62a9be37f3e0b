"""The page of a sweep: what is marked, drawn, said and folded, from rows alone."""

import csv
import json
import re
import shlex
from pathlib import Path

import pytest

from harness.config import literal
from harness.report import (
    answers,
    badge,
    choice,
    closing,
    html,
    panels,
    plots,
    scatter,
    search,
    seeds,
    summary,
    sweep,
)
from harness.report import points as table
from harness.snapshot import objective
from harness.snapshot.result import ORDER, ROWS

ROW = {
    "point": "0", "verdict": "diverged", "exit_code": 0, "reason": "step 2 chooses another token",
    "prune": "snapkv", "prune.ratio": "0.5", "kl_max": 1.0, "max_abs_diff": 2.0, "error_ratio": 3.0,
    "noise_kl_max": 1e-12, "kept_tokens": 40, "stored_bytes": 1000, "per_token_s": 0.1,
    "save_s": 0.2, "load_s": 0.3,
}  # fmt: skip


def points(*changes: dict) -> list[dict]:
    return [{**ROW, "point": str(i), **change} for i, change in enumerate(changes)]


def drawn(folder: Path, rows: list[dict]) -> str:
    sweep.write(folder, rows, len(rows))
    return (folder / "sweep.html").read_text()


def marked(page: str) -> list[str]:
    return re.findall(
        r'<td[^>]* class="\w+ best(?: nearest)?">[^<]*(?:<i[^<]*</i>)?\s*<a href="(\d+)/', page
    )


def test_the_best_point_is_marked_once_by_answer_then_verdict_then_bytes(tmp_path):
    rows = points(
        {"prune": "a", "answer": "wrong", "verdict": "drifted", "stored_bytes": 1},
        {"prune": "b", "answer": "right", "stored_bytes": 10},
        {"prune": "c", "answer": "right", "verdict": "drifted", "stored_bytes": 90},
        {"prune": "d", "answer": "right", "verdict": "drifted", "stored_bytes": 50},
        {"prune": "e", "answer": "right", "verdict": "drifted", "stored_bytes": 5, "exit_code": 1},
    )
    page = drawn(tmp_path, rows)
    assert marked(page) == ["3"]
    assert "Smallest that keeps every token: prune=d (drifted, right answer, 50 bytes)." in page


def test_where_all_points_are_alike_none_is_best(tmp_path):
    rows = points({"prune": "a", "per_token_s": 0.2}, {"prune": "b"})
    assert choice.best(rows) == [] and marked(drawn(tmp_path, rows)) == []
    rows = [{**row, "verdict": "exact", "kl_mean": kl} for row, kl in zip(rows, (0.0, 1e-9))]
    assert choice.chosen(rows, ["prune"]) == []  # rounding is not nearer


def test_a_point_that_failed_is_never_best():
    rows = points({"verdict": "failed", "stored_bytes": None, "per_token_s": None}, {"exit_code": 1},
                  {"exit_code": 1, "stored_bytes": 900})  # fmt: skip
    assert choice.best(rows)[0]["point"] == "2"


def test_identical_values_are_said_not_drawn(tmp_path):
    rows = points({"prune": "a", "save_s": 0.1}, {"prune": "b", "save_s": 0.4})
    page = drawn(tmp_path, rows)
    assert "The same in every point: largest difference" not in page
    assert "KL divergence per step, largest (nats) is 1" in page
    assert page.count("<figure>") == 1  # only the time to save differs
    assert "to save and to load, by prune." in page  # bytes are the same: no axis of theirs
    rows[1]["kl_max"] = 5.0
    assert drawn(tmp_path, rows).count("<figure>") == 2


@pytest.mark.parametrize(
    "verdict, kind", [("exact", "good"), ("drifted", "fair"), ("failed", "bad")]
)
def test_points_have_the_colour_of_their_verdict(verdict, kind):
    rows = points({"kl_max": 1.0}, {"kl_max": 2.0, "kept_tokens": 80})
    picture, _ = scatter.scatter(
        rows, "kept_tokens", "kl_max", lambda row: kind, (None, None), "t", "x", "y"
    )
    assert f"var(--{kind})" in picture and plots.VERDICTS[kind][0] not in picture
    assert badge.kind(verdict) == kind


def test_a_named_axis_stands_in_order_of_appearance():
    assert scatter.positions(["b", "a", "b"]) == ([0.0, 1.0, 0.0], ["b", "a"])
    assert scatter.positions(["0.5", "2"]) == ([0.5, 2.0], [])


def test_a_thousand_points_are_tiles_with_the_table_folded(tmp_path):
    rows = points(*({"seed": str(i), "kl_max": float(i + 1)} for i in range(1000)))
    page = drawn(tmp_path, rows)
    assert page.count('title=".../') == 1000 and "<summary>Every point</summary>" in page
    assert len(page) < 3_000_000
    few = drawn(tmp_path, rows[:5])
    assert 'title=".../' not in few and "<h2>Every point</h2>" in few


def test_the_answer_is_a_column_only_where_one_was_expected(tmp_path):
    assert sweep._answer({"expected": "5", "restored_right": False}) == {"answer": "wrong"}
    assert sweep._answer({"continuation": "5"}) == {}
    page = drawn(
        tmp_path, points({"prune": "a", "answer": "right"}, {"prune": "b", "answer": "wrong"})
    )
    assert ">diverged, right<" in page and ">diverged, wrong<" in page


def test_exact_is_better_than_equivalent_however_large(tmp_path):
    rows = points({"prune": "a", "verdict": "equivalent", "stored_bytes": 1},
                  {"prune": "b", "verdict": "exact", "stored_bytes": 9000})  # fmt: skip
    assert choice.best(rows)[0]["point"] == "1" and marked(drawn(tmp_path, rows)) == ["1"]
    rows[1]["exit_code"] = 1  # what is required comes before all
    assert choice.best(rows)[0]["point"] == "0"


def test_no_two_verdicts_have_the_same_sign_and_exact_and_equivalent_not_the_same_colour(tmp_path):
    assert len(set(badge.SIGNS.values())) == len(ORDER) == len(badge.SIGNS)
    rows = points({"prune": "a", "verdict": "equivalent"}, {"prune": "b", "verdict": "exact", "save_s": 9.0})  # fmt: skip
    page = drawn(tmp_path, rows)
    for tone, sign, word in (("good", "=", "exact"), ("alike", "\u2248", "equivalent")):
        assert f'<b class="key {tone}">{sign}</b> {word}' in page, "the legend"
        assert re.search(rf'<td class="{tone}[^>]*>\s*<i[^>]*>{sign}</i> <a href="\d+/report.html">{word}</a>', page), "the grid"  # fmt: skip
    many = drawn(tmp_path, [{**r, "seed": str(i)} for i, r in enumerate(rows * 200)])
    assert many.count("<i>=</i>") == many.count("<i>\u2248</i>") == 200


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


SEARCH = """
report: {objectives: [evaluate.contains, evaluate.kv_bytes]}
hydra: {sweeper: {direction: [maximize, minimize]}}
"""


def search_of(folder: Path, *pairs: tuple[float | None, float]) -> str:
    (folder / "multirun.yaml").write_text(SEARCH)
    changes = [
        {"verdict": "unjudged", "prune.ratio": f"0.{i + 1}2345678901", "per_token_s": None, "stored_bytes": 0,
         "evaluate.contains": recall, "evaluate.kv_bytes": nbytes}
        for i, (recall, nbytes) in enumerate(pairs)
    ]  # fmt: skip
    return drawn(folder, points(*changes))


def test_a_search_shows_its_objectives_and_marks_the_pareto_front(tmp_path):
    page = search_of(tmp_path, (0.5, 20480), (1.0, 81920), (0.4, 40960), (1.0, 102400), (None, 1.0))
    assert 'class="verdict soft">2 of 5 on the Pareto front<' in page
    assert (
        "From share of right answers 50% at 20 KiB to share of right answers 100% at 80 KiB."
        in page
    )
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", page.split("Every point<")[1])
    assert heads[1:5] == [
        "prune.ratio",
        "right answers, %",
        "keys and values held, KiB",
        "front",
    ]
    assert re.findall(r'<a href="(\d)/report.html">\d</a></td>.*?<td[^>]* class="alike">(.*?)</td>', page) == [
        ("0", "\u25c6 front"), ("1", "\u25c6 front"), ("2", ""), ("3", ""), ("4", "")]  # fmt: skip
    assert page.count("<figure>") == 1 and "0.1235<" in page and "Verdicts</h2>" not in page
    assert ">50<" in page and ">20<" in page


def test_a_point_whose_cache_was_written_into_is_told_where_another_was_only_read(tmp_path):
    some = [{"mutated": False}, {"mutated": True}]
    assert re.findall("only read|written into", drawn(tmp_path, points(*some))) == [
        "only read",
        "written into",
    ]
    exact = {"verdict": "exact", "stored_bytes": 10}
    rows = points(
        {"cache": "manual", "mutated": False},
        {**exact, "cache": "dynamic", "mutated": True},
        {**exact, "cache": "cloned", "mutated": False},
    )
    page = drawn(tmp_path, rows)
    assert marked(page) == ["2"]
    assert (
        "The only exact point that leaves your cache as it was: cache=cloned (exact, 10 bytes)."
        in page
    )
    assert "<summary>How the best is chosen</summary>" in page
    assert ".cards td.best { padding-left" in page  # or its bar would strike the first letter
    rows.append({**rows[1], "point": "3", "cache": "static", "stored_bytes": 90})
    said = "The only exact point that leaves your cache as it was: cache=cloned (exact, 10 bytes)."
    assert said in drawn(tmp_path, rows) and summary.told(rows, {})[1] == said
    alike = drawn(tmp_path, points(*[{"mutated": False}] * 2))
    assert "your cache was" not in alike and "only read" not in alike


def test_a_search_that_reaches_nothing_is_no_success(tmp_path):
    page = search_of(tmp_path, (0.0, 20480), (0.0, 81920))
    assert "None reaches anything." in page and 'class="verdict fair"' in page


def test_the_front_is_what_no_other_point_beats():
    rows = [{"a": a, "b": b} for a in range(5) for b in range(5) if a + b >= 4]
    ways = {"a": -1, "b": -1}
    brute = [
        i
        for i, r in enumerate(rows)
        if not any(o != r and o["a"] <= r["a"] and o["b"] <= r["b"] for o in rows)
    ]
    assert objective.front(rows, ways) == brute == [i for i, r in enumerate(rows) if sum(r.values()) == 4]  # fmt: skip
    assert objective.front(rows, {"a": -1, "b": 0}) == []  # nobody said which way
    assert objective.front([{"a": 1}, {"a": 1}, {"a": 0}], {"a": 1}) == [0, 1]


LITERAL = "text='${literal:\"IGxldCBrIGJlIDUgLg==\"}'"


def asked(folder: Path, *overrides: str) -> Path:
    (folder / ".hydra").mkdir(parents=True)
    (folder / ".hydra" / "overrides.yaml").write_text(json.dumps(overrides))
    return folder


def test_a_failed_point_among_two_is_one_row_with_its_reason_and_its_command(tmp_path):
    stopped = {"verdict": "failed", "exit_code": 2, "reason": "1.5 is not possible", "prune.ratio": "1.5"}  # fmt: skip
    figures = ("kl_max", "max_abs_diff", "error_ratio", "noise_kl_max", "kept_tokens", "stored_bytes",
               "per_token_s", "save_s", "load_s")  # fmt: skip
    asked(tmp_path / "1", "prune=snapkv", "prune.ratio=1.5", LITERAL)
    page = drawn(tmp_path, points({}, stopped | dict.fromkeys(figures)))
    assert '<span class="verdict bad">1 of 2 failed</span>' in page
    said = page.split("<h2>What failed</h2>")[1].split("<h2>")[0]
    assert f"<pre>{summary.again(tmp_path)}</pre>" in page, "how to go on"
    assert said.count("<tr>") == 2 and "prune.ratio=1.5" in said and "1.5 is not possible" in said
    assert "prune=snapkv prune.ratio=1.5 &#39;text= let k be 5 .&#39;</td>" in said
    assert (
        "None" not in page and "literal:" not in page and "Every verdict links to its run" in page
    )
    assert "same in every point" not in page and "<figure>" not in page  # one point is no picture
    assert "What failed" not in drawn(tmp_path, points({}, {"prune.ratio": "1.0"}))


def test_a_sweep_with_points_that_came_to_no_end_says_it_short_and_each_diagnosis_whole(tmp_path):
    """A stranger reads one sentence; why a point was refused is its diagnosis, not the start of its message."""
    none = dict.fromkeys(("kl_max", "max_abs_diff", "error_ratio", "kept_tokens", "stored_bytes", "per_token_s", "save_s", "load_s"))  # fmt: skip
    ended = {"verdict": "refused", "exit_code": 3, "reason": f"restore refused: x\n{'y' * 400}"}
    idle = {"verdict": "failed", "exit_code": 2, "reason": "1.5 is not possible", "prune": "tova"}
    rows = points({}, ended | none | {"prune": "a"}, ended | none | {"prune": "b"}, idle | none)
    found = {"cause": "layer_swap", "element": "kv_cache", "evidence": f"layers are exchanged {'z' * 90}"}  # fmt: skip
    for row in rows[1:3]:
        asked(tmp_path / row["point"])
        told = {**row, "diagnosis": found, "stages": [{}]}
        (tmp_path / row["point"] / "result.json").write_text(json.dumps(told))
    (asked(tmp_path / "3") / "result.json").write_text(json.dumps({**rows[3], "stages": []}))
    hydra = {"overrides": {"task": ["prune=none,a", "seed=1,2"]}}
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": hydra}))
    page = drawn(tmp_path, rows)
    lines = page.split('class="conclusion"')[1].split('class="links"')[0]
    assert "4 points over prune: 1 diverged, 2 refused, 1 could not begin.</p>" in lines, lines
    failed, others = page.split("<h2>What failed</h2>")[1].split("<h2>", 1)
    assert failed.count(found["evidence"]) == 1 and "as .../1</td>" in failed
    assert "yyy" not in page and "see &#34;What failed&#34;" in others
    assert "<li>seed draws nothing with sampling=greedy</li>" in others, "as the console says"


def test_the_same_command_typed_again_gives_the_same_overrides():
    overrides = ["prune.ratio=1.5", LITERAL]
    words = shlex.split(literal.command(overrides))
    assert words == ["python", "-m", "harness", "prune.ratio=1.5", "text= let k be 5 ."]
    assert (
        literal.decoded("text=' let k be 5 .'") == literal.decoded(LITERAL) == "text= let k be 5 ."
    )
    assert literal.decoded("name='a,b'") == "name='a,b'"  # means something else without its marks


def test_each_dtype_has_its_noise_line_its_marker_and_its_own_place():
    rows = points(*({"cache": c, "dtype": d, "kl_max": k, "noise_kl_max": n, "stored_bytes": b, "load_s": k}
                    for c, k in (("a", 1e-4), ("b", 2e-4))
                    for d, n, b in (("float32", 1e-12, 2000), ("bfloat16", 1e-4, 1000))))  # fmt: skip
    apart, cost = panels.sections(rows, ["cache", "dtype"])
    assert (
        "Dashed, by the largest KL: its noise floor" in apart["text"]
        and "Dashed" not in cost["text"]
    )
    assert apart["title"] == "How far the logits went" and "by dtype. Dashed" in apart["text"]
    assert panels._floors(rows) == {"float32": 1e-12, "bfloat16": 1e-4}
    assert all(f"</b> {dtype}</span>" in cost["legend"] for dtype in ("float32", "bfloat16"))
    assert "dtype" not in apart["legend"]  # there it is the axis
    assert panels._floors([*rows, {**rows[0], "noise_kl_max": 1e-6}]) == {"bfloat16": 1e-4}
    alike = [{**row, "noise_kl_max": 1e-12, "dtype": "float32"} for row in rows]
    assert panels._floors(alike) == {"float32": 1e-12}


PRUNED = [
    {"prune": prune, "prune.ratio": ratio, "kept_tokens": kept, "stored_bytes": 1000 * kept, "kl_max": kl}
    for prune, near in (("keydiff", 1e-3), ("snapkv", 2e-3))
    for ratio, kept, kl in (("0.25", 24, 5.0), ("0.5", 48, 4.0), ("0.75", 72, near))
]  # fmt: skip


def test_a_pruned_grid_has_no_axis_stretched_to_its_noise_and_no_mark_by_size(tmp_path):
    rows = points(*PRUNED)
    apart = panels.sections(rows, ["prune", "prune.ratio"])[0]
    ticks = re.findall(r"<text[^>]*>([^<]+)</text>", apart["panels"][0])
    assert "\u2264 10\u207b\u00b9\u00b2" in ticks and not [
        t for t in ticks if re.search("^1e-|^10\u207b(\u00b9|[\u2074-\u2079])", t)
    ]
    assert "Shaded: practically nothing" in apart["text"]
    assert "tokens kept (prune.ratio 0.25, 0.5, 0.75 from the left)" in apart["text"]
    assert (
        "font-size" not in apart["legend"]
    )  # every mark is of one size: its place tells the ratio
    assert "\u2297</b> diverged" in apart["legend"] and "prune:" in apart["legend"]
    mixed = points(*PRUNED, {**PRUNED[0], "kept_tokens": 60})
    assert "font-size" in panels.sections(mixed, ["prune", "prune.ratio"])[0]["legend"]


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
    for point in "01":
        (tmp_path / point / ROWS).unlink()
        (tmp_path / point).rmdir()
        evaluated(tmp_path, point, 0.0, 0.0, 0.0)
    assert "Nothing can be told" in answers.conclusion(tmp_path, rows)


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
    assert f"3 of 3 points {said}." in page.replace("&#39;", "'")
    named = [re.findall(r">(10|9|1)</text>", figure)[:3] for figure in page.split("<figure>")[2:]]
    assert named and all(
        names == ["1", "9", "10"] for names in named
    )  # in order, one beside the other
    far = [{**row, "verdict": v, "prune": p, "prompt.seed": s} for row in rows[:1]
           for p in "ab" for s, v in (("1", "drifted"), ("2", "diverged"))]  # fmt: skip
    assert seeds.sentence(far, ["prune", "prompt.seed"]) == (
        "over prompt.seed: " + "; ".join(f"prune={p} 1 drifted, 1 diverged, KL divergence per step, "
                                         "largest (nats) 0.5 in each" for p in "ab")
    )  # fmt: skip
    assert seeds.sentence(rows, ["prune"]) == "" == seeds.sentence(rows[:1], ["seed"])
    across = [
        {**row, "kept_tokens": 2 * int(row["prompt.seed"]) + n // 2} for n, row in enumerate(far)
    ]
    assert panels._ordered(across, "prompt.seed", "kept_tokens") == []  # no line leads through them


def test_the_table_counts_the_first_other_token_as_its_reason_does():
    assert sweep._from_1({"first_divergence": 4}) == {"first_divergence_from_1": 5}
    assert sweep._from_1({}) == {"first_divergence_from_1": None}
    rows = points({"first_divergence_from_1": 5}, {"first_divergence_from_1": 6})
    assert choice.varied(rows) == []


@pytest.mark.parametrize(
    "values, nothing",
    [
        ([5.0, 4.0, 1e-3, 1e-12, 1e-13], 1e-12),
        ([5.0, 1e-3, 1e-7, 1e-11], 0.0),
        ([2.0, 0.0], 0.0),
        ([], 0.0),
    ],
)
def test_what_is_practically_nothing_lies_below_a_gap_that_would_flatten_the_rest(values, nothing):
    assert scatter.lost(values) == nothing


def test_points_that_fail_alike_are_one_line_at_the_end(tmp_path):
    """Two hundred points with the same mistake are one mistake."""
    rows = [{"point": str(i), "verdict": "failed", "reason": "no\nmore"} for i in range(12)]
    rows += [{"point": "12", "verdict": "refused", "reason": "other"}]
    said = [line[2:] for line in summary.closing(tmp_path, rows, 13, []) if line[:5] == "  ..."]
    assert said == [
        f"{', '.join(f'.../{i}' for i in range(10))} and 2 more failed: no. more",
        ".../12 refused: other",
    ]


def test_points_refused_alike_each_in_its_own_folder_are_one_line_that_reaches_the_fact(tmp_path):
    deep = "/data/" + "long/" * 20
    rows = [{"point": str(i), "verdict": "refused", "folder": f"{deep}{i}",
             "reason": f"restore refused: what was saved at {deep}{i}/snapshot fails its proof"}
            for i in range(3)]  # fmt: skip
    said = [line[2:] for line in summary.closing(tmp_path, rows, 3, []) if line[:5] == "  ..."]
    assert said == [
        ".../0, .../1, .../2 refused: restore refused: what was saved at .../snapshot fails its proof"
    ]


def test_points_are_compared_only_where_the_same_was_asked(tmp_path):
    """A longer text has more bytes whatever was chosen: that makes no point worse than another's."""
    rows = points(
        {"text": "short", "prune": "a", "stored_bytes": 10, "verdict": "exact"},
        {"text": "short", "prune": "b", "stored_bytes": 9},
        {"text": "long", "prune": "a", "stored_bytes": 100, "verdict": "drifted"},
        {"text": "long", "prune": "b", "stored_bytes": 99},
    )
    page = drawn(tmp_path, rows)
    assert (
        marked(page) == ["0", "2"]
        and "The only one to keep every token for every text: prune=a." in page
    )
    rows[2]["verdict"], rows[3]["verdict"] = "diverged", "drifted"
    page = drawn(tmp_path, rows)
    assert marked(page) == ["0", "3"]
    said = "The best is marked for each text (prune=a where text=short; prune=b where text=long): points are "
    assert f"{said}compared where text is the same." in page
    many = [
        {**row, "point": f"{row['point']}{n}", "text": f"{row['text']}{n}"}
        for n in "xyz"
        for row in rows
    ]
    assert "prune=a where text=shorty; 3 more): points are" in drawn(tmp_path, many)
    only = points({"text": "a", "stored_bytes": 1}, {"text": "b", "stored_bytes": 2})
    assert marked(drawn(tmp_path, only)) == [] and "best" not in sweep.drawn(tmp_path, only, 2, "n").split("</style>")[1]  # fmt: skip
    assert choice.asks("model.path") and choice.asks("prompt.samples") and not choice.asks("prune.ratio")  # fmt: skip


def test_a_point_that_some_seed_has_not_run_is_the_nearest_only_where_it_ran(tmp_path):
    rows = points(
        *(
            {"seed": s, "prune.ratio": r, "kl_mean": k}
            for s in "123"
            for r, k in (("0.1", 3.0), ("0.25", 1.0))
        )
    )
    stopped = [{**row} for row in rows[:-1]]
    told = sweep.drawn(tmp_path, stopped, 12, "n")
    assert (
        "The nearest so far where seed=1 or seed=2: prune.ratio=0.25." in told
        and "for every seed" not in told
    )
    assert "The nearest so far for every seed: prune.ratio=0.25." in sweep.drawn(
        tmp_path, rows, 12, "n"
    )
    many = points(
        *(
            {"seed": str(s), "prune.ratio": r, "kl_mean": k}
            for s in range(5)
            for r, k in (("0.1", 3.0), ("0.25", 1.0))
        )
    )
    told = sweep.drawn(tmp_path, many[:-1], 12, "n")
    assert "The nearest so far where it ran, in 4 of 5 questions: prune.ratio=0.25." in told


def test_noise_of_a_time_chooses_nothing_and_an_option_that_ties_is_said_to_make_no_difference(
    tmp_path,
):
    """Milliseconds under another job are no reason; a factor that holds whatever was asked is one."""
    grid = [
        {"verdict": "drifted", "cache": c, "prune": p, "steps": n, "stored_bytes": b, "per_token_s": 0.1 * (1.3 if (c == "cloned") == (n == 4) else 1)}
        for n in (4, 8)
        for c in ("cloned", "deepcopy")
        for p, b in (("none", 9000 + (c == "cloned")), ("knorm", 10000))
    ]  # fmt: skip
    rows = points(*grid)
    best = "Smallest that keeps every token for every value of steps: prune=none; cache makes no difference."
    page = drawn(tmp_path, rows)
    assert best in page and marked(page) == ["0", "4", "2", "6"]
    assert f"best:         {best}" in summary.closing(tmp_path, rows, 8, [])
    assert f"best so far:  {best}" in summary.closing(tmp_path, rows, 9, [])
    assert summary.told(rows, {})[1] == best
    rows[0]["per_token_s"] = 9.0  # once, which may be noise
    assert best in drawn(tmp_path, rows)
    rows[4]["per_token_s"] = 9.0  # and again: the other cache is faster whatever was asked
    page = drawn(tmp_path, rows)
    assert (
        "Smallest and fastest that keeps every token for every value of steps: prune=none cache=deepcopy."
        in page
    )
    assert marked(page) == ["2", "6"]
    one = rows[:4]
    one[0]["per_token_s"] = 0.19
    said = "Smallest that keeps every token: prune=none (drifted, 9,001 bytes); cache makes no difference."
    assert said in drawn(tmp_path, one)
    rows = [{**r, "prune": {"none": "knorm", "knorm": "none"}[r["prune"]]} if r["steps"] == 8 else r for r in rows]  # fmt: skip
    assert (
        "The best is marked for each value of steps (prune=none where steps=4; prune=knorm where steps=8): points are"
        in drawn(tmp_path, rows)
    )
    for row in rows[4:]:
        row["verdict"] = "failed"
    assert "Smallest that keeps every token where steps=4: prune=none (drifted" in drawn(
        tmp_path, rows
    )
    apart = [dict(point) for point in grid[:4]]
    apart[3]["verdict"] = "diverged"  # at the other prune the caches do differ
    ties = "Smallest that keeps every token: prune=none (drifted, 9,001 bytes), where every value of cache ties."
    assert ties in drawn(tmp_path, points(*apart))
    apart[3]["verdict"] = "failed"
    assert ties in drawn(tmp_path, points(*apart))
    third = points(*grid[:4], {**grid[1], "cache": "dynamic"})
    third[0]["per_token_s"] = 0.19
    assert "Smallest that keeps every token: prune=none cache=cloned or deepcopy (" in drawn(
        tmp_path, third
    )


@pytest.mark.parametrize("refused, said", ((0, "2 of 3 failed"), (1, "1 of 3 failed, 1 refused"), (2, "2 of 3 refused")))  # fmt: skip
def test_what_was_refused_is_not_counted_as_failed(tmp_path, refused, said):
    rows = points({}, *({"verdict": "refused" if i < refused else "failed", "exit_code": 3} for i in (0, 1)))  # fmt: skip
    page = drawn(tmp_path, rows)
    assert f'<span class="verdict bad">{said}</span>' in page
    assert page.count(summary.counted(rows)) == 1


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


def test_the_commands_of_a_search_are_whole_and_its_best_point_has_one(tmp_path):
    asked(tmp_path / "1", "prune.ratio=0.25", "experiment=prune_search")
    told = {"overrides": {"task": ["experiment=prune_search"], "hydra": [
        "hydra.sweeper.n_trials=6", "hydra.mode=MULTIRUN", "hydra.sweep.dir=/x"]}}  # fmt: skip
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": told}))
    said = closing.of_sweep(tmp_path, [{"point": "1"}])[0]
    assert said["pre"].splitlines() == [
        "python -m harness -m experiment=prune_search hydra.sweeper.n_trials=6",
        "python -m harness prune.ratio=0.25 experiment=prune_search",
    ]
    assert "its marked point" in said["text"] and closing.of_sweep(tmp_path)[0]["text"] == ""
    ways = {"a": 1, "b": -1}
    rows = [{"point": str(i), "a": a, "b": b} for i, (a, b) in enumerate(((1, 9), (5, 8), (5, 7), (2, 1)))]  # fmt: skip
    assert [row["point"] for row in search.ranked(rows, ways)] == ["2", "3"]


def test_where_no_point_is_good_enough_that_comes_first_and_the_nearest_not_the_smallest(tmp_path):
    rows = points(
        {"prune": "a", "kl_mean": 1.1, "first_divergence": 0, "stored_bytes": 1},
        {"prune": "b", "kl_mean": 0.52, "first_divergence": 2, "stored_bytes": 90},
        {"prune": "c", "kl_mean": 0.52, "first_divergence": 3, "stored_bytes": 99},
    )
    page = drawn(tmp_path, rows)
    best = (
        "None of 3 keeps the tokens. The nearest: prune=b (diverged, mean KL 0.52 nats, 90 bytes). "
        "It ties with prune=c to two digits (0.52 nats) and takes the fewest bytes."
    )
    assert best in page and marked(page) == ["1"] and "The best:" not in page
    assert ' best nearest">' in page and ' best">' not in page
    asks = "One prompt says how these runs compare, not which policy is better in general: for that, task=evaluate."
    assert f"best:         {best} {asks}" in summary.closing(tmp_path, rows, 3, [])
    assert summary.told(rows, {}) == ("3 diverged", best)
    short = [{**row, "verdict": "drifted", "exit_code": 1} for row in rows]
    assert "None of 3 is as required. The nearest: prune=b (drifted, mean KL 0.52 nats, 90 bytes). It ties with prune=c" in drawn(tmp_path, short)  # fmt: skip
    allowed = [{**row, "verdict": "drifted"} for row in rows]
    apart = "Smallest that keeps every token: prune=a (drifted, 1 bytes); nearest to the full cache: prune=b or c (mean KL 0.52 nats)."
    assert apart in drawn(tmp_path, allowed)
    far = [{**allowed[0], "stored_bytes": 90}, allowed[1]]
    assert "Nearest to the full cache (by mean KL): prune=b (drifted, 90 bytes)." in drawn(
        tmp_path, far
    )
    right = [{**row, "answer": "right"} for row in rows]
    assert (
        "Smallest with the right answer: prune=a (diverged, right answer, 1 bytes); nearest"
        in drawn(tmp_path, right)
    )


def test_where_one_question_has_no_good_answer_its_best_is_the_nearest(tmp_path):
    """Two models: at one of them every point diverges."""
    rows = points(*({"model": model, "prune": p, "verdict": verdict, "kl_mean": kl, "stored_bytes": size}
                    for model, verdict in (("tiny", "diverged"), ("tiny_gpt2", "drifted"))
                    for p, kl, size in (("a", 0.5, 10), ("b", 0.9, 20))))  # fmt: skip
    page = drawn(tmp_path, rows)
    said = (
        "None of 2 keeps the tokens where model=tiny. The nearest there: prune=a (diverged, "
        "mean KL 0.5 nats, 10 bytes). Smallest and nearest where model=tiny_gpt2: prune=a (drifted, 10 bytes)."
    )
    assert said in page
    assert page.count(' best nearest"') == 2 and marked(page) == ["0", "2"]
    assert "best for every model" not in page
    more = [
        *rows,
        *({**row, "point": f"{i + 4}", "model": "gpt2"} for i, row in enumerate(rows[2:])),
    ]
    assert "Smallest and nearest for every other model: prune=a." in drawn(tmp_path, more)


def test_a_time_that_noise_explains_makes_no_point_the_best(tmp_path):
    rows = points({"prune": "a", "per_token_s": 0.1}, {"prune": "b", "per_token_s": 0.25},
                  {"prune": "c", "stored_bytes": 9000})  # fmt: skip
    rows = [{**row, "verdict": "drifted"} for row in rows]
    assert marked(drawn(tmp_path, rows)) == ["0", "1"]
    rows[0]["per_token_s"] = 1.5  # the first point warms up
    page = drawn(tmp_path, rows)
    assert marked(page) == ["0", "1"] and "over ten times another" in page
    assert "Smallest that keeps every token: prune=a or b (drifted" in page


def test_the_page_of_a_sweep_that_was_stopped_says_what_is_missing_and_how_to_go_on(tmp_path):
    rows = points({"prune": "a", "kl_mean": 0.1}, {"prune": "b", "kl_mean": 0.2})
    sweep.write(tmp_path, rows, 12)
    page = (tmp_path / "sweep.html").read_text()
    assert "2 diverged so far, 10 missing" in page and "as required" not in page
    assert "10 of 12 points have not run." in page and "The nearest so far: prune=a" in page
    assert summary.again(tmp_path) in page and ">2 of 12 points.</p>" not in page
    assert 'class="verdict bad"' not in page
    (tmp_path / "sweep.html").unlink()
    assert "missing" not in drawn(tmp_path, rows).split("</style>")[1]
    rows[0]["exit_code"] = 1
    assert "1 of 2 as required, 10 missing" in sweep.drawn(tmp_path, rows, 12, "n")


def test_how_to_go_on_is_said_once_and_why_nothing_was_uploaded(tmp_path):
    rows = points({"prune": "a"}, {"prune": "b"})
    for row in rows:
        (tmp_path / row["point"]).mkdir()
        (tmp_path / row["point"] / "pending.json").write_text(
            '{"reason": "cannot track to X: away."}'
        )
    said = summary.closing(tmp_path, rows, 3, [])
    assert "not uploaded: .../0, .../1: cannot track to X: away." in said
    assert "missing:      1 of 3" in said and sum("resume=" in line for line in said) == 1
    assert "resume=" not in "".join(summary.closing(tmp_path, rows, 3, [], stopped=True))
    for row in rows:
        (tmp_path / row["point"] / "pending.json").unlink()
    assert "resume=" not in "".join(summary.closing(tmp_path, rows, 2, []))
    failing = [*rows[1:], {**rows[0], "verdict": "failed", "reason": "boom"}]
    (line,) = (one for one in summary.closing(tmp_path, failing, 2, []) if "resume=" in one)
    assert line.startswith("run again: ") and "once its cause is mended" in line


def test_names_under_an_axis_can_be_told_apart():
    assert scatter.brief(["/tmp/models/qwen3_06b", "/tmp/models/llama"]) == ["qwen3_06b", "llama"]
    long = scatter.brief(["the dog ran in the tree", "the dog ran in the river"])
    assert long == ["1: the dog ran i\u2026", "2: the dog ran i\u2026"]
    assert scatter.brief(["manual", "cloned"]) == ["manual", "cloned"]


def test_a_tight_front_names_no_two_points_in_one_line():
    """Shares on an axis from 0 to 1: what lies within a line of text of the one named before has no name."""
    ways = {"answers": 1, "kv_bytes": -1}
    rows = [{"point": str(i), "prune.ratio": f"0.{i}", "answers": 0.9 + 0.01 * i, "kv_bytes": 1024.0 * (i + 1)}
            for i in range(9)]  # fmt: skip
    _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    axis.set_ylim(-0.05, 1.08)
    search._name_some(axis, [((r["kv_bytes"], r["answers"]), r) for r in rows], ["prune.ratio"])
    assert [text.get_text() for text in axis.texts] == ["0.8", "0.0"]
    axis.set_ylim(0.89, 0.99)
    search._name_some(axis, [((r["kv_bytes"], r["answers"]), r) for r in rows], ["prune.ratio"])
    assert len(axis.texts) == 2 + len(rows)
    assert search.sections(rows, ["prune.ratio"], ways)


def test_digits_that_a_search_drew_are_short_where_points_failed(tmp_path):
    drawn_ratio = "0.31234567890123456"
    asked(tmp_path / "1", "prune=snapkv", f"prune.ratio={drawn_ratio}")
    stopped = {"verdict": "failed", "exit_code": 2, "reason": "no", "prune.ratio": drawn_ratio}
    figures = ("kl_max", "max_abs_diff", "error_ratio", "noise_kl_max", "kept_tokens", "stored_bytes",
               "per_token_s", "save_s", "load_s")  # fmt: skip
    rows = points({"prune.ratio": "0.5"}, stopped | dict.fromkeys(figures))
    page = drawn(tmp_path, rows)
    assert page.count("0.3123<") + page.count("=0.3123") >= 2
    assert f">{drawn_ratio}<" not in page and page.count(drawn_ratio) == 1  # in the command alone


@pytest.mark.parametrize("rising", [True, False])
def test_names_on_a_front_stay_inside_of_their_picture(rising):
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    at = [(float(x), float(x if rising else 9 - x)) for x in range(10)]
    axis.plot(*zip(*at, strict=True), "D-")
    axis.margins(x=0.08, y=0.12)
    search._name_some(
        axis, [(p, {"prune": "expected_attention", "point": "0"}) for p in at], ["prune"]
    )
    width, height = made.canvas.get_width_height()
    boxes = [text.get_window_extent() for text in axis.texts]
    assert len(boxes) > 4
    assert all(0 <= b.x0 < b.x1 <= width and 0 <= b.y0 < b.y1 <= height for b in boxes)
    joined = axis.transData.transform(at)
    for box in boxes:  # no name lies across a point
        assert not any(box.x0 < x < box.x1 and box.y0 < y < box.y1 for x, y in joined)


def test_a_search_says_what_was_the_same_and_how_sure_its_shares_are(tmp_path):
    """`share of right answers 1` is what three questions say, or three thousand."""
    rows = points(*({"prune.ratio": r, "evaluate.contains": 1.0, "evaluate.kv_bytes": 1024.0 * k,
                     "verdict": "unjudged"} for r, k in (("0.2", 2), ("0.4", 4))))  # fmt: skip
    for row in rows:
        folder = tmp_path / row["point"]
        folder.mkdir(exist_ok=True)
        result = {
            "task": "evaluate", "model": {"name": "tiny"}, "evaluation": {"questions": 24},
            "environment": {"device": "cpu", "dtype": "float32" if row["point"] == "0" else "bfloat16"},
            "options": {"model": "tiny", "prompt": "recall", "prune": "keydiff", "save": "gzip"},
        }  # fmt: skip
        (folder / "result.json").write_text(json.dumps(result))
        cells = [{"measure": "contains", "low": 0.862, "high": 1.0}]
        (folder / "evaluate.json").write_text(json.dumps(cells))
    said = closing.constant(tmp_path, rows, ["prune.ratio"])
    assert said == ": model tiny, 24 prompts of recall, prune keydiff"  # one dtype is another
    assert (
        closing.constant(tmp_path, rows[:1], ["prune"])
        == ": model tiny, float32 on cpu, 24 prompts of recall"
    )
    typed = {"task": ["prune=keydiff,snapkv", "model=tiny,gpt2", "prompt.samples=1,2", "seed=1"]}
    multirun = {"hydra": {"overrides": typed, "sweeper": {"params": {"dtype": "choice(a, b)"}}}}
    (tmp_path / "multirun.yaml").write_text(json.dumps(multirun))
    assert closing.constant(tmp_path, rows[:1], []) == ": prompt recall, seed 1"  # whatever has run
    typed["task"] = ["prompt=recall,text", "model=tiny,gpt2"]
    (tmp_path / "multirun.yaml").write_text(json.dumps(multirun))
    assert closing.constant(tmp_path, rows[:1], []) == ": prune keydiff"
    typed["task"] = ["seed=1,2"]
    multirun["hydra"]["sweeper"] = None
    (tmp_path / "multirun.yaml").write_text(json.dumps(multirun))
    assert closing.constant(tmp_path, rows, []) == said
    typed["task"] = ["seed=1,2", "prune.ratio=0.5", "name=n", "track=none"]
    (tmp_path / "multirun.yaml").write_text(json.dumps(multirun))
    assert closing.constant(tmp_path, rows, []) == f"{said}, prune.ratio 0.5"
    typed["task"] = ["seed=1,2"]
    (tmp_path / "multirun.yaml").write_text(json.dumps(multirun))
    sampled = {**result, "options": {**result["options"], "sampling": "sample"}}
    (tmp_path / "1" / "result.json").write_text(json.dumps(sampled))
    assert closing.constant(tmp_path, rows[1:], []).endswith("prune keydiff, sampling sample")
    (tmp_path / "1" / "result.json").write_text(json.dumps(result))
    (tmp_path / "multirun.yaml").unlink()
    sure = answers.intervals(tmp_path, rows)
    assert sure == {"0": "86-100%", "1": "86-100%"}
    ways = {"evaluate.contains": 1, "evaluate.kv_bytes": -1}
    assert "share of right answers 100%, 95% interval 86-100%, at 2,048 bytes" in search.conclusion(
        rows, ways, sure
    )
    (_, front) = search.sections(rows, ["prune.ratio"], ways, sure)
    assert front["columns"][-1] == "right, 95% interval" and front["rows"][0][-1] == "86-100%"
    assert f"the-sweep{said}" in sweep.drawn(tmp_path, rows, 2, "the-sweep")


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
