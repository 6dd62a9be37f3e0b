"""What an evaluation comes to: in words and in the badge above its page."""

from harness.report import html
from harness.report.evaluate.choice import conclusion, pills
from harness.report.evaluate.page import surprised
from harness.snapshot.cells import best, code, nearest

FULL = {"prune": "none", "quantize": "none", "budget": 1.0, "cache": "auto", "asked": "after"}


def test_a_conclusion_names_the_smallest_safe_cell_in_two_short_sentences() -> None:
    def row(prune: str, value: float, kv_bytes: int) -> dict:
        place = {"prune": prune, "quantize": "none", "budget": 1.0 if prune == "none" else 0.1, "cache": "manual", "asked": "after"}  # fmt: skip
        gap = {"delta": 0.0, "delta_low": -0.34, "delta_high": 0.0}
        return {**place, "measure": "contains", "value": value, "n": 8, "kv_bytes": kv_bytes, **gap}

    for share in (0.0, 0.375):
        few = [row("none", share, 100), row("random", share, 10)]
        assert best(few) is None and nearest(few) is None and code(few) == "cannot_tell"
        told = f"These prompts cannot tell: the full cache itself has {8 * share:g} of 8 prompts right."
        assert conclusion(few) == told
        (pill,) = pills(few)
        assert (pill["kind"], pill["text"]) == ("soft", "these prompts cannot tell")
    half = [row("none", 0.5, 100), row("random", 0.5, 10)]
    assert code(half) == "choice" and code(half[:1]) == "full_cache_alone"
    right = [row("none", 1.0, 100), row("random", 1.0, 10)]
    assert conclusion(right) == (
        "By 8 prompts, smallest safe choice: random 10% (8 of 8 right, 10% of the bytes). "
        "They could miss a loss of up to 34 points."
    )
    few = {"text": "random 10%: 8 of 8 right", "kind": "fair", "sign": "?"}
    assert pills(right) == [few]
    enough = {"text": "random 10%: 100% right", "kind": "good", "sign": "\u2713"}
    many = [right[0], {**right[1], "n": 100, "delta_low": -0.04}]
    assert pills(many) == [enough] and "can tell" not in conclusion(many)
    some = [
        right[0],
        {**right[1], "n": 24, "delta_low": -0.14},
    ]  # what so few say begins with them no more
    assert conclusion(some).startswith(
        "Smallest safe choice, as far as 24 prompts can tell: random"
    )
    two = [{**row, "n": 2, "delta_low": 0.0} for row in right]
    assert conclusion(two).startswith(
        "By 2 prompts, smallest safe choice: random 10% (2 of 2 right"
    )
    for low, few in ((-0.79, True), (-0.39, False)):
        told = conclusion([{**row, "n": 2, "delta_low": low} for row in right])
        assert told.endswith("points: too few to choose by.") is few
    parts = {10: "10%", 25: "a quarter", 50: "half", 75: "three quarters"}
    for size, part in parts.items():
        assert f", {part} of the bytes)" in conclusion([right[0], row("random", 1.0, size)])
    no_less = conclusion([right[0], {**right[1], "delta_low": 0.0}])
    assert no_less.endswith("bytes). No loss shows in 8 prompts.")
    alike = conclusion([row("none", 0.5, 100), row("random", 0.5, 10)])
    assert "(4 of 8 right, as with the full cache, 10% of the bytes)" in alike
    fewer = conclusion([right[0], {**row("random", 0.99, 10), "n": 200, "delta": -0.01}])
    assert "(198 of 200 right, 8 with the full cache, 10% of the bytes)" in fewer
    before = [{**row(p, v, n), "asked": "before"} for p, v, n in (("none", 1.0, 100), ("random", 0.5, 10))]  # fmt: skip
    both = conclusion([*right, *before])
    head = "By 8 prompts, smallest safe choice where the question is asked after pruning: random 10% (8 of 8 right"
    assert both.startswith(head)
    assert both.endswith(" Asked before pruning, it has 4 of 8 right, 8 with the full cache.")
    mute = [before[0] | {"value": 0.25}, before[1]]
    told = " Asked before pruning, these prompts cannot tell: the full cache itself has 2 of 8 prompts right."
    assert conclusion([*right, *mute]).endswith(told)
    worse = [before[0], {**before[1], "delta": -0.5, "delta_low": -0.8, "delta_high": -0.2}]
    none = (
        " Asked before pruning, it has 4 of 8 right, 8 with the full cache; no cell is safe there."
    )
    assert conclusion([*right, *worse]).endswith(none)
    keeps = {**before[1], "prune": "knorm", "value": 1.0}
    other = "with the full cache; safe there: knorm 10% (8 of 8 right)."
    assert conclusion([*right, *worse, keeps]).endswith(other), "the cell that is chosen is not"
    timed = [row | {"per_token_s": 1e-3 * row["kv_bytes"]} for row in right]
    assert " ms" not in conclusion(timed), "a median that noise may turn round is no result"


