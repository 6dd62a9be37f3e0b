"""What the sentence on the best of a sweep says where points came to no end, a control is nearer, or memory holds most."""

from sweeps import drawn, points

from harness.report.sweep import (
    baseline,
    choice,
    conclusion,
    heading,
    overall,
    price,
    seeds,
    summary,
)


def test_a_question_whose_other_points_came_to_no_end_has_its_best_too():
    """Else the sentence speaks of the one model whose other points ran to their end, as if the others had none."""
    ran = {
        "verdict": "equivalent",
        "exit_code": 0,
        "reason": "",
        "save": "none",
        "stored_bytes": 9,
    }
    lost = ran | {"verdict": "diverged", "exit_code": 1, "save": "swap"}
    gone = lost | {"verdict": "refused", "exit_code": 3}
    rows = points(
        ran | {"model": "a"}, gone | {"model": "a"}, ran | {"model": "b"}, lost | {"model": "b"}
    )
    axes = ["model", "save"]
    more = [row | {"cache": c} for row in rows for c in ("x", "y")]  # two of each ran
    told = conclusion.told(overall.chosen(more, axes), axes, more)
    assert "ithin rounding for every model: save=none" in told, told
    rival = [rows[0], rows[1], rows[2] | {"save": "none"}, rows[2] | {"save": "more"}]
    assert overall.chosen(rival, axes) == [], "of b both are as good, of a one had no rival"
    alone = [row | {"model": "a"} for row in rows[:2]]
    assert overall.chosen(alone, ["save"]) == [], "one point that ran is the best of none"


def test_only_points_that_ran_are_counted_among_those_that_do_not_keep_the_tokens(tmp_path):
    """The twin ran whole; a record of before counted them all."""
    far = {"verdict": "diverged", "kl_mean": 0.5, "reason": "", "mutated": False}
    gone = {"verdict": "failed", "exit_code": 2, "kl_mean": None}
    rows = points(*(far | {"prune": p} for p in "abcd"))
    rows[1]["kl_mean"] = 0.1
    assert summary.told(rows, {})[1].startswith("None of 4 keeps the tokens. The nearest: prune=b")
    rows[0] |= gone
    now = summary.told(rows, {})[1]
    assert now.startswith("None of the 3 that ran keeps the tokens. The nearest: prune=b"), now
    assert "None of the 3 that ran keeps" in drawn(tmp_path, rows)
    for row in rows[2:]:
        row |= gone
    assert choice.short_of(rows) == "The only one that ran does not keep the tokens."


def test_the_nearest_policy_is_not_called_the_nearest_where_a_control_is_nearer():
    far = {"verdict": "diverged", "exit_code": 0, "reason": "", "stored_bytes": 9, "kl_mean": 0.5}
    rows = points(
        far | {"prune": "snapkv"},
        far | {"prune": "knorm", "kl_mean": 0.9},
        far | {"prune": "random", "kl_mean": 0.1},
    )
    told = conclusion.told(overall.chosen(rows, ["prune"]), ["prune"], rows)
    assert told.startswith("None of 3 keeps the tokens. The nearest policy: prune=snapkv"), told
    rest = rows[:2]
    assert "The nearest: prune=snapkv" in conclusion.told(
        overall.chosen(rest, ["prune"]), ["prune"], rest
    )


def test_what_memory_holds_counts_in_the_bytes_that_are_told():
    """Its few on the disk are a manifest: they would make it the smallest of formats that keep all."""
    row = {"verdict": "equivalent", "exit_code": 0, "reason": "", "kv_bytes": 1000}
    rows = points(
        row | {"quantize": "int8", "stored_bytes": 10},
        row | {"quantize": "int4", "stored_bytes": 10, "kv_bytes": 1190},
    )  # fmt: skip
    rows = [point | {"save": "memory"} for point in rows]
    best = overall.chosen(rows, ["quantize"])
    told = conclusion.told(best, ["quantize"], rows)
    assert "quantize=int8 (equivalent, 1,010 bytes, 1,000 of them in memory alone)" in told, told
    assert "84% of the bytes of quantize=int4" in price.sentence(best, ["quantize"], rows)


