"""A seed that draws nothing repeats its points: what a sweep comes to does not hang on it."""

from test_agreement import AXES, NEAR, ROW, SAME, said

from harness.report.sweep import heading, inert, summary


def test_a_seed_that_draws_nothing_is_said_to_and_makes_no_question_of_its_own(tmp_path) -> None:
    told = said(tmp_path, SAME, NEAR)
    assert "for every seed" not in told and told.endswith(inert.DRAWS)
    drawn = said(tmp_path, SAME | {"sampling": "nucleus"}, NEAR | {"sampling": "nucleus"})
    assert "for every seed" in drawn and inert.DRAWS not in drawn


def test_what_is_chosen_does_not_hang_on_how_often_a_seed_repeats_it(tmp_path) -> None:
    rows = [
        ROW | change | {"prune": policy, "point": f"{seed}{policy}", "seed": seed}
        for policy, change in (("keydiff", {"verdict": "drifted", "outcome": "drifted"}), ("snapkv", {}), ("knorm", {}))
        for seed in "12"
    ]  # fmt: skip
    once = [row for row in rows if row["seed"] == "1"]
    (words, told), console = summary.told(rows, {}), " ".join(summary.closing(tmp_path, rows, None, []))  # fmt: skip
    assert words == "2 drifted, 4 diverged" and told == summary.told(once, {})[1]
    assert told.startswith("The only one with the same tokens: prune=keydiff (") and told in console
    assert told in heading.told(tmp_path, rows, AXES, {}, len(rows), 0)[1]
    assert summary.winners(rows, {})[1] == once[:1]
    drawn = [row | {"sampling": "nucleus"} for row in rows]
    assert "seed" in summary.told(drawn, {})[1], "where it draws it is asked for each"
