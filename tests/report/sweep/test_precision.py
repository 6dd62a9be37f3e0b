"""A sweep over dtypes says that each was judged by its own rounding."""

from sweeps import drawn, points

from harness.report.sweep import precision, summary


def test_verdicts_of_several_dtypes_are_said_to_be_of_each_alone(tmp_path):
    """Else int8 beside bfloat16, whose rounding is larger, looks nearer than beside float32."""
    rows = points(
        {"dtype": "float32", "verdict": "drifted"}, {"dtype": "bfloat16", "verdict": "equivalent"}
    )
    said = precision.sentence(rows, ["dtype"])
    assert said.startswith("Rounding is each dtype's own") and said.replace("'", "&#39;") in drawn(
        tmp_path, rows
    )
    assert said in " ".join(" ".join(summary.closing(tmp_path, rows, 2, [])).split())
    rows[1]["verdict"] = "drifted"
    assert not precision.sentence(rows, ["dtype"]), "the twin: both came to the same"
    assert not precision.sentence(points({"verdict": "drifted"}, {"verdict": "exact"}), ["prune"])
