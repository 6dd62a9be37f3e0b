"""Where marks stand on an axis, and how far it reaches."""

import re

import pytest

from harness.report.evaluate import budget, intervals
from harness.report.picture import axes, plots, scatter

ROWS = [
    {"point": str(place), "verdict": "equivalent", "cache": cache, "save": save, "stored_bytes": held,
     "per_token_s": seconds, "save_s": 1.0, "load_s": 1.0, "kl_max": 1.0, "kept_tokens": 9,
     "max_abs_diff": 1.0, "error_ratio": 1.0}
    for place, (cache, save, held, seconds) in enumerate(
        [("manual", "raw", 290_739, 0.5), ("manual", "gzip", 251_005, 0.1),
         ("cloned", "raw", 290_739, 0.9), ("cloned", "gzip", 251_005, 0.9)]
    )
]  # fmt: skip


def drawn(limits: tuple[float, float] = (0.0, 100.0)):
    _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    axis.set_xlim(*limits)
    axis.set_ylim(0, 1)
    return axis


def test_marks_keep_their_place_unless_one_of_another_group_would_hide_them():
    axis = drawn()
    assert axes.abreast(axis, [24.0, 24.0, 60.0], [0.1, 0.9, 0.1], [0, 1, 0]) == [0, 0, 0]
    assert axes.abreast(axis, [24.0, 24.0], [0.5, 0.5], [3, 3]) == [0, 0]  # one group: one mark
    left, right, alone = axes.abreast(axis, [24.0, 24.0, 60.0], [0.5, 0.5, 0.5], [0, 1, 1])
    assert left == -right < 0 and alone == 0
    wide = axes.abreast(drawn((0, 1e6)), [24.0, 24.0], [0.5, 0.5], [0, 1])
    assert wide[1] == pytest.approx(1e4 * right)  # as many points of the page at any scale


def test_marks_that_stand_aside_keep_the_order_of_their_places():
    axis = drawn((0.0, 320.0))
    xs, groups = [31.0, 31.0, 24.0, 24.0, 5.0, 300.0], [0, 1, 2, 3, 3, 0]
    aside = axes.abreast(axis, xs, [0.0] * 6, groups)
    at = [x + by for x, by in zip(xs, aside, strict=True)]
    assert max(at[2], at[3]) < min(at[0], at[1]) and at[4] < at[2] and aside[5] == 0
    unit = (axis.get_xlim()[1] / axis.bbox.width) * axis.figure.dpi / 72
    apart = [(b - a) / unit for a, b in zip(sorted(at), sorted(at)[1:])]
    assert min(apart) > axes.MARK
    assert sum(aside[:4]) == pytest.approx(sum(aside) - aside[4])


def test_cells_of_an_evaluation_stand_at_their_size():
    cell = {
        "quantize": "none",
        "budget": 0.25,
        "cache": "auto",
        "asked": "after",
        "low": 0.1,
        "high": 0.9,
    }
    full = {
        **cell,
        "prune": "none",
        "budget": 1.0,
        "kv_bytes": 4096,
        "value": 0.5,
        "measure": "contains",
    }
    cells = [
        full,
        *({**full, **cell, "prune": p, "kv_bytes": b} for p, b in (("a", 1024), ("b", 2048))),
    ]
    assert not budget._panel(cells, "contains", "after")[1]
    plain, ringed = (budget._panel(cells, "contains", "after", one)[0] for one in (None, cells[1]))
    assert ringed.count("<use") == plain.count("<use") + 1, "around one mark"
    assert budget.RING in budget.legend(cells, cells[1]) and budget.RING not in budget.legend(cells)
    crowded = [*cells, {**cells[1], "prune": "c"}]
    picture, moved = budget._panel(crowded, "contains", "after")
    assert (
        moved and picture.count("stroke-dasharray") == 1
    )  # the full cache: no dotted line joins a policy
    assert picture.count(">full cache<") == 1, "the dashed line says what it is"
    strokes = re.findall(r'stroke: (#\w+|currentColor)[^"]*stroke-width: 0.6', picture)
    assert set(strokes) <= {"currentColor", "#b0b0b0"}, (
        "no coloured line leads from a mark to its size"
    )
    both = [
        {**c, "measure": m, "asked": a}
        for c in crowded
        for m in ("contains", "nll")
        for a in ("after", "before")
    ]
    said = [
        re.findall(r"(?:answers|expected text), asked \w+", panel)
        for panel, _ in budget.pictures(both)
    ]
    assert len(said) == 4 and all(said)
    unsound = [{**c, "value": float("nan")} if c["measure"] == "nll" else c for c in both]
    assert len(budget.pictures(unsound)) == 2, "what is no number has no place on an axis"


