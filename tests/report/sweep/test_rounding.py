"""What a sweep says of points that are within rounding."""

from sweeps import points

from harness.report.sweep import heading, panels, rounding, summary
from harness.report.sweep import points as table

TIE = "a near tie at step 5, which rounding decides"
KEYS = {"first_divergence_from_1": None, "first_divergence": None, "max_abs_diff": 0.1}


def test_a_near_tie_is_told_of_an_equivalent_point_wherever_the_sweep_is(tmp_path) -> None:
    """The twin has the same tokens."""
    same = KEYS | {"verdict": "equivalent", "reason": "error against float64 0.1, plain path 0.2"}
    near = {
        "first_divergence_from_1": 5,
        "first_divergence": 4,
        "top1_agreement": 0.75,
        "stored_bytes": 900,
    }
    rows = points(*(same | {"top1_agreement": 1.0} | more | {"quantize": q}
                    for q, more in (("none", {}), ("int8", near))))  # fmt: skip
    rows = [row | {"reason": rounding.reason(row)} for row in rows]
    assert [row["reason"].partition("; ")[2] for row in rows] == ["", TIE]
    axes = ["quantize"]
    block = table.every(rows, axes, {}, {}, alone=False)
    assert [line[block["columns"].index("reason")] for line in block["rows"]] == ["", TIE]
    said = "Equivalent but for a near tie, which rounding decides: quantize=int8 (step 5)."
    assert said in heading.told(tmp_path, rows, axes, {}, 2, 0)[1]
    assert said in " ".join(" ".join(summary.closing(tmp_path, rows, 2, [])).split())
    assert TIE in summary.markdown(rows) and "near tie" in str(panels.sections(rows, axes)[0])
    assert not rounding.near_ties(rows[:1], axes)
    assert not rounding.tied(rows[1] | {"verdict": "diverged"}), "which rounding does not explain"


def test_of_models_whose_points_are_all_within_rounding_none_is_the_best_for_a_point_that_failed(
    tmp_path,
) -> None:
    """The twin: of one model a point diverged, so that the others of it are better."""
    good = KEYS | {"verdict": "equivalent", "reason": "", "error_ratio": 0.4, "outcome": ""}
    lost = good | {"verdict": "failed", "exit_code": 2, "stored_bytes": None, "per_token_s": None}
    rows = points(*((lost if (m, c) == ("b", "manual") else good) | {"model": m, "cache": c}
                    for m in "abc" for c in ("manual", "view", "static")))  # fmt: skip
    said = "All of 9 points but 1 are within rounding; failed: model=b cache=manual."
    assert summary.winners(rows, {})[0] == {}
    assert said in summary.said(rows, {}, 9)[1]
    assert said in " ".join(" ".join(summary.closing(tmp_path, rows, 9, [])).split())
    assert said in heading.told(tmp_path, rows, ["model", "cache"], {}, 9, 0)[1]
    rows[1] |= {"verdict": "diverged", "exit_code": 1}
    assert {*summary.winners(rows, {})[0]} >= {"0", "2"} and said not in summary.said(rows, {}, 9)[
        1
    ]
