"""What the pictures of a sweep draw: marks, axes, noise lines and names, and what is said instead."""

import re
from itertools import product

import pytest
from matplotlib.axes import Axes
from sweeps import drawn, points

from harness.report import badge
from harness.report.picture import plots
from harness.report.sweep import panels, scatter
from harness.snapshot.result import ORDER


def test_identical_values_are_said_not_drawn(tmp_path):
    rows = points({"prune": "a", "save_s": 0.1}, {"prune": "b", "save_s": 0.4})
    page = drawn(tmp_path, rows)
    assert "The same in every point: largest difference" not in page
    assert "KL divergence per step, largest (nats) is 1" in page
    assert page.count("<figure>") == 1  # only the time to save differs
    assert "to save and to load, by prune." in page  # bytes are the same: no axis of theirs
    rows[1]["kl_max"] = 5.0
    assert drawn(tmp_path, rows).count("<figure>") == 2


@pytest.mark.parametrize(
    "verdict, kind", [("exact", "good"), ("drifted", "fair"), ("failed", "bad")]
)
def test_points_have_the_colour_of_their_verdict(verdict, kind):
    rows = points({"kl_max": 1.0}, {"kl_max": 2.0, "kept_tokens": 80})
    picture, _ = scatter.scatter(
        rows, "kept_tokens", "kl_max", lambda row: kind, (None, None), "t", "x", "y"
    )
    assert f"var(--{kind})" in picture and plots.VERDICTS[kind][0] not in picture
    assert badge.kind(verdict) == kind


def test_a_named_axis_stands_in_order_of_appearance():
    assert scatter.positions(["b", "a", "b"]) == ([0.0, 1.0, 0.0], ["b", "a"])
    assert scatter.positions(["0.5", "2"]) == ([0.5, 2.0], [])


def test_a_thousand_points_are_tiles_with_the_table_folded(tmp_path):
    rows = points(*({"seed": str(i), "kl_max": float(i + 1)} for i in range(1000)))
    page = drawn(tmp_path, rows)
    assert page.count('title=".../') == 1000 and "<summary>Every point</summary>" in page
    assert len(page) < 3_000_000
    few = drawn(tmp_path, rows[:5])
    assert 'title=".../' not in few and "<h2>Every point</h2>" in few


def test_no_two_verdicts_have_the_same_sign_and_exact_and_equivalent_not_the_same_colour(tmp_path):
    assert len(set(badge.SIGNS.values())) == len(ORDER) == len(badge.SIGNS)
    rows = points({"prune": "a", "verdict": "equivalent"}, {"prune": "b", "verdict": "exact", "save_s": 9.0})  # fmt: skip
    page = drawn(tmp_path, rows)
    for tone, sign, word in (("good", "=", "exact"), ("alike", "\u2248", "equivalent")):
        assert f'<b class="key {tone}">{sign}</b> {word}' in page, "the legend"
        assert re.search(rf'<td class="{tone}[^>]*>\s*<i[^>]*>{sign}</i> <a href="\d+/report.html">{word}</a>', page), "the grid"  # fmt: skip
    many = drawn(tmp_path, [{**r, "seed": str(i)} for i, r in enumerate(rows * 200)])
    assert many.count("<i>=</i>") == many.count("<i>\u2248</i>") == 200


def test_each_dtype_has_its_noise_line_its_marker_and_its_own_place():
    rows = points(*({"cache": c, "dtype": d, "kl_max": k, "noise_kl_max": n, "stored_bytes": b, "load_s": k}
                    for c, k in (("a", 1e-4), ("b", 2e-4))
                    for d, n, b in (("float32", 1e-12, 2000), ("bfloat16", 1e-4, 1000))))  # fmt: skip
    apart, cost = panels.sections(rows, ["cache", "dtype"])
    assert (
        "Dashed, by the largest KL: its noise floor" in apart["text"]
        and "Dashed" not in cost["text"]
    )
    assert apart["title"] == "How far the logits went" and "by dtype. Dashed" in apart["text"]
    assert panels._floors(rows) == {"float32": 1e-12, "bfloat16": 1e-4}
    assert all(f"</b> {dtype}</span>" in cost["legend"] for dtype in ("float32", "bfloat16"))
    assert "dtype" not in apart["legend"]  # there it is the axis
    assert panels._floors([*rows, {**rows[0], "noise_kl_max": 1e-6}]) == {"bfloat16": 1e-4}
    alike = [{**row, "noise_kl_max": 1e-12, "dtype": "float32"} for row in rows]
    assert panels._floors(alike) == {"float32": 1e-12}


PRUNED = [
    {"prune": prune, "prune.ratio": ratio, "kept_tokens": kept, "stored_bytes": 1000 * kept, "kl_max": kl}
    for prune, near in (("keydiff", 1e-3), ("snapkv", 2e-3))
    for ratio, kept, kl in (("0.25", 24, 5.0), ("0.5", 48, 4.0), ("0.75", 72, near))
]  # fmt: skip


