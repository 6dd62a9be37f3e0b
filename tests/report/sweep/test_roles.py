"""Which option a picture of a sweep tells by place, colour and size: what moves the figures most is told."""

from itertools import product

import pytest
from matplotlib.axes import Axes
from sweeps import points

from harness.report.picture import axes, plots
from harness.report.sweep import panels, roles, scatter

DTYPES = {"float32": 1e-9, "bfloat16": 1e-3, "float16": 1e-5, "float64": 0.0}
GRID = points(*({"dtype": d, "quantize": q, "text": t, "kl_max": kl * f, "per_token_s": 0.1 * (1 + len(d) * f), "noise_kl_max": kl or 1e-12,
                 "max_abs_diff": kl * f + 1e-13, "error_ratio": f, "verdict": "equivalent", "kept_tokens": n}
                for (d, kl), (q, f), (t, n) in product(DTYPES.items(), (("none", 1.0), ("int8", 3.0)), (("a .", 2), ("b .", 3)))))  # fmt: skip


def test_what_an_option_explains_is_its_share_of_the_spread_in_decades() -> None:
    rows = points(*({"a": a, "b": b, "kl_max": 10.0 ** (2 * a + b)} for a, b in product((0, 1), (0, 1))))  # fmt: skip
    assert roles.explained(rows, "a", ["kl_max"]) == pytest.approx(0.8)
    assert roles.explained(rows, "b", ["kl_max"]) == pytest.approx(0.2)
    assert roles.explained(rows, "b", ["error_ratio", "unknown"]) == 0.0, "nothing spreads"
    none = [{**row, "kl_max": 0.0 if row["b"] else 5.0} for row in rows]
    assert roles.explained(none, "b", ["kl_max"]) == 0.0, "nothing is no depth of its own"


def test_the_option_that_moves_the_figures_most_stands_along_the_axis() -> None:
    """Not the text, with a word that no mark tells the dtype; what no mark can tell is what matters least."""
    apart = panels.sections(GRID, ["dtype", "quantize", "text"])[0]
    assert "From the uninterrupted run, by dtype." in apart["text"]
    assert "No mark tells" not in apart["text"] and "text:" in apart["legend"]
    same = [{**row, "seed": str(seed)} for row in GRID for seed in range(4)]
    more = panels.sections(same, ["dtype", "quantize", "text", "seed"])[0]["text"]
    assert "by dtype." in more and "No mark tells seed:" in more


def test_names_of_noise_floors_that_would_overprint_one_another_stand_together(monkeypatch) -> None:
    names: list[str] = []
    written = Axes.text
    monkeypatch.setattr(Axes, "text", lambda axis, x, y, said, **how: names.append(said) or written(axis, x, y, said, **how))  # fmt: skip
    _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    axis.set_ylim(0, 100)
    scatter._noise(axis, {"float32": 10.0, "bfloat16": 60.0, "float64": 13.0}, [])
    assert sorted(names) == ["bfloat16", "float32, float64"] and len(axis.lines) == 3


def test_names_that_would_overprint_share_a_lane_where_marks_would_not():
    _, (axis,) = plots.figure(3, 2)
    axis.set_ylim(0, 100)
    point = 100 / (axis.bbox.height * 72 / axis.figure.dpi)
    heights = [50, 50 + 8 * point]
    assert len({*axes.lanes_of(axis, heights)}) == 2
    assert len({*axes.lanes_of(axis, heights, scatter.NAME)}) == 1


def test_an_option_that_moves_no_logit_is_no_axis_and_has_the_colour() -> None:
    """A format, by which one column would be drawn again and again; its bytes and its times are not folded away."""
    rows = points(*({"quantize": q, "save": f, "kl_max": kl, "stored_bytes": b, "per_token_s": 0.1 * b, "load_s": 0.01 * b}
                    for q, kl in (("none", 1e-12), ("int8", 1e-5), ("int4", 1e-2))
                    for f, b in (("safetensors", 3000), ("gzip", 2000))))  # fmt: skip
    apart, cost = panels.sections(rows, ["quantize", "save"])
    assert "From the uninterrupted run, by quantize." in apart["text"]
    assert "<span>save:</span>" in apart["legend"] and "<span>save:</span>" in cost["legend"]
    assert not cost["fold"] and panels.sections(rows[::2], ["quantize"])[1]["fold"]