def test_what_dies_with_its_process_is_never_the_best_beside_what_is_on_disk():
    """The twin has all in memory."""
    row = {"verdict": "equivalent", "exit_code": 0, "reason": "", "kv_bytes": 100}
    rows = points(*(row | {"save": s, "quantize": q, "stored_bytes": n, "seed": seed} for seed in "12"
                    for s, q, n in (("gzip", "int8", 900), ("gzip", "int4", 1100), ("memory", "int8", 10))))  # fmt: skip
    said = "Smallest within rounding, of those on disk, for every seed: save=gzip quantize=int8 (900 bytes on disk)."
    axes = ["seed", "save", "quantize"]
    assert conclusion.told(overall.chosen(rows, axes), axes, rows) == said
    one = conclusion.told(overall.chosen(rows[:3], axes[1:]), axes[1:], rows[:3])
    assert "of those on disk: save=gzip quantize=int8 (equivalent, 900 bytes on disk)" in one, one
    both = [rows[0], rows[2]]
    alike = conclusion.told(overall.chosen(both, ["save"]), ["save"], both)
    assert alike.startswith("Within rounding, of those on disk: save=gzip (equivalent, 900"), alike
    alone = [point | {"save": "memory"} for point in rows]
    axes.remove("save")
    told = conclusion.told(overall.chosen(alone, axes), axes, alone)
    assert "disk" not in told and "int8 (110 bytes, part of them in memory alone)." in told, told
    better = [rows[0] | {"verdict": "drifted"}, rows[2]]
    assert overall.chosen(better, ["save"]) == better[:1]
    short = [rows[0] | {"exit_code": 1}, rows[2]]
    assert overall.chosen(short, ["save"]) == [], "what is required comes before"
    spread = [point | {"verdict": "diverged", "kl_mean": kl} for point, kl in
              zip(rows, (0.3, 0.5, 0.1, 0.5, 0.3, 0.1))]  # fmt: skip
    assert {point["save"] for point in overall.chosen(spread, [*axes, "save"])} == {"gzip"}


def test_over_seeds_the_nearest_has_its_figures_too():
    """The twins ask of two models, whose sizes are no spread, and a record of before had no figure."""
    far = {"verdict": "diverged", "reason": "", "mutated": False}
    rows = points(*(far | {"prune": p, "seed": s, "kl_mean": kl, "stored_bytes": n} for p, s, kl, n in (
        ("a", "1", 0.179, 1000), ("b", "1", 0.9, 1000), ("a", "2", 0.241, 1010), ("b", "2", 0.9, 1000))))  # fmt: skip
    told = summary.told(rows, {})[1]
    figures = " (mean KL 0.179 to 0.241 nats, 1,000 to 1,010 bytes on disk)"
    assert f"The nearest for every seed: prune=a{figures}." in told, told
    models = [{"model": row["seed"], **row, "seed": "0"} for row in rows]
    assert "The nearest for every model: prune=a." in summary.told(models, {})[1]


def test_what_is_as_near_and_writes_into_the_cache_is_named():
    """The twins are further off, and a record of before named none."""
    far = {"verdict": "diverged", "reason": "", "kl_mean": 0.25}
    rows = points(*(far | {"cache": c, "mutated": c == "dynamic", "seed": s}
                    for s in "12" for c in ("manual", "dynamic")))  # fmt: skip
    said = " As near, and writing into your cache: cache=dynamic."
    told = summary.told(rows, {})[1]
    assert "The nearest for every seed: cache=manual" in told and said in told, told
    apart = [row | {"kl_mean": 0.3 if row["mutated"] else 0.25} for row in rows]
    assert said not in summary.told(apart, {})[1]


