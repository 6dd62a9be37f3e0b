"""What a sweep's page says of its nearest point: by which measure, beside which other point, over which seeds."""

from pathlib import Path

from sweeps import points

from harness.report.sweep import (
    agreement,
    choice,
    conclusion,
    heading,
    inert,
    overall,
    pruned,
    seeds,
    summary,
    tally,
)

ROW = {
    "verdict": "diverged", "outcome": "diverged", "exit_code": 0, "restore": "equivalent", "reason": "",
    "task": "experiment", "sampling": "greedy", "kl_mean": 0.5, "max_abs_diff": 2.0, "first_divergence": 1,
    "top1_agreement": 0.5, "tokens": 97, "kept_tokens": 24, "stored_bytes": 90, "steps": 8, "mutated": False,
}  # fmt: skip
NEAR = {"prune": "random", "kl_mean": 0.167}
SAME = {"prune": "snapkv", "top1_agreement": 0.875}
AXES = ["prune", "seed"]


def said(folder: Path, *changes: dict) -> str:
    rows = [
        ROW | change | {"point": f"{i}{seed}", "seed": seed}
        for i, change in enumerate(changes)
        for seed in ("1", "2")
    ]
    return heading.told(folder, rows, AXES, {}, len(rows), 0)[1]


def test_the_nearest_has_its_measure_the_other_measure_and_one_prompt_beside_it(tmp_path) -> None:
    told = said(tmp_path, SAME, NEAR)
    assert told.startswith("All 4 came back as saved;")
    assert "Nearest policy to the full cache by mean KL: prune=snapkv (0.5 nats" in told
    assert "No nearer than chance: the control, prune=random, has 0.167 nats." in told
    assert "Most tokens" not in told and "ties" not in told
    assert "One prompt over 8 steps says how these runs compare" in told
    agreed = said(tmp_path, SAME | {"kl_mean": 0.1}, NEAR)
    assert "prune=snapkv (0.1 nats" in agreed
    assert "Most tokens" not in agreed and "control" not in agreed
    third = {"prune": "knorm", "kl_mean": 0.6, "top1_agreement": 0.9}
    assert "Most tokens the same: prune=knorm (90%, the nearest 88%)." in said(
        tmp_path, SAME, NEAR, third
    )
    alone = said(tmp_path, NEAR, NEAR | {"kl_mean": 0.2})
    assert "prune=random is a control, no policy." in alone


def test_the_conclusion_of_the_console_and_of_mlflow_says_as_well_that_a_control_is_nearer() -> (
    None
):
    rows = [
        ROW | change | {"point": f"{i}{seed}", "seed": seed}
        for i, change in enumerate((SAME, NEAR))
        for seed in ("1", "2")
    ]
    said = summary.told(rows, {}, 4)[1]
    assert said.endswith("No nearer than chance: the control, prune=random, has 0.167 nats.")
    more = [
        ROW | {"prune": "knorm", "kl_mean": 0.6, "top1_agreement": 0.9, "point": f"k{n}", "seed": n}
        for n in "12"
    ]
    some = [*rows, *more]
    same = "Most tokens the same: prune=knorm (90%, the nearest 88%)."
    alone = agreement.beside(overall.chosen(some, AXES), AXES, some)
    assert same in alone, "no seed where all agree"
    more[0]["top1_agreement"] = 0.5
    alone = agreement.beside(overall.chosen(some, AXES), AXES, some)
    assert "Most tokens" not in alone, "70% in the median: one seed is no setting"
    rows[2]["kl_mean"] = 0.7  # with one of the seeds the policy is nearer than its control
    assert "chance" not in summary.told(rows, {}, 4)[1]


def test_a_budget_that_the_best_does_not_read_is_said_to_tie_by_nobody() -> None:
    whole = {"prune": "none", "verdict": "equivalent", "outcome": "equivalent", "kept_tokens": 97}
    rows = [
        ROW | change | {"point": f"{i}{ratio}", "prune.ratio": ratio}
        for i, change in enumerate((whole, NEAR))
        for ratio in ("0.25", "0.5")
    ]
    rows[3]["kl_mean"] = 0.01
    said = summary.told(rows, {}, 4)[1]
    assert said.startswith("Beside prune=none, the full cache: both came back as saved;")
    assert "by mean KL: prune=random prune.ratio=0.5 (0.01 nats" in said
    assert "no policy" in said and "ratio=0.25" not in said