def test_where_no_cell_is_safe_the_conclusion_says_so_and_what_comes_nearest() -> None:
    def row(prune: str, value: float, size: int) -> dict:
        return FULL | {"prune": prune, "budget": 1.0 if prune == "none" else 0.1, "measure": "contains", "n": 8,
                       "value": value, "delta": value - 1.0, "delta_low": -1.0, "delta_high": -0.1, "kv_bytes": size}  # fmt: skip

    full, others = row("none", 1.0, 100), [row("snapkv", 0.25, 20), row("knorm", 0.5, 20)]
    assert conclusion([full, *others, row("random", 0.5, 10)]) == (
        "By 8 prompts, no safe choice: the full cache has 8 of 8 right, and no other cell keeps that. "
        "The nearest is random 10%: 4 of 8 right."
    )
    assert [(p["text"], p["kind"]) for p in pills([full, *others])] == [("no safe choice", "fair")]
    assert conclusion([full, row("random", 0.0, 10)]).endswith(" No other cell has one right.")
    asked = [r | {"asked": "before"} for r in (full, *others)]
    assert conclusion([full, *others, *asked]).endswith(
        " The nearest is knorm 10%: 4 of 8 right. Asked before pruning, no cell is safe either, and the nearest is "
        "knorm 10% (4 of 8 right, 8 with the full cache)."
    )
    asked[1] |= {"value": 1.0, "delta": 0.0, "delta_high": 0.0}
    assert conclusion([full, *others, *asked]).endswith(
        " Asked before pruning, the smallest safe choice is snapkv 10% (8 of 8 right)."
    )
    twice = [full, {**full, "asked": "before"}]
    assert conclusion(twice) == (
        "The full cache where the question is asked after pruning: 8 of 8 right. Nothing smaller was tried."
    )
    assert pills(twice) == [], "the full cache asked twice is no other cell"


def test_a_conclusion_says_where_the_expected_text_is_less_likely() -> None:
    full = FULL | {"measure": "contains", "value": 1.0, "n": 8, "kv_bytes": 100}
    cell = full | {"prune": "random", "budget": 0.1, "kv_bytes": 10, "delta": 0.0, "delta_low": -0.3, "delta_high": 0.3}  # fmt: skip
    nll = cell | {"measure": "nll", "delta": 0.15, "delta_low": 0.1, "delta_high": 0.2}
    told = conclusion([full, cell, nll])
    assert told.startswith("By 8 prompts, smallest safe choice by right answers: random 10%")
    assert told.endswith(
        " The expected text is measurably less likely with it (0.15 nats a token, 16% of perplexity)."
    )
    slight = conclusion([full, cell, {**nll, "delta": 4e-6, "delta_low": 1e-6}])
    assert "less likely with it (4e-06 nats" in slight, "its table calls it worse in red"
    assert "likely" not in conclusion([full, cell, {**nll, "delta_low": -0.1}])
    barely = conclusion([full, cell, {**nll, "delta_low": 2e-5}])
    assert (
        barely.endswith("though barely told from 0 (2e-05 at the least).")
        and "measurably" not in barely
    )


def test_blocks_put_badges_above_their_page() -> None:
    told = {"text": "random 10%: 100% right", "kind": "good", "sign": "\u2713"}
    blocks = [html.section("One"), html.section("Two", pills=[told])]
    assert html.pills(blocks) == [told]


def test_a_perplexity_that_is_large_beside_right_answers_is_explained() -> None:
    def rows(right: float, nll: float) -> list[dict]:
        return [
            FULL | {"measure": "contains", "value": right},
            FULL | {"measure": "nll", "value": nll},
        ]

    assert "right in other words" in surprised(rows(1.0, 17.0))
    assert surprised(rows(1.0, 1.0)) == surprised(rows(0.0, 17.0)) == ""
