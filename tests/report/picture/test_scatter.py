"""The scatter plots of sweeps: no mark hides another, each says whose it is, and axes can be read."""

import re

import pytest
from matplotlib.axes import Axes
from sweeps import rows as points

from harness.report import badge
from harness.report.picture import plots, scatter

MARK = re.compile(
    r'<a href="(\d+)/report.html"[^>]*><title>([^<]*)</title><use [^>]*x="([\d.]+)" y="([\d.]+)"'
)


def marks(*values: tuple[str, float], x: str = "kept") -> list[tuple[str, ...]]:
    rows = [
        {"point": str(i), "verdict": "equivalent", "kept": 27, "cache": c, "kl": kl}
        for i, (c, kl) in enumerate(values)
    ]
    panel = scatter.scatter(rows, x, "kl", lambda _: "good", "cache", "KL", x, "nats", ["cache"])
    assert "marks:" not in panel
    return MARK.findall(panel)


def test_marks_that_would_hide_one_another_stand_side_by_side() -> None:
    for x in ("kept", "cache"):
        found = marks(("view", 1.0), ("view", 1.0), ("cloned", 1.0), ("view", 9.0), x=x)
        assert (
            len({place for *_, place in map(tuple, found)})
            and len({(a, b) for *_, a, b in found}) == 4
        )


def test_a_mark_is_named_by_its_options_and_leads_to_its_report() -> None:
    assert [mark[:2] for mark in marks(("view", 1.0), ("cloned", 2.0))] == [
        ("0", "kept=27, cache=view, equivalent"),
        ("1", "kept=27, cache=cloned, equivalent"),
    ]


@pytest.mark.parametrize(
    "verdict, kind", [("exact", "good"), ("drifted", "fair"), ("failed", "bad")]
)
def test_points_have_the_colour_of_their_verdict(verdict, kind):
    rows = points({"kl_max": 1.0}, {"kl_max": 2.0, "kept_tokens": 80})
    picture = scatter.scatter(rows, "kept_tokens", "kl_max", lambda row: kind, None, "t", "x", "y")
    assert f"var(--{kind})" in picture and plots.VERDICTS[kind][0] not in picture
    assert badge.kind(verdict) == kind


def test_a_named_axis_stands_in_order_of_appearance():
    assert scatter.positions(["b", "a", "b"]) == ([0.0, 1.0, 0.0], ["b", "a"])
    assert scatter.positions(["0.5", "2"]) == ([0.5, 2.0], [])


@pytest.mark.parametrize(
    "values, nothing",
    [
        ([5.0, 4.0, 1e-3, 1e-12, 1e-13], 1e-12),
        ([5.0, 1e-3, 1e-7, 1e-11], 0.0),
        ([2.0, 0.0], 0.0),
        ([], 0.0),
    ],
)
def test_what_is_practically_nothing_lies_below_a_gap_that_would_flatten_the_rest(values, nothing):
    assert scatter.lost(values) == nothing


def test_names_under_an_axis_can_be_told_apart():
    assert scatter.brief(["/tmp/models/qwen3_06b", "/tmp/models/llama"]) == ["qwen3_06b", "llama"]
    long = scatter.brief(["the dog ran in the tree", "the dog ran in the river"])
    assert long == ["the do\u2026he tree", "the do\u2026e river"]
    temperatures = scatter.brief(["sink_window 0.7", "sink_window 2.0"])
    assert temperatures == ["sink_w\u2026dow 0.7", "sink_w\u2026dow 2.0"], "what differs stays"
    middle = scatter.brief([f"a name of {word} which ends alike" for word in ("mill", "milk")])
    assert middle == ["1: a name of mil\u2026", "2: a name of mil\u2026"]
    assert scatter.brief(["manual", "cloned"]) == ["manual", "cloned"]


def test_no_part_of_an_axis_makes_little_of_a_share_look_like_much() -> None:
    """A ratio of 0.41 beside one of 0.46 stands near it; of bytes, whose part is told at the ticks, no zero is needed."""
    rows = points({"error_ratio": 0.41, "prune": "a"}, {"error_ratio": 0.46, "prune": "b"})
    for unit, whole in (("ratio, 2 is allowed", True), ("%", True), ("KiB", False)):
        picture = scatter.scatter(
            rows, "prune", "error_ratio", lambda _: "good", None, "t", "x", unit
        )
        assert (">0.0<" in picture or ">0<" in picture) is whole, unit


def test_what_a_title_says_is_allowed_is_drawn(monkeypatch) -> None:
    """A line at it, which the axis reaches; none where all that is allowed is practically nothing beside the rest."""
    lines: list[float] = []
    monkeypatch.setattr(Axes, "axhline", lambda axis, y, **_: lines.append(y))
    for values in ((0.4, 0.5), (1e6, 2e6), (0.4, 1e6), (3.0, 1e6)):
        two = points(*({"error_ratio": v, "prune": p} for v, p in zip(values, "ab")))
        scatter.scatter(two, "prune", "error_ratio", lambda _: "good", None, "t", "x", "ratio", limit=2.0)  # fmt: skip
    assert lines == [2.0, 2.0, 2.0]