def test_a_sweep_over_a_seed_that_draws_nothing_says_so_first(tmp_path) -> None:
    same = [
        {**row, "task": "experiment", "sampling": "greedy", "verdict": "equivalent"}
        for row in points({}, {}, {})
    ]
    rows = [{**row, "prune": "none", "seed": str(i)} for i, row in enumerate(same)]
    _, text, _ = heading.told(tmp_path, rows, ["seed"], {}, 3, 0)
    assert text.startswith(
        "The seed draws nothing with sampling=greedy, so every point is the same run"
    ), text
    rows[1]["kl_mean"], rows[1]["kl_max"] = 0.5, 0.7
    _, text, _ = heading.told(tmp_path, rows, ["seed"], {}, 3, 0)
    assert "draws nothing" not in text


def test_who_came_back_as_saved_is_named_one_both_or_all(tmp_path) -> None:
    whole = {"prune": "none", "verdict": "equivalent", "outcome": "equivalent", "kept_tokens": 97}
    rows = [
        ROW | change | {"point": str(i)} for i, change in enumerate((whole, {"prune": "snapkv"}))
    ]
    now = summary.told(rows, {}, 2)[1]
    assert now.startswith("Beside prune=none, the full cache: the pruned point came back as saved;")
    seeds = [
        ROW | {"prune": p, "kl_mean": k, "seed": s, "point": f"{p}{s}"}
        for p, k in (("snapkv", 0.5), ("knorm", 0.7))
        for s in "12"
    ]
    _, text, _ = heading.told(tmp_path, seeds, ["prune", "seed"], {}, 4, 0)
    assert "All 4 came back as saved;" in text and "Both" not in text, text
    some = [
        ROW | {**change, "task": "experiment", "sampling": "greedy", "seed": s, "point": f"{p}{s}"}
        for p, change in (("none", whole), ("snapkv", {"prune": "snapkv"}))
        for s in "123"
    ]
    said = summary.told(some, {}, 6)[1]
    assert "all 3 came back as saved; pruning changes tokens in each" in said, said


def test_a_control_that_keeps_more_tokens_is_no_chance_at_this_budget() -> None:
    """The twin keeps as many: then it is."""
    axes = ["prune", "prune.ratio"]
    mine = ROW | SAME | {"prune.ratio": "0.25", "point": "0"}
    more = ROW | NEAR | {"prune.ratio": "0.5", "kept_tokens": 48, "point": "1"}
    told = agreement.control([mine], axes, [mine, more])
    assert told == "As near or nearer with more tokens kept: the control, prune=random prune.ratio=0.5 (0.167 nats)."  # fmt: skip
    chance = "No nearer than chance: the control, prune=random prune.ratio=0.5, has 0.167 nats."
    assert agreement.control([mine], axes, [mine, more | {"kept_tokens": 24}]) == chance
    far = more | {"kept_tokens": 24, "kl_mean": 0.9, "prune.ratio": "0.25", "point": "2"}
    assert agreement.control([mine], axes, [mine, more, far]) == told, "chance is worse at 0.25"
    assert agreement.control([mine], axes, [mine, far]) == ""
    assert agreement.control([mine], axes, [mine, more], once=True) == chance


def test_mlflow_is_told_what_the_console_says_of_one_prompt_and_of_seeds() -> None:
    """The twin as older versions told it."""
    rows = [ROW | change | {"point": str(i)} for i, change in enumerate((SAME, NEAR))]
    one, before = (summary.said(rows, {}, 2, once=once)[1] for once in (False, True))
    assert one.startswith(before) and one.endswith("for that, task=evaluate."), one
    alike = [ROW | {"verdict": "equivalent", "outcome": "equivalent", "error_ratio": e, "max_abs_diff": e, "seed": str(s),
                    "prune": "none", "point": str(s)} for s, e in enumerate((0.4, 0.9))]  # fmt: skip
    spread = seeds.told(alike, ["seed"])
    assert (
        spread
        == "2 points over seed: all equivalent, error 0.4 to 0.9 of rounding's own (median 0.65, 2 allowed)."
    )
    assert summary.said(alike, {}, 2, spread=spread)[1] == spread
    assert summary.said(alike, {}, 2)[1].startswith("Varied: seed")


