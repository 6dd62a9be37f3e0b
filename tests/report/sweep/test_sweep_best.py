"""Which point of a sweep is marked as the best or the nearest, and where none is."""

import re

from sweeps import drawn, marked, points

from harness.report.sweep import baseline, choice, overall, summary, variation
from harness.report.sweep import page as sweep


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
    assert (
        "Smallest with the same tokens that is as required: prune=d (drifted, right answer, 50 bytes on disk)."
        in page
    )


def test_where_all_points_are_alike_none_is_best(tmp_path):
    rows = points({"prune": "a", "per_token_s": 0.2}, {"prune": "b"})
    assert choice.best(rows) == [] and marked(drawn(tmp_path, rows)) == []
    rows = [{**row, "verdict": "exact", "kl_mean": kl} for row, kl in zip(rows, (0.0, 1e-9))]
    assert overall.chosen(rows, ["prune"]) == []  # rounding is not nearer


def test_a_point_that_failed_is_never_best():
    rows = points({"verdict": "failed", "stored_bytes": None, "per_token_s": None}, {"exit_code": 1},
                  {"exit_code": 1, "stored_bytes": 900})  # fmt: skip
    assert choice.best(rows)[0]["point"] == "2"


def test_exact_is_better_than_equivalent_however_large(tmp_path):
    rows = points({"prune": "a", "verdict": "equivalent", "stored_bytes": 1},
                  {"prune": "b", "verdict": "exact", "stored_bytes": 9000})  # fmt: skip
    assert choice.best(rows)[0]["point"] == "1" and marked(drawn(tmp_path, rows)) == ["1"]
    rows[1]["exit_code"] = 1  # what is required comes before all
    assert choice.best(rows)[0]["point"] == "0"


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
    assert "Exact, your cache left as it was: cache=cloned (exact, 10 bytes on disk)." in page
    assert "<summary>How the best is chosen</summary>" in page
    assert ".cards td.best { padding-left" in page  # or its bar would strike the first letter
    rows.append({**rows[1], "point": "3", "cache": "static", "stored_bytes": 90})
    said = "Exact, your cache left as it was: cache=cloned (exact, 10 bytes on disk)."
    assert said in drawn(tmp_path, rows) and summary.told(rows, {})[1] == said
    alike = drawn(tmp_path, points(*[{"mutated": False}] * 2))
    assert "your cache was" not in alike and "only read" not in alike


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
        and "The only one with the same tokens for every text: prune=a." in page
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
    assert variation.asks("model.path") and variation.asks("prompt.samples") and not variation.asks("prune.ratio")  # fmt: skip


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
    assert (
        "The nearest so far for every seed: prune.ratio=0.25 (mean KL 1 nats, 1,000 bytes on disk)."
        in sweep.drawn(tmp_path, rows, 12, "n")
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
        for p, b in (("keydiff", 9000 + (c == "cloned")), ("knorm", 10000))
    ]  # fmt: skip
    rows = points(*grid)
    best = "Smallest with the same tokens for every value of steps: prune=keydiff; cache makes no difference."
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
        "Smallest and fastest with the same tokens for every value of steps: prune=keydiff cache=deepcopy."
        in page
    )
    assert marked(page) == ["2", "6"]
    one = rows[:4]
    one[0]["per_token_s"] = 0.19
    said = "Smallest with the same tokens: prune=keydiff (drifted, 9,001 bytes on disk); cache makes no difference."
    assert said in drawn(tmp_path, one)
    rows = [{**r, "prune": {"keydiff": "knorm", "knorm": "keydiff"}[r["prune"]]} if r["steps"] == 8 else r for r in rows]  # fmt: skip
    assert (
        "The best is marked for each value of steps (prune=keydiff where steps=4; prune=knorm where steps=8): points are"
        in drawn(tmp_path, rows)
    )
    for row in rows[4:]:
        row["verdict"] = "failed"
    assert "Smallest with the same tokens where steps=4: prune=keydiff (drifted" in drawn(
        tmp_path, rows
    )
    apart = [dict(point) for point in grid[:4]]
    apart[3]["verdict"] = "diverged"  # at the other prune the caches do differ
    ties = "Smallest with the same tokens: prune=keydiff (drifted, 9,001 bytes on disk), where every value of cache ties."
    assert ties in drawn(tmp_path, points(*apart))
    apart[3]["verdict"] = "failed"
    assert ties in drawn(tmp_path, points(*apart))
    third = points(*grid[:4], {**grid[1], "cache": "dynamic"})
    third[0]["per_token_s"] = 0.19
    assert "Smallest with the same tokens: prune=keydiff cache=cloned or deepcopy (" in drawn(
        tmp_path, third
    )


