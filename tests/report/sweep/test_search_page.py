"""The page of a search: its objectives, its front, its commands and how sure its shares are."""

import json
import re
from pathlib import Path

import pytest
from sweeps import asked, drawn, points

from harness.report import footer
from harness.report.picture import plots
from harness.report.sweep import cells as answers
from harness.report.sweep import heading, search
from harness.report.sweep import page as sweep
from harness.snapshot import objective

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


def test_the_commands_of_a_search_are_whole_and_its_best_point_has_one(tmp_path):
    asked(tmp_path / "1", "prune.ratio=0.25", "experiment=prune_search")
    told = {"overrides": {"task": ["experiment=prune_search"], "hydra": [
        "hydra.sweeper.n_trials=6", "hydra.mode=MULTIRUN", "hydra.sweep.dir=/x"]}}  # fmt: skip
    (tmp_path / "multirun.yaml").write_text(json.dumps({"hydra": told}))
    said = footer.of_sweep(tmp_path, [{"point": "1"}])[0]
    assert said["pre"].splitlines() == [
        "python -m harness -m experiment=prune_search hydra.sweeper.n_trials=6",
        "python -m harness prune.ratio=0.25 experiment=prune_search",
    ]
    assert "its marked point" in said["text"] and footer.of_sweep(tmp_path)[0]["text"] == ""
    ways = {"a": 1, "b": -1}
    rows = [{"point": str(i), "a": a, "b": b} for i, (a, b) in enumerate(((1, 9), (5, 8), (5, 7), (2, 1)))]  # fmt: skip
    assert [row["point"] for row in search.ranked(rows, ways)] == ["2", "3"]


def test_of_points_of_a_search_that_are_as_near_the_next_objective_chooses(tmp_path):
    """Of two that are within 5% the smaller one, as in a grid; the twin asks for the bytes first."""
    measured = ((1.93, 76), (1.94, 48), (2.19, 32))
    rows = points(*({"prune": p, "kl_mean": kl, "stored_bytes": size, "metrics.kl_mean": kl, "size.kv_bytes": size,
                     "restore": "exact", "tokens": 60} for p, (kl, size) in zip("abc", measured)))  # fmt: skip
    near, small = {"metrics.kl_mean": -1}, {"size.kv_bytes": -1}
    ways = near | small
    assert [row["prune"] for row in search.ranked(rows, ways)] == ["b", "a", "c"]
    assert [row["prune"] for row in search.ranked(rows, ways, once=True)] == ["a", "b", "c"]
    assert [row["prune"] for row in search.ranked(rows, small | near)] == ["c", "b", "a"]
    said = {}
    for name, sought in (("near", near), ("both", ways), ("small", small | near)):
        said[name] = heading.told(tmp_path, rows, ["prune"], sought, 3, 0)[1]
    nearest = "Nearest to the full cache by mean KL: prune="
    assert f"{nearest}a (1.93 nats" in said["near"] and "with 0.632 times the bytes" in said["near"]
    for both in (said["both"], said["small"]):
        assert f"{nearest}b (1.94 nats" in both and "As near: prune=a (1.93 nats" in both
        assert "with 1.58 times the bytes" in both


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
        whole = {"prune": "none", "quantize": "none", "budget": 1.0, "value": 1.0}
        part = whole | {"prune": "keydiff", "budget": 0.5}
        share = {"measure": "contains", "low": 0.862, "high": 1.0}
        cells = [share | whole, share | part]
        (folder / "evaluate.json").write_text(json.dumps(cells))
    said = footer.constant(tmp_path, rows, ["prune.ratio"])
    assert said == ": model tiny, 24 prompts of recall, prune keydiff"  # one dtype is another
    assert (
        footer.constant(tmp_path, rows[:1], ["prune"])
        == ": model tiny, float32 on cpu, 24 prompts of recall"
    )
    typed = {"task": ["prune=keydiff,snapkv", "model=tiny,gpt2", "prompt.samples=1,2", "seed=1"]}
    multirun = {"hydra": {"overrides": typed, "sweeper": {"params": {"dtype": "choice(a, b)"}}}}
    (tmp_path / "multirun.yaml").write_text(json.dumps(multirun))
    assert footer.constant(tmp_path, rows[:1], []) == ": prompt recall, seed 1"  # whatever has run
    typed["task"] = ["prompt=recall,text", "model=tiny,gpt2"]
    (tmp_path / "multirun.yaml").write_text(json.dumps(multirun))
    assert footer.constant(tmp_path, rows[:1], []) == ": prune keydiff"
    typed["task"] = ["seed=1,2"]
    multirun["hydra"]["sweeper"] = None
    (tmp_path / "multirun.yaml").write_text(json.dumps(multirun))
    assert footer.constant(tmp_path, rows, []) == said
    typed["task"] = ["seed=1,2", "prune.ratio=0.5", "name=n", "track=none"]
    (tmp_path / "multirun.yaml").write_text(json.dumps(multirun))
    assert footer.constant(tmp_path, rows, []) == f"{said}, prune.ratio 0.5"
    typed["task"] = ["seed=1,2"]
    (tmp_path / "multirun.yaml").write_text(json.dumps(multirun))
    sampled = {**result, "options": {**result["options"], "sampling": "sample"}}
    (tmp_path / "1" / "result.json").write_text(json.dumps(sampled))
    assert footer.constant(tmp_path, rows[1:], []).endswith("prune keydiff, sampling sample")
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
    page = sweep.drawn(tmp_path, rows, 2, "the-sweep")
    assert f"the-sweep{said}" in page and "<h1>Sweep of" in page
    assert "The full cache answers 100%; each point is keydiff 50%." in page


def test_a_search_is_called_one() -> None:
    rows = [{"model": "tiny"}, {"model": "tiny"}]
    assert footer.swept(rows, ["prune.ratio"], "x", True) == "Search of prune.ratio: tiny"
    assert footer.swept(rows, ["prune.ratio"], "x") == "Sweep of prune.ratio: tiny"