def evaluated(prune: str, quantize: str, size: int, value: float) -> dict[str, object]:
    budget_of = 1.0 if (prune, quantize) == ("none", "none") else 0.25
    return {"prune": prune, "quantize": quantize, "budget": budget_of, "cache": "auto", "asked": "after", "low": value,
            "high": value, "kv_bytes": size * 1024, "value": value, "measure": "contains"}  # fmt: skip


def test_no_mark_of_an_evaluation_leaves_its_axes_and_the_front_joins_marks(monkeypatch):
    """Only what would hide another mark moves, by less than two marks, and the line of the front with it."""
    seen = []
    monkeypatch.setattr(plots, "svg", lambda made: seen.append(made) or "")
    rows = [
        evaluated("none", "none", 310, 1.0),
        evaluated("a", "int8", 20, 1.0),
        evaluated("b", "int8", 20, 0.4),
    ]
    crowd = [evaluated(policy, "none", 8, 0.0) for policy in "abcde"]
    budget._panel([*rows, *crowd], "contains", "after")
    (axis,) = seen[0].axes
    marks = [
        tuple(line.get_xydata()[0])
        for line in axis.lines
        if line.get_marker() not in ("None", "|", None)
    ]
    at = [
        value for value, _ in axis.transAxes.inverted().transform(axis.transData.transform(marks))
    ]
    assert len(marks) == 7 and min(at) > 0.01 and max(at) < 0.99
    assert [x for x, y in marks if y] == [20, 20], "alone in height: at its size"
    pixel = axis.figure.dpi / 72
    crowded = [axis.transData.transform((x, 0))[0] / pixel for x, y in marks if not y]
    true = axis.transData.transform((8, 0))[0] / pixel
    assert len(set(crowded)) == 5 and max(abs(x - true) for x in crowded) < 2 * budget.SIZE
    front = next(line for line in axis.lines if line.get_alpha() == 0.6)
    drawn = {(float(x), float(y)) for x, y in marks}
    assert {(float(x), float(y)) for x, y in front.get_xydata()} <= drawn, "it meets its marks"


def test_bars_of_one_size_that_would_hide_one_another_stand_side_by_side(monkeypatch):
    seen = []
    monkeypatch.setattr(plots, "svg", lambda made: seen.append(made) or "")
    rows = [evaluated("none", "none", 310, 1.0)]
    rows += [evaluated(p, "none", 20, value) | {"low": value - 0.2, "high": value + 0.2}
             for p, value in (("a", 0.3), ("b", 0.5), ("c", 0.95))]  # fmt: skip
    assert budget._panel(rows, "contains", "after")[1]
    marks = [line.get_xydata()[0] for line in seen[0].axes[0].lines if line.get_marker() in plots.MARKERS]  # fmt: skip
    places = {round(float(value), 2): float(size) for size, value in marks}
    assert places[0.3] < 20 < places[0.5] and places[0.95] == 20, "its bar is above the others'"


def test_cells_of_few_sizes_have_a_row_each_with_their_name_interval_and_size(monkeypatch):
    rows = [evaluated("none", "none", 310, 1.0)]
    rows += [evaluated(p, "none", 76, value) for p, value in (("keydiff", 0.9), ("random", 0.2))]
    rows = [row | {"low": row["value"] - 0.1} for row in rows]
    both = [row | {"measure": measure} for measure in ("contains", "nll") for row in rows]
    (picture, moved), (likely, _) = budget.pictures(both, rows[1])
    assert "nats per token" in likely
    told = ("full cache", "keydiff 25%", "random 25%", "310 KiB", "76 KiB")
    assert not moved and all(f">{word}<" in picture for word in told)
    assert budget.legend(rows) == "" and budget.RING in budget.legend(rows, rows[1])
    assert budget.text(rows, False) == intervals.TEXT
    seen = []
    monkeypatch.setattr(plots, "svg", lambda made: seen.append(made) or "")
    intervals.panel(rows, "contains", "after", rows[1])
    marks = [tuple(map(float, line.get_xydata()[0])) for line in seen[0].axes[0].lines if line.get_marker() == "o"]  # fmt: skip
    assert sorted(set(marks)) == [(0.2, 2.0), (0.9, 1.0), (1.0, 0.0)] and marks.count((0.9, 1.0)) == 2  # fmt: skip
    spread = [*rows, evaluated("a", "none", 20, 0.5), evaluated("b", "none", 150, 0.6)]
    assert intervals.fit(rows) and not intervals.fit(spread), "three sizes are an axis"
    assert not intervals.fit(rows[:1])