def test_a_seed_that_draws_nothing_counts_no_answer_twice_on_console_page_and_server(tmp_path):
    """The twin draws; a record of before counted each greedy run once for every seed."""
    near = {"task": "experiment", "sampling": "greedy", "verdict": "drifted", "reason": "", "mutated": False,
            "kl_mean": 0.1, "stored_bytes": 1000, "answer": "right"}  # fmt: skip
    far = near | {"verdict": "diverged", "kl_mean": 0.5, "stored_bytes": 900}
    lost = far | {"prune": "snapkv", "answer": "wrong"}
    rows = points(
        *(row | {"seed": s} for row in (near, far | {"prune": "random"}, lost) for s in "12")
    )
    said = "The only one with the same tokens: prune=keydiff (drifted, right answer, 1,000 bytes on disk)."
    for row in rows[:2]:
        row["prune"] = "keydiff"
    axes = ["prune", "seed"]
    told = [summary.told(rows, {})[1], summary.said(rows, {}, 6)[1]]
    told += [" ".join(summary.closing(tmp_path, rows, 6, []))]
    told += [heading.told(tmp_path, rows, axes, {}, 6, 0)[1]]
    assert all(said in some and "over seed:" not in some for some in told), told
    drawn = [row | {"sampling": "sample"} for row in rows]
    before = summary.told(drawn, {})[1]
    assert before.startswith("Most right answers over seed: prune="), before
    assert before in heading.told(tmp_path, drawn, axes, {}, 6, 0)[1]


def test_a_budget_that_dropped_nothing_is_the_full_cache_that_others_are_tried_beside(tmp_path):
    """The twins dropped a token in another question, or hold codes; a record of before could choose it."""
    near = {"verdict": "drifted", "reason": "", "mutated": False, "quantize": "int4",
            "kl_mean": 0.1, "tokens": 80, "kept_tokens": 40, "stored_bytes": 1000}  # fmt: skip
    full = near | {"verdict": "equivalent", "kept_tokens": 80, "prune.ratio": "1.0",
                   "quantize": "none", "kl_mean": 0.0, "stored_bytes": 9000}  # fmt: skip
    rows = points(*(row | {"prune": p} for p in ("keydiff", "snapkv") for row in (near, full)))
    rows[2] |= {"kl_mean": 0.5, "verdict": "diverged"}
    axes = ["prune", "prune.ratio", "quantize"]
    said = "Beside prune.ratio=1.0 quantize=none, the full cache: the only one with the same tokens: prune=keydiff prune.ratio=0.5 quantize=int4"
    told = summary.told(rows, {})[1]
    assert told.startswith(said), told
    assert heading.told(tmp_path, rows, axes, {}, 4, 0)[1].startswith(said)
    coded = [row | {"quantize": "int4"} for row in rows]
    assert [row["point"] for row in baseline.tried(coded, axes)] == ["0", "1", "2", "3"]
    asked = [row | {"text": t, "kept_tokens": row["kept_tokens"] - (t == "b")}
             for row in rows for t in "ab"]  # fmt: skip
    assert len(baseline.tried(asked, [*axes, "text"])) == len(asked)


def test_the_option_that_tells_the_outcomes_of_seeds_apart_is_told_in_words():
    """The twin has one outcome under both of its values; a record of before told each setting's figures."""
    rows = points(*({"quantize": q, "cache": c, "seed": s, "verdict": v if s == "1" else w, "reason": ""}
                    for q, v, w in (("none", "equivalent", "equivalent"), ("int4", "drifted", "diverged"))
                    for c in "ab" for s in "12"))  # fmt: skip
    axes = ["quantize", "cache", "seed"]
    now = seeds.told(rows, axes)
    assert now == (
        "8 points over seed and quantize and cache: quantize=none: within rounding in all 4; "
        "quantize=int4: the same tokens in 2, other tokens in 2 of 4."
    )
    rows[0]["verdict"] = "drifted"
    assert seeds.told(rows, axes) == seeds.told(rows, axes, once=True)


def test_the_page_has_the_figures_of_the_console_where_no_point_is_to_be_chosen(tmp_path):
    """The twin over seeds has its own sentence."""
    rows = points(*({"model": m, "verdict": "equivalent", "error_ratio": e, "reason": "", "prune": "none", "tokens": 40}
                    for m, e in (("a", 0.5), ("b", 1.04))))  # fmt: skip
    said = "argest error is 1.04 of rounding's own (2 allowed)"
    page = heading.told(tmp_path, rows, ["model"], {}, 2, 0)[1]
    console = " ".join(summary.closing(tmp_path, rows, 2, []))
    assert f"to its end. The l{said}" in page and f"Varied: model; the l{said}" in console, page
    drawn = [{**row, "model": "a", "seed": row["model"]} for row in rows]
    assert said not in heading.told(tmp_path, drawn, ["seed"], {}, 2, 0)[1]
