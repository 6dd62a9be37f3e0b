"""What goes before which point to choose: right and wrong answers, damage on purpose, and how far seeds tell settings apart."""

import pytest
from sweeps import points

from harness.report.sweep import (
    agreement,
    baseline,
    conclusion,
    damaged,
    earlier,
    heading,
    inert,
    overall,
    pruned,
    right,
    summary,
    verdicts,
)

POINT = {"task": "experiment", "sampling": "greedy", "tokens": 97, "kept_tokens": 24, "first_divergence": 1}  # fmt: skip
OTHER = POINT | {"verdict": "diverged", "outcome": "diverged", "exit_code": 0, "restore": "equivalent"}  # fmt: skip
FULL = POINT | {"verdict": "equivalent", "outcome": "equivalent", "exit_code": 0, "kept_tokens": 97}


def answered(*given: tuple[dict, str, str, str]) -> list[dict]:
    return points(*({**kind, "prune": prune, "seed": seed, "answer": answer} for kind, prune, seed, answer in given))  # fmt: skip


def test_the_answers_come_first_on_console_and_page(tmp_path) -> None:
    rows = answered(*((FULL, "none", s, "right") for s in "123"), *((OTHER, "snapkv", s, "wrong") for s in "123"))  # fmt: skip
    said = "Right answers: prune=none 3 of 3, prune=snapkv 0 of 3."
    assert right.sentence(rows, ["prune", "seed"]) == said
    shown = summary.closing(tmp_path, rows, 6, [])
    assert f"answers:      {said}" in shown, shown
    assert summary.said(rows, {}, 6)[1].startswith(said)
    assert said in heading.told(tmp_path, rows, ["prune", "seed"], {}, 6, 0)[1]
    with earlier.without():
        assert right.sentence(rows, ["prune", "seed"]) == ""
        assert "Right answers" not in summary.said(rows, {}, 6)[1], "as it was told before"


@pytest.mark.parametrize(
    "answers, said",
    [
        ("wrong wrong", "No point gives a right answer."),
        ("right right", ""),
        ("right wrong", "Right answers: prune=snapkv 1 of 1, prune=knorm 0 of 1."),
    ],
)
def test_one_question(answers, said) -> None:
    first, second = answers.split()
    rows = answered((OTHER, "snapkv", "1", first), (OTHER, "knorm", "1", second))
    assert right.sentence(rows, ["prune"]) == said


def test_of_many_options_their_number_is_told() -> None:
    rows = answered(*((OTHER, f"p{i}", "1", "right" if i < 2 else "wrong") for i in range(6)))
    assert right.sentence(rows, ["prune"]) == "2 of 6 points give the right answer."


def harmed() -> list[dict]:
    drifted = {"verdict": "drifted", "outcome": "drifted", "exit_code": 1, "restore": "equivalent"}
    refused = {"verdict": "refused", "outcome": "refused", "exit_code": 3, "kl_mean": None, "stored_bytes": None}  # fmt: skip
    near = {**FULL, **drifted, "kl_mean": 1e-9, "quantize": "int4"}
    return points(
        {**FULL, "quantize": "none", "fault": "none"},
        {**FULL, **drifted, "quantize": "int4", "fault": "none", "kl_mean": 0.1},
        {**FULL, **refused, "quantize": "none", "fault": "layer_swap"},
        {**near, "fault": "layer_swap", "restore": "diverged"},
        {**near, "fault": "stale_tail"},
        {**FULL, "quantize": "none", "fault": "stale_tail"},
    )