def test_the_line_of_the_front_is_spoken_of_only_where_it_is_drawn():
    full, *cells = [evaluated(p, "none", size, 1.0) for p, size in (("none", 310), ("a", 20), ("b", 40), ("c", 90))]  # fmt: skip
    assert "Pareto" not in budget.text([full, *cells], False), "its one point is the smallest cell"
    assert "Pareto" in budget.text([full, cells[0] | {"value": 0.5}, *cells[1:]], False)


def test_a_policy_has_one_colour_and_each_of_its_codes_its_own_mark():
    rows = [evaluated("none", "none", 310, 1.0)]
    rows += [
        evaluated(policy, codes, 20 + n, 0.5)
        for n, policy in enumerate("abcdefghij")
        for codes in ("none", "int8")
    ]
    legend = budget.legend(rows)
    inks = re.findall(r"color:(#\w+)", legend)
    assert len(inks) == 10 == len(set(inks)), "one colour each"
    assert legend.endswith(
        "<span>codes:</span><span><b>\u25cf</b> none</span><span><b>\u25cb</b> int8</span>"
    )
    assert "codes:" not in budget.legend([r for r in rows if r["quantize"] == "none"])


@pytest.mark.parametrize(
    "values", [[8e-12, 0.0671, 1e-3, 0.0], [1.0, 2.0, 5.0], [1e-9, 1.0], [3.0]]
)
def test_no_mark_is_cut_by_the_frame(values):
    _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    scatter.footed(axis, values)
    low, high = axis.transAxes.inverted().transform(
        axis.transData.transform([[0, min(values)], [0, max(values)]])
    )[:, 1]
    assert 0.03 < low <= high < 0.97


def test_numbers_that_are_nearly_alike_have_plain_ticks():
    """Two prompts a byte apart are no axis of `0.0005 +1.07194e2`."""
    rows = [{**ROWS[0], "at": 107.194}, {**ROWS[1], "at": 107.195}]
    picture = scatter.scatter(rows, "at", "per_token_s", lambda row: "good", None, "t", "x", "y")
    said = re.findall(r"<text[^>]*>([^<]*)</text>", picture)
    assert not [tick for tick in said if "e2" in tick] and "107" in " ".join(said)


def test_slanted_names_leave_room_for_what_they_are():
    """What is below the lower edge of a picture is cut off."""
    names = [f"a_long_name_{n}" for n in range(6)]
    made, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    scatter.named(made, axis, names)
    plots.label(axis, "t", "quantize", "y")
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(made).draw()
    assert axis.xaxis.label.get_window_extent().y0 >= 0


def test_values_of_one_decade_above_nothing_have_ticks():
    _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    scatter.footed(axis, [8e-13, 2.18, 6.5])
    assert sorted(axis.get_yticks()) == [0, 2, 5], "round, and no value that was measured"
    assert axis.yaxis.get_major_formatter()(0) == "\u2264 10\u207b\u00b9\u00b2", "round, too"
    _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    scatter.footed(axis, [1.24, 2e5, 1e6])
    assert axis.yaxis.get_major_formatter()(0) == "\u2264 2", "and near it: 2 is what is allowed"
    for values, ticks in (((1.96, 16.7), (1, 10)), ((0.0012, 0.00221), (0.001, 0.002)), ((0.00221,), (0.002,))):  # fmt: skip
        _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
        scatter.footed(axis, [8e-13, *values])
        assert sorted(axis.get_yticks()) == [0, *ticks]
    _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    scatter.footed(axis, [0.15, 9.2])  # of more than 60 times, and one power of ten between
    low, high = axis.get_ylim()
    assert sum(low <= t <= high for t in axis.get_yticks()) >= 2
    _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    scatter.footed(axis, [4e-5, 9e-4])
    written = [axis.yaxis.get_major_formatter()(t) for t in (5e-5, 1e-4, 2e-4, 5e-4)]
    assert written == ["5·10⁻⁵", "10⁻⁴", "2·10⁻⁴", "5·10⁻⁴"], "one way on one axis"