def test_where_no_point_is_good_enough_that_comes_first_and_the_nearest_not_the_smallest(tmp_path):
    rows = points(
        {"prune": "a", "kl_mean": 1.1, "first_divergence": 0, "stored_bytes": 1},
        {"prune": "b", "kl_mean": 0.52, "first_divergence": 2, "stored_bytes": 90},
        {"prune": "c", "kl_mean": 0.52, "first_divergence": 3, "stored_bytes": 99},
    )
    page = drawn(tmp_path, rows)
    best = (
        "None of 3 keeps the tokens. The nearest: prune=b (diverged, mean KL 0.52 nats, 90 bytes on disk). "
        "As near: prune=c (0.52 nats), with 1.1 times the bytes on disk. "
        "The first other token of the nearest is at step 3, that of prune=c at step 4."
    )
    assert (
        best.partition(" The first")[0].replace("). As", ').</p><p class="soft">As') in page
        and marked(page) == ["1"]
        and "The best:" not in page
    )
    assert ' best nearest">' in page and ' best">' not in page
    asks = "One prompt says how these runs compare, not which policy is better in general: for that, task=evaluate."
    assert f"best:         {best} {asks}" in summary.closing(tmp_path, rows, 3, [])
    assert summary.told(rows, {}) == ("3 diverged", best)
    short = [{**row, "verdict": "drifted", "exit_code": 1} for row in rows]
    assert "None of 3 is as required. The nearest: prune=b (drifted, mean KL 0.52 nats, 90 bytes on disk).</p><p class=\"soft\">As near: prune=c (" in drawn(tmp_path, short)  # fmt: skip
    allowed = [{**row, "verdict": "drifted"} for row in rows]
    apart = "Smallest with the same tokens: prune=a (drifted, 1 bytes on disk); nearest to the full cache: prune=b or c (mean KL 0.52 nats)."
    assert apart in drawn(tmp_path, allowed)
    far = [{**allowed[0], "stored_bytes": 90}, allowed[1]]
    assert "Nearest to the full cache (by mean KL): prune=b (drifted, 90 bytes on disk)." in drawn(
        tmp_path, far
    )
    right = [{**row, "answer": "right"} for row in rows]
    assert (
        "Smallest with the right answer: prune=a (diverged, right answer, 1 bytes on disk); nearest"
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
        "mean KL 0.5 nats, 10 bytes on disk). Smallest and nearest where model=tiny_gpt2: prune=a (drifted, 10 bytes on disk)."
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
    assert "Smallest with the same tokens: prune=a or b (drifted" in page


def test_an_answer_is_called_right_only_where_one_was_expected(tmp_path):
    """A point of the full cache's tokens that is worse than required leaves those with others to choose among."""
    rows = points(
        {"prune": "a", "kl_mean": 0.5},
        {"prune": "b", "kl_mean": 0.9, "stored_bytes": 90},
        {"prune": "c", "kl_mean": 1e-6, "verdict": "drifted", "exit_code": 1},
    )
    assert "right answer" not in summary.told(rows, {})[1]
    wrong = [{**row, "answer": "wrong"} for row in rows[:2]] + [{**rows[2], "answer": "right"}]
    assert "with the right answer" not in summary.told(wrong, {})[1]
    right = [{**row, "answer": "right"} for row in rows]
    assert summary.told(right, {})[1].startswith(
        "Smallest with the right answer that is as required: prune=b ("
    )


def test_points_with_other_tokens_are_chosen_by_how_near_they_are_and_never_called_the_smallest(
    tmp_path,
):
    rows = points(
        {"prune": "a", "kl_mean": 0.608, "stored_bytes": 120, "prune.ratio": "0.5"},
        {"prune": "a", "kl_mean": 0.649, "stored_bytes": 107},
        {"prune": "a", "kl_mean": 0.6081, "stored_bytes": 190},
        {"prune": "none", "kl_mean": 1e-6, "verdict": "drifted", "exit_code": 1, "stored_bytes": 140},
    )  # fmt: skip
    for row, codes in zip(rows, ("int8", "int8", "none", "int8")):
        row["quantize"] = codes
        row["prune.ratio"] = "0.25" if row["point"] == "1" else "0.5"
    said = summary.told(rows, {})[1]
    first = "Nearest to the full cache (by mean KL) that is as required: prune=a prune.ratio=0.5 quantize=int8 (diverged, "
    assert said.startswith(first) and "mallest" not in said
    page = drawn(tmp_path, rows)
    assert marked(page) == ["0"] and first in page
    assert ' best nearest">' in page and ' best">' not in page, "as the sentence calls it"
    now = summary.markdown(rows, {})
    assert "| **0** (nearest) |" in now
    assert "Of points with other tokens than the full cache" in page.partition("How the best is chosen")[2]  # fmt: skip
    seeds = points(*({"prune": p, "kl_mean": k, "seed": str(s)}
                     for p, *ks in (("a", 0.1, 0.6), ("b", 0.2, 0.55)) for s, k in enumerate(ks)))  # fmt: skip
    seeds += [{**rows[3], "prune": "c", "point": f"{s}c", "seed": s} for s in "01"]  # refused
    said = summary.told(seeds, {})[1]
    assert said.startswith("The nearest over 2 values of seed: prune=a ("), said
    control = points(*({"prune": p, "kl_mean": k} for p, k in (("random", 0.1), ("a", 0.5), ("b", 0.9))))  # fmt: skip
    control[2] |= {"verdict": "drifted", "exit_code": 1}
    said = summary.told(control, {})[1]
    assert said.startswith("Nearest policy to the full cache (by mean KL): prune=a (diverged"), said
    unmeasured = [{**row, "kl_mean": None, "first_divergence": 3 - int(row["point"])} for row in rows]  # fmt: skip
    unmeasured[3]["max_abs_diff"] = 0.1
    assert "full cache (by the first other token) that is" in summary.told(unmeasured, {})[1]


def test_what_makes_a_difference_to_the_full_cache_makes_none_to_these_points_alone():
    """An option of which a full cache that was damaged makes more than the pruned points do."""
    said = (
        "Nearest to the full cache (by mean KL): prune=knorm; restore.strict makes no difference."
    )
    axes = ["prune", "restore.strict"]
    each = [(p, s) for p in ("none", "knorm") for s in ("True", "False")]
    rows = [{"prune": p, "restore.strict": s, "verdict": "diverged"} for p, s in each]
    assert baseline.beside_full(said, rows, axes).endswith("restore.strict makes no difference.")
    rows[0]["verdict"] = "refused"
    told = baseline.beside_full(said, rows, axes)
    assert told.endswith("; restore.strict makes no difference to these points."), told


def test_a_point_that_could_not_be_composed_varies_only_what_was_typed_for_it():
    """The twin: a point of another option."""
    done = {"verdict": "exact", "prune": "knorm", "cache": "manual", "seed": "1"}
    lost = {"verdict": "failed", "prune": "tova", "cache": None, "seed": "1"}
    assert variation.varied([done, lost]) == ["prune"]
    assert variation.varied([done, lost | {"verdict": "exact"}]) == ["prune", "cache"]