def test_damaged_points_are_counted_and_nothing_is_chosen(tmp_path) -> None:
    rows, axes = harmed(), ["quantize", "fault"]
    said = damaged.sentence(rows, axes)
    assert said == (
        "Damaged on purpose: 4 points, 2 noticed (1 refused, 1 drifted), 2 not: quantize=int4 fault=stale_tail; "
        "quantize=none fault=stale_tail. Without damage: 1 drifted, 1 equivalent."
    )
    lax = [row | {"exit_code": 0} if row["verdict"] == "drifted" else row for row in rows]
    assert "; what is required here lets 1 of them through. Without" in damaged.sentence(lax, axes)
    assert overall.chosen(baseline.tried(rows, axes), axes) == []
    assert f"damage:       {said}" in "\n".join(summary.closing(tmp_path, rows, 6, []))
    assert heading.told(tmp_path, rows, axes, {}, 6, 0)[1].startswith(said), "the first line"
    with earlier.without():
        assert damaged.sentence(rows, axes) == "", "as it was told before"


def test_what_came_to_no_end_is_not_called_noticed() -> None:
    """A mistyped budget damages nothing."""
    rows = harmed()
    rows[2] |= {"verdict": "failed", "outcome": "failed", "exit_code": 2}
    said = damaged.sentence(rows, ["quantize", "fault"])
    assert said.startswith("Damaged on purpose: 3 points, 1 noticed (1 drifted), 2 not: ")
    assert "; 1 damaged point came to no end." in said
    lost = [row | {"verdict": "failed"} for row in rows if row["fault"] != "none"]
    assert (
        damaged.sentence(lost, ["fault"]) == "Nothing was damaged: 4 damaged points came to no end."
    )


def test_where_all_is_noticed_that_is_said() -> None:
    rows = [row for row in harmed() if row["quantize"] == "none"]
    rows[-1] |= {"verdict": "drifted", "outcome": "drifted", "exit_code": 1}
    assert damaged.sentence(rows, ["fault"]) == (
        "Damaged on purpose: 2 points, all noticed (1 refused, 1 drifted). Without damage: 1 equivalent."
    )
    assert overall.chosen(rows, ["fault"]) == []
    with earlier.without():
        assert overall.chosen(rows, ["fault"]) != []


def test_marks_are_on_every_point_that_is_the_same_run() -> None:
    rows = answered((OTHER, "random", "1", ""), (OTHER, "keydiff", "1", ""), (OTHER, "random", "2", ""), (OTHER, "keydiff", "2", ""))  # fmt: skip
    for row, far in zip(rows, (2.0, 1.0, 2.0, 1.0), strict=True):
        row |= {"kl_mean": far, "max_abs_diff": far, "top1_agreement": 0.5}
    assert inert.spread({"1": "nearest"}, rows, ["prune", "seed"]) == {
        "1": "nearest",
        "3": "nearest",
    }
    rows[3]["kl_mean"] = 9.0  # a seed that drew something
    assert inert.spread({"1": "nearest"}, rows, ["prune", "seed"]) == {"1": "nearest"}


def test_a_setting_that_is_best_over_seeds_says_so_above_its_marks() -> None:
    rows = seeded({"0.5": "1100", "0.25": "0010"}, {r: v[:4] for r, v in FAR.items()})
    axes = ["prune.ratio", "prune.seed"]
    marks = {row["point"]: "best" for row in rows if row["prune.ratio"] == "0.5"}
    assert (
        "whatever it came to with a seed by itself"
        in verdicts.sections(rows, axes, marks)[0]["text"]
    )
    one = dict([*marks.items()][:1])
    assert "seed by itself" not in verdicts.sections(rows, axes, one)[0]["text"]


def seeded(right_of: dict[str, str], far: dict[str, list[float]]) -> list[dict]:
    """Points of two budgets over seeds: which answers are right (`1`), and mean KL seed by seed."""
    return points(*(
        {**OTHER, "prune": "random", "prune.ratio": ratio, "prune.seed": str(seed), "kl_mean": kl,
         "answer": "right" if mark == "1" else "wrong"}
        for ratio, marks in right_of.items()
        for seed, (mark, kl) in enumerate(zip(marks, far[ratio], strict=True))
    ))  # fmt: skip


def told(rows: list[dict]) -> str:
    axes = ["prune.ratio", "prune.seed"]
    return overall.sentence(overall.chosen(rows, axes), axes, rows)