def test_numbers_at_an_axis_are_written_one_way_and_no_power_as_1e_something() -> None:
    assert [plots.tick(v) for v in (0, 250, 2e-6, 1e-6, 3.5e5, 1e300)] == [
        "0", "250", "2·10⁻⁶", "10⁻⁶", "3.5·10⁵", "10³⁰⁰",
    ]  # fmt: skip
    assert plots.tick(3.5e6) == "3.5·10⁶"
    assert [plots.tick(v, power=True) for v in (1e-4, 1e-6, 1, 0.1)] == [
        "10⁻⁴",
        "10⁻⁶",
        "1",
        "10⁻¹",
    ]
    _, (axis,) = plots.figure(plots.WIDTH, plots.HEIGHT)
    plots.scaled(axis, [1e-6, 1.0])
    axis.set_ylim(1e-6, 10)
    plots.plain(axis.yaxis)
    written = [axis.yaxis.get_major_formatter()(v) for v in (1e-6, 1e-4, 1e-2, 1.0)]
    axis.set_ylim(1e-3, 10)
    plots.plain(axis.yaxis)
    assert [axis.yaxis.get_major_formatter()(v) for v in (1e-3, 1e-2)] == ["0.001", "0.01"]
    assert written == ["10⁻⁶", "10⁻⁴", "10⁻²", "1"]


@pytest.mark.parametrize(
    ("cells", "measure"),
    [
        ([("a", 20, 0.4), ("b", 150, 0.7)], "contains"),
        ([("a", 20, 1.0), ("b", 290, 0.98)], "contains"),
        ([("a", 20, 3.0), ("b", 150, 2.0)], "nll"),
    ],
)
def test_nothing_crosses_the_name_of_the_dashed_line(monkeypatch, cells, measure):
    """Neither the line of the front nor the bar of an interval."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    seen = []
    monkeypatch.setattr(plots, "svg", lambda made: seen.append(made) or "")
    rows = [evaluated(p, "none", size, value) for p, size, value in (("none", 310, 1.0), *cells)]
    for row in rows:
        high = row["value"] + 0.1 if measure == "nll" else min(row["value"] + 0.1, 1.0)
        row |= {"measure": measure, "low": row["value"] - 0.1, "high": high}
    budget._panel(rows, measure, "after")
    (axis,) = seen[0].axes
    (name,) = [text for text in axis.texts if text.get_text() == budget.NAME]
    box = name.get_window_extent(FigureCanvasAgg(seen[0]).get_renderer())
    around = axis.get_window_extent()
    assert around.x0 <= box.x0 and box.x1 <= around.x1 + 1
    assert around.y0 <= box.y0 and box.y1 <= around.y1 + 1
    paths = [line.get_path().transformed(line.get_transform()) for line in axis.lines]
    drawn = [path for path in paths if len(path.vertices) > 1]
    bars = [p.transformed(b.get_transform()) for b in axis.collections for p in b.get_paths()]
    assert drawn and bars
    assert not [path for path in (*drawn, *bars) if path.intersects_bbox(box, filled=False)]


def test_a_row_of_marks_at_an_end_of_an_axis_and_marks_at_a_whole_share_stand_inside(monkeypatch):
    axis = drawn((24.0, 97.0))
    aside = axes.within(axis, [97.0] * 12, [0.5] * 12, list(range(12)))
    half = axes.MARK / 2 * (axis.get_xlim()[1] - axis.get_xlim()[0]) * axis.figure.dpi / 72
    assert 97 + max(aside) + half / axis.bbox.width <= axis.get_xlim()[1]
    assert axis.get_xlim()[0] == 24.0, "and no wider than that"
    alone = drawn((24.0, 97.0))
    assert axes.within(alone, [24.0], [0.5], [0]) == [0.0] and alone.get_xlim() == (24.0, 97.0)
    dense = [x for x in (1.0, *range(3, 48, 3)) for _ in range(9)]
    wide = drawn((0.0, 50.0))
    shifted = axes.within(wide, dense, [0.5] * len(dense), list(range(9)) * 16)
    mark = axes.STEP * (wide.get_xlim()[1] - wide.get_xlim()[0]) * wide.figure.dpi / 72
    assert max(map(abs, shifted)) <= mark / wide.bbox.width + 1e-9, (
        "a mark's width where it is dense"
    )
    assert min(x + by for x, by in zip(dense, shifted)) == 0, "and no less than nothing"
    made = []
    monkeypatch.setattr(plots, "label", lambda axis, *told: made.append(axis))
    rows = [{**row, "top1_agreement": share} for row, share in zip(ROWS, (100.0, 70.0, 100.0, 70.0))]  # fmt: skip
    scatter.scatter(rows, "stored_bytes", "top1_agreement", lambda row: "good", "cache", "t", "x", "%")  # fmt: skip
    (axis,) = made
    low, high = axis.transData.transform([(0, 100.0), (0, axis.get_ylim()[1])])[:, 1]
    assert (high - low) * 72 / axis.figure.dpi >= scatter.SIZE / 2 and axis.get_ylim()[0] == 0