def test_mlflow_is_told_that_a_seed_draws_nothing_and_pruned_states_are_not_held_to_rounding() -> (
    None
):
    """The twins: a seed that drew something, and a conclusion as older versions told it."""
    whole = {"task": "experiment", "sampling": "greedy", "verdict": "equivalent", "outcome": "equivalent",
             "prune": "none", "quantize": "none", "kept_tokens": 97, "tokens": 97, "error_ratio": 0.5}  # fmt: skip
    rows = [ROW | whole | {"seed": str(s), "point": str(s)} for s in (1, 2)]
    said = summary.said(rows, {}, 2)[1]
    assert "0.5 of rounding's own (2 allowed)" in said and said.endswith(f" {inert.DRAWS}"), said
    assert inert.DRAWS not in summary.said(rows, {}, 2, once=True)[1]
    drawn = [row | {"max_abs_diff": float(row["seed"])} for row in rows]
    assert inert.DRAWS not in summary.said(drawn, {}, 2)[1]
    pruned = rows[1] | {"prune": "keydiff", "kept_tokens": 24, "error_ratio": 1e5}
    said, once = (summary.measured([rows[0], pruned], once=once) for once in (False, True))
    assert "0.5 of rounding" in said and "1e+05 of rounding" in once, (said, once)


def test_the_most_right_answers_over_several_prompts_are_told_and_which_setting_is_best() -> None:
    """The twins: all options are as often right, and a record of before, which had no best point of the first prompt."""
    kept = {"verdict": "drifted", "outcome": "drifted", "answer": "right", "quantize": "none"}
    rows = []
    for seed, (near, far) in {"1": ("right", "right"), "2": ("right", "wrong")}.items():
        one = (
            ROW | kept | {"prompt.seed": seed, "answer": near, "prune": "keydiff", "kl_mean": 0.01}
        )
        two = ROW | kept | {"prompt.seed": seed, "answer": far, "prune": "snapkv", "kl_mean": 0.005}
        rows += [one | {"point": f"{seed}a"}, two | {"point": f"{seed}b"}]
    axes = ["prompt.seed", "prune"]
    said = "Most right answers over prompt.seed: prune=keydiff (2 of 2)."
    assert tally.sentence(rows, axes) == said
    told = summary.said(rows, {}, 4)[1]
    assert told.startswith(
        f"{said} The best over 2 values of prompt.seed: prune=keydiff (2 drifted; 2 right; mean KL 0.01 nats in the "
    )
    assert set(summary.winners(rows, {})[0]) == {"1a", "2a"}, "of the setting, not of each seed"
    each = overall.of_each(rows, axes)
    assert [row["point"] for row in each] == ["1b", "2a"], "the nearer of two that tie in all else"
    formerly = f"{said} {conclusion.told(each, axes, rows)}"
    assert "The best is marked for each prompt.seed (prune=snapkv where" in formerly
    before = [row["point"] for row in overall.chosen(rows, axes, once=True)]
    assert before == ["2a"] == summary.once_marked(rows, {})
    assert tally.sentence([row | {"answer": "right"} for row in rows], axes) == ""
    assert tally.sentence(rows[:3], axes) == "", "not all were asked all"


def test_over_seeds_the_setting_is_named_that_is_best_over_all_of_them() -> None:
    """Each seed has another best: with one of them the smaller codes change a token. The twin was asked of texts."""
    codes = ROW | {
        "verdict": "drifted",
        "outcome": "drifted",
        "kept_tokens": 97,
        "sampling": "sample",
    }
    rows = [
        codes | {"quantize": name, "stored_bytes": size, "kl_mean": far * int(seed), "seed": seed, "point": name + seed}
        for seed in "123"
        for name, size, far in (("int8", 90, 1e-6), ("int4", 50, 1e-3))
    ]  # fmt: skip
    rows[-1] |= {"verdict": "diverged", "outcome": "diverged"}
    told = summary.told(rows, {})[1]
    spread = "mean KL 2e-06 nats in the median, 1e-06 to 3e-06"
    assert told == f"The best over 3 values of seed: quantize=int8 (3 drifted; {spread})."
    assert set(summary.winners(rows, {})[0]) == {"int81", "int82", "int83"}
    worse = [row | {"verdict": "diverged", "exit_code": 1} for row in rows]
    assert "quantize=int4" in summary.told([*worse[:2], *rows[2:4], rows[4] | {"exit_code": 1}, rows[5]], {})[1]  # fmt: skip
    texts = [{"text" if k == "seed" else k: v for k, v in row.items()} for row in rows]
    assert "marked for each text (quantize=int4 where text=1" in summary.told(texts, {})[1]