FAR = {"0.5": [1, 3, 1, 3, 1, 3, 1, 3, 1, 3], "0.25": [3, 1, 3, 1, 3, 1, 3, 1, 3, 1]}


def test_a_coin_toss_is_told_as_one() -> None:
    few = {ratio: values[:4] for ratio, values in FAR.items()}
    said = told(seeded({"0.5": "1100", "0.25": "0010"}, few))
    assert said.endswith("4 seeds do not tell it from prune.ratio=0.25 (2 right and 1)."), said
    said = told(seeded({"0.5": "1111111110", "0.25": "0000000001"}, FAR))
    assert "prune.ratio=0.5" in said and "do not tell" not in said, said
    with earlier.without():
        said = told(seeded({"0.5": "1100", "0.25": "0010"}, few))
        assert said and "do not tell" not in said


def test_codes_that_came_back_have_the_pill_of_the_restore_too() -> None:
    coded = {**FULL, "verdict": "drifted", "outcome": "drifted", "quantize": "int4", "restore": "equivalent"}  # fmt: skip
    both = [pill["text"] for pill in pruned.pills(points(coded, coded), "2 drifted")]
    assert both == ["both restored as saved", "quantizing: 2 drifted"]
    mixed = [pill["text"] for pill in pruned.pills(points(coded, OTHER), "1 drifted, 1 diverged")]
    assert mixed[1] == "pruning and quantizing: 1 drifted, 1 diverged"
    assert pruned.pills(points(coded, coded | {"restore": "diverged"}), "") == []
    assert pruned.pills(points(coded, coded | {"exit_code": 1}), "") == []


def test_over_seeds_the_share_of_the_same_tokens_is_a_median_on_both_sides() -> None:
    """Not the best seed of one beside the middle of the other."""
    shares = {"0.25": (0.6, 0.9, 0.3), "0.5": (0.8, 0.7, 0.7)}
    rows = points(*(
        OTHER | {"prune": "random", "prune.ratio": ratio, "prune.seed": str(seed), "top1_agreement": share, "kl_mean": kl, "max_abs_diff": 1.0, "mutated": False}
        for (ratio, some), kl in zip(shares.items(), (0.1, 0.2), strict=True) for seed, share in enumerate(some)
    ))  # fmt: skip
    axes = ["prune.ratio", "prune.seed"]
    winners = [row for row in rows if row["prune.ratio"] == "0.25"]
    said = agreement.sentence(winners, axes, rows)
    assert said.startswith(
        "Most tokens the same: prune.ratio=0.5 (70% in the median, the nearest 60%)."
    ), said
    with earlier.without():
        assert "Most tokens" not in agreement.sentence(winners, axes, rows), (
            "90% is the most of any"
        )


def test_the_nearest_of_several_have_the_range_that_older_versions_told_by_its_first() -> None:
    """An honest record of before is audited by what it told."""
    point = OTHER | {
        "verdict": "drifted",
        "outcome": "drifted",
        "first_divergence": None,
        "mutated": False,
    }
    rows = points(*(
        {**point, "quantize": codes, "prune.ratio": ratio, "prune": "keydiff", "kl_mean": far, "stored_bytes": size}
        for codes, ratio, far, size in (
            ("none", "0.25", 0.9, 80), ("int4", "0.25", 0.9, 40), ("none", "0.5", 0.0141, 100), ("int4", "0.5", 0.0138, 60)
        )
    ))  # fmt: skip
    axes = ["quantize", "prune.ratio"]
    winners = overall.chosen(rows, axes)
    now = conclusion.told(winners, axes, rows)
    assert now.endswith(
        "nearest to the full cache: prune.ratio=0.5 (mean KL 0.0138 to 0.0141 nats)."
    ), now
    with earlier.without():
        before = conclusion.told(winners, axes, rows)
    assert before == now.replace("0.0138 to 0.0141", "0.0141")
