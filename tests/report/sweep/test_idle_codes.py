"""A quantizer that changed nothing is said to have, on the page of a sweep and on its console."""

from sweeps import drawn, points

from harness.report.sweep import codes, summary

MADE = {
    "quantize": "kivi",
    "kv_bytes": 9,
    "kl_mean": 0.1,
    "max_abs_diff": 1.0,
    "top1_agreement": 0.5,
}


def test_a_quantizer_whose_figures_are_those_of_none_is_named_with_where(tmp_path):
    """Else a reader takes that it costs nothing, where it had too few tokens to turn any into codes."""
    plain = MADE | {"quantize": "none"}
    rows = points(
        plain | {"prune": "keydiff"}, MADE | {"prune": "keydiff"},
        plain | {"prune": "none", "kv_bytes": 40}, MADE | {"prune": "none", "kv_bytes": 30},
    )  # fmt: skip
    said = (
        "quantize=kivi changed nothing where prune=keydiff: its figures are those of quantize=none."
    )
    axes = ["prune", "quantize"]
    assert codes.idle(rows, axes) == said and said in drawn(tmp_path, rows)
    assert any(said in " ".join(line.split()) for line in summary.closing(tmp_path, rows, 4, []))
    rows[3]["kv_bytes"] = 40
    assert codes.idle(rows, axes) == said.replace(" where prune=keydiff", ""), "everywhere"
    rows[1]["max_abs_diff"] = rows[3]["max_abs_diff"] = 1.1
    assert not codes.idle(rows, axes), "the twin: codes that did something"
    assert not codes.idle([row | {"kl_mean": None} for row in rows], axes), "nothing was measured"
    assert not codes.idle(rows, ["prune"])