def test_a_nearer_point_that_is_refused_has_what_each_is_held_to_beside_the_one_that_is_chosen(
    tmp_path,
) -> None:
    """The twins: one that is refused and further off, and a record of before, which said nothing of it."""
    codes = {
        "prune": "none",
        "quantize": "int8",
        "verdict": "drifted",
        "outcome": "drifted",
        "kept_tokens": 97,
    }
    rows = [
        ROW | codes | {"exit_code": 1, "kl_mean": 1e-6, "point": "0"},
        ROW | {"prune": "snapkv", "quantize": "int8", "point": "1"},
        ROW | {"prune": "knorm", "quantize": "int8", "kl_mean": 0.8, "point": "2"},
    ]  # fmt: skip
    told = summary.told(rows, {})[1]
    more = (
        "Nearer, and yet refused: prune=none (mean KL 1e-06 nats), since what is pruned is held to "
        "compare.require_pruned and what is quantized alone to compare.require."
    )
    assert more in told and "prune=snapkv" in told
    tied = [*rows[:2], rows[2] | {"kl_mean": 0.5, "stored_bytes": 99}]
    page = heading.told(tmp_path, tied, ["prune"], {}, 3, 0)[1]
    assert page.partition("\n")[0].endswith(f"). {more}"), "on top of it"
    told = summary.told(tied, {})[1]
    assert f"). {more} As near: prune=knorm (0.5 nats), with " in told, told
    rows[0]["kl_mean"] = 0.9
    assert "refused" not in summary.told(rows, {})[1]


def test_a_sweep_of_the_control_alone_names_no_policy() -> None:
    """The twin has a policy beside it, and a record of before called it one."""
    rows = [ROW | change | {"prune": "random", "prune.ratio": str(r), "kl_mean": r, "point": str(r)}
            for change, r in ((NEAR, 0.25), (NEAR, 0.5))]  # fmt: skip
    said = pruned.told(rows, rows[:1], ["prune.ratio"])
    assert ". Nearest to the full cache" in said, said
    mixed = [rows[0] | {"prune": "keydiff"}, rows[1]]
    assert ". Nearest policy to" in pruned.told(mixed, mixed[:1], ["prune", "prune.ratio"])


def test_a_quantizer_that_keeps_the_tokens_is_told_which_has_the_nearer_logits() -> None:
    """The twin is the nearest itself."""
    axes = ["quantize"]
    mine = ROW | {
        "quantize": "int4",
        "verdict": "drifted",
        "kl_mean": 1e-3,
        "prune": "none",
        "point": "0",
    }
    near = mine | {"quantize": "int8", "verdict": "diverged", "kl_mean": 3e-6, "point": "1"}
    told = agreement.nearer([mine], axes, [mine, near])
    assert (
        told
        == "Nearer in its logits, though with another token, the first at step 2 of 8: quantize=int8 (mean KL 3e-06 nats, here 0.001)."
    )
    assert agreement.nearer([mine], axes, [mine, near | {"kl_mean": 0.5}]) == ""
    assert agreement.nearer([near], axes, [mine, near]) == ""
    short = near | {"verdict": "drifted", "exit_code": 1}
    assert "though short of what is required" in agreement.nearer([mine], axes, [mine, short])
    said = summary.said([mine, near], {}, 2)[1]
    assert told in said and "not which quantizer is better in general" in said


def test_the_nearest_has_the_step_of_its_first_other_token_and_which_keeps_the_same_ones_longer():
    """The twins: the nearest keeps them longest itself, tokens are drawn, and a record of before."""
    rows = points(*(ROW | {"prune": p, "prune.ratio": r, "kl_mean": kl, "first_divergence": n, "error_ratio": None}
                    for p, kl, n in (("snapkv", 0.3, 1), ("keydiff", 0.6, 4)) for r in ("0.25", "0.5")))  # fmt: skip
    rows[1]["kl_mean"] = 0.4
    said = "The first other token of the nearest is at step 2"
    told = summary.told(rows, {})[1]
    assert f"{said}, that of prune=keydiff at step 5." in told, told
    alone = [row | {"first_divergence": 1} for row in rows]
    assert f"{said}." in summary.told(alone, {})[1]
    assert said not in summary.told([row | {"sampling": "sample"} for row in rows], {})[1]


def test_a_spread_that_is_no_spread_is_told_of_each_seed_and_all_that_varies_is_named() -> None:
    """The twin of before named the seeds alone."""
    same = {"verdict": "equivalent", "outcome": "equivalent", "error_ratio": 0.4, "prune": "none"}
    rows = points(*(ROW | same | {"cache": c, "seed": s} for c in "vw" for s in "12"))
    told = seeds.told(rows, ["cache", "seed"])
    one = "all equivalent, error 0.4 of rounding's own in each (2 allowed)"
    assert told == f"4 points over seed and cache: cache=v {one}; cache=w {one}."


def test_what_is_held_in_memory_counts_with_its_keys_and_values() -> None:
    few, many = (ROW | {"save": "memory", "stored_bytes": 80, "kv_bytes": n} for n in (50, 100))
    assert choice.stored(few) < choice.stored(many)
    assert choice.stored(few | {"save": "safetensors"}) == choice.stored(many | {"save": "gzip"})
