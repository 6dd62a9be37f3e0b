"""The page of a sweep: what is marked, drawn, said and folded, from rows alone."""

import re
from pathlib import Path

import pytest

from harness.report import plots, sweep

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
    return re.findall(r'<td class="\w+ best">\s*<a href="(\d+)/', page)


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
    assert "The best: prune=d (drifted, right answer, 50 bytes)." in page


def test_where_all_points_are_alike_none_is_best(tmp_path):
    rows = points({"prune": "a", "per_token_s": 0.2}, {"prune": "b"})
    assert sweep.best(rows) is None and marked(drawn(tmp_path, rows)) == []


def test_a_sweep_that_was_not_judged_is_neither_green_nor_red(tmp_path):
    rows = points({"kl_max": 1.0, "save_s": 0.1}, {"kl_max": 2.0, "save_s": 0.4})
    for verdict, kind in (("unjudged", ""), ("equivalent", "good"), ("diverged", "bad")):
        page = drawn(tmp_path, [{**row, "verdict": verdict} for row in rows])
        assert f'class="verdict {kind}"' in page
        colour = f"var(--{kind or 'soft'})"
        assert colour in page[page.index("<figure>") :]
        assert "var(--good)" not in page[page.index("<figure>") :] or kind == "good"


def test_verdicts_of_one_colour_share_a_mark_in_the_legend(tmp_path):
    rows = points({"verdict": "exact", "save_s": 0.1}, {"verdict": "equivalent", "save_s": 0.4})
    assert "</b> exact, equivalent</span>" in drawn(tmp_path, rows)


def test_a_point_that_failed_is_never_best():
    rows = points({"verdict": "failed", "stored_bytes": None, "per_token_s": None}, {"exit_code": 1},
                  {"exit_code": 1, "stored_bytes": 900})  # fmt: skip
    assert sweep.best(rows)["point"] == "2"


def test_identical_values_are_said_not_drawn(tmp_path):
    rows = points({"prune": "a", "save_s": 0.1}, {"prune": "b", "save_s": 0.4})
    page = drawn(tmp_path, rows)
    assert "The same in every point: largest difference" not in page
    assert "KL divergence per step, largest (nats) is 1" in page
    assert page.count("<figure>") == 1  # only the time to save differs
    assert "to save and load, by prune." in page  # bytes are the same: no axis of theirs
    rows[1]["kl_max"] = 5.0
    assert drawn(tmp_path, rows).count("<figure>") == 2


@pytest.mark.parametrize(
    "verdict, kind", [("exact", "good"), ("drifted", "fair"), ("failed", "bad")]
)
def test_points_have_the_colour_of_their_verdict(verdict, kind):
    rows = points({"kl_max": 1.0}, {"kl_max": 2.0, "kept_tokens": 80})
    picture = plots.scatter(rows, "kept_tokens", "kl_max", lambda row: kind, None, "t", "x", "y")
    assert f"var(--{kind})" in picture and plots.VERDICTS[kind][0] not in picture
    assert sweep.KIND[verdict] == kind


def test_a_named_axis_stands_in_order_of_appearance():
    assert plots.positions(["b", "a", "b"]) == ([0.0, 1.0, 0.0], ["b", "a"])
    assert plots.positions(["0.5", "2"]) == ([0.5, 2.0], [])


def test_a_thousand_points_are_tiles_with_the_table_folded(tmp_path):
    rows = points(*({"seed": str(i), "kl_max": float(i + 1)} for i in range(1000)))
    page = drawn(tmp_path, rows)
    assert page.count('title="point ') == 1000 and "<summary>Every point</summary>" in page
    assert len(page) < 3_000_000
    few = drawn(tmp_path, rows[:5])
    assert 'title="point ' not in few and "<h2>Every point</h2>" in few


def test_the_answer_is_a_column_only_where_one_was_expected(tmp_path):
    assert sweep._answer({"expected": "5", "restored_right": False}) == {"answer": "wrong"}
    assert sweep._answer({"continuation": "5"}) == {}
    page = drawn(
        tmp_path, points({"prune": "a", "answer": "right"}, {"prune": "b", "answer": "wrong"})
    )
    assert ">diverged, right<" in page and ">diverged, wrong<" in page