def test_a_pruned_grid_has_no_axis_stretched_to_its_noise_and_no_mark_by_size(tmp_path):
    rows = points(*PRUNED)
    apart = panels.sections(rows, ["prune", "prune.ratio"])[0]
    ticks = re.findall(r"<text[^>]*>([^<]+)</text>", apart["panels"][0])
    assert "\u2264 10\u207b\u00b9\u00b2" in ticks and not [
        t for t in ticks if re.search("^1e-|^10\u207b(\u00b9|[\u2074-\u2079])", t)
    ]
    assert "Shaded: practically nothing" in apart["text"]
    assert "tokens kept (prune.ratio 0.25, 0.5, 0.75 from the left)" in apart["text"]
    assert (
        "font-size" not in apart["legend"]
    )  # every mark is of one size: its place tells the ratio
    assert "\u2297</b> diverged" in apart["legend"] and "prune:" in apart["legend"]
    mixed = points(*PRUNED, {**PRUNED[0], "kept_tokens": 60})
    assert "font-size" in panels.sections(mixed, ["prune", "prune.ratio"])[0]["legend"]


def test_a_crowd_has_a_panel_for_each_size_on_one_scale_and_marks_near_their_place() -> None:
    crowd = points(*({**PRUNED[0], "prune": p, "prune.ratio": str(k / 158), "kept_tokens": k, "quantize": q, "kl_max": kl, "per_token_s": kl}
                     for p in ("keydiff", "snapkv", "knorm") for k in (2, 16, 47, 111, 158) for q, kl in (("none", 1.0), ("int8", 2.0))))  # fmt: skip
    apart, cost = panels.sections(crowd, ["prune", "prune.ratio", "quantize"])
    assert len(cost["panels"]) == 2
    said = "A panel for each value of quantize, all on one scale."
    assert said in apart["text"] and "font-size" not in apart["legend"]
    for panel, value in zip(apart["panels"], ("none", "int8"), strict=True):
        assert f"KL per step, quantize={value}, nats" in panel
        assert len(re.findall(f"<title>[^<]*quantize={value}, ", panel)) == 15
        ticks = re.findall(r"<text[^>]*>([^<]+)</text>", panel)
        assert "0" in ticks and not [tick for tick in ticks if tick.startswith("\u2212")]
    few = panels.sections(crowd[:20], ["prune", "prune.ratio", "quantize"])[0]
    assert said not in few["text"] and len(few["panels"]) == 1


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
        picture, _ = scatter.scatter(
            rows, "prune", "error_ratio", lambda _: "good", (None, None), "t", "x", unit
        )
        assert (">0.0<" in picture or ">0<" in picture) is whole, unit


def test_what_a_title_says_is_allowed_is_drawn(tmp_path, monkeypatch) -> None:
    """A line at it, which the axis reaches; none where all that is allowed is practically nothing beside the rest."""
    rows = points({"error_ratio": 0.4}, {"error_ratio": 0.5, "prune": "b"})
    assert "Dashed, by the error: the 2 that is allowed." in drawn(tmp_path, rows)
    lines: list[float] = []
    monkeypatch.setattr(Axes, "axhline", lambda axis, y, **_: lines.append(y))
    for values in ((0.4, 0.5), (1e6, 2e6), (0.4, 1e6), (3.0, 1e6)):
        two = points(*({"error_ratio": v, "prune": p} for v, p in zip(values, "ab")))
        scatter.scatter(two, "prune", "error_ratio", lambda _: "good", (None, None), "t", "x", "ratio", limit=2.0)  # fmt: skip
    assert lines == [2.0, 2.0, 2.0]


def test_a_text_is_called_by_itself_and_not_by_how_many_tokens_it_is(tmp_path) -> None:
    two = [{"text": f"{word} .", "cache": c, "kept_tokens": n, "kl_max": k * n}
           for (word, n) in (("short", 3), ("long", 9)) for k, c in enumerate(("manual", "cloned"), 1)]  # fmt: skip
    page = drawn(tmp_path, points(*two))
    assert "From the uninterrupted run, by text." in page and ">short .</text>" in page
    pruned = [{**row, "prune": p} for row in two[::2] for p in ("none", "knorm")]
    assert "by tokens kept" in drawn(tmp_path, points(*pruned))


def test_a_mark_says_all_that_was_varied_where_it_is_pointed_at(tmp_path) -> None:
    """Of time and size, too, where no mark tells the third option."""
    asked = [{"cache": c, "quantize": q, "save": s, "stored_bytes": 1000 + 7 * i, "per_token_s": 0.1 * (i + 1)}
             for i, (c, q, s) in enumerate(product(("manual", "view"), ("none", "int8"), ("gzip", "torch", "blosc2", "pickle")))]  # fmt: skip
    page = drawn(tmp_path, points(*asked)).partition("Size and speed")[2].partition("</section>")[0]
    assert "No mark tells save: each says it" in page
    assert "cache=manual" in page and "quantize=int8" in page and "save=pickle" in page


def test_the_console_says_what_a_sweep_over_seeds_came_to(harness) -> None:
    done = harness("-m", "seed=1,2", "sampling=sample", "steps=2")
    assert re.search(r"^conclusion: +2 points over seed: all \w+, error ", done.out, re.M), done.out
