"""Which points of a sweep are as near as the nearest, and which measures of theirs are drawn and told."""

from harness.report.sweep import overall, panels, tie
from harness.report.sweep import points as table

ROW = {"verdict": "diverged", "exit_code": 0, "reason": "", "mutated": False, "stored_bytes": 90, "kl_mean": 0.52,
       "first_divergence": 1, "kv_bytes": 9, "kept_tokens": 4, "per_token_s": 0.1, "max_abs_diff": 2.0,
       "error_ratio": 2e5, "top1_agreement": 0.75, "dtype": "float32", "noise_kl_max": None}  # fmt: skip


def points(*changes: dict) -> list[dict]:
    return [ROW | {"point": str(i)} | change for i, change in enumerate(changes)]


def told(rows: list[dict], axes: list[str]) -> str:
    return tie.sentence(overall.chosen(rows, axes), axes, rows)


def test_divergences_up_to_5_percent_apart_tie_and_the_fewest_bytes_are_marked() -> None:
    measured = ((0.1311, 90, 0), (0.1297, 99, 3), (0.24, 10, 9))
    rows = points(*({"prune.ratio": r, "kl_mean": kl, "stored_bytes": size, "first_divergence": first}
                    for r, (kl, size, first) in zip(("0.25", "0.5", "0.1"), measured)))  # fmt: skip
    axes = ["prune.ratio"]
    assert [row["point"] for row in overall.chosen(rows, axes)] == ["0"]
    said = "As near: prune.ratio=0.5 (0.13 nats against 0.131, within 5%), with 1.1 times the bytes on disk."
    assert told(rows, axes) == said
    boundary = [rows[0] | {"kl_mean": 0.1361}, *rows[1:]]  # 0.14 and 0.13 in two digits
    assert [row["point"] for row in overall.chosen(boundary, axes)] == ["0"]
    apart = [rows[0] | {"kl_mean": 0.1367}, *rows[1:]]
    assert [row["point"] for row in overall.chosen(apart, axes)] == ["1"] and told(
        apart, axes
    ) == ""
    seeds = [row | {"seed": "0"} for row in rows] + [row | {"seed": "1"} for row in rows]
    assert told(seeds, [*axes, "seed"]) == "", "each question has a nearest of its own"
    right = [row | {"answer": "right"} for row in rows]
    assert told(right, axes) == "", "no divergence chose them"
    many = points(*({"prune": p, "stored_bytes": 90 + i} for i, p in enumerate("abcdefg")))
    assert "As near: prune=b or c or d or 3 more (0.52 nats), with " in told(many, ["prune"])
    twice = points({"prune": "a"}, {"prune": "b"}, {"prune": "c", "stored_bytes": 99})
    assert (
        told(twice, ["prune"]) == "As near: prune=c (0.52 nats), with 1.1 times the bytes on disk."
    )
    assert tie.sentence(twice[2:], ["prune"], [twice[0], twice[2]]) == (
        "As near: prune=a (0.52 nats), with 0.909 times the bytes on disk."
    ), "a search may choose by the divergence alone"
    assert tie.sentence(many[1:2], ["prune"], many).endswith(", with fewer bytes in part.")
    assert tie.sentence(many[6:], ["prune"], many).endswith(", with fewer bytes.")


def test_a_key_that_makes_no_difference_is_not_told_point_by_point_among_those_that_tie() -> None:
    """The twin: points that are no whole grid are told one by one."""
    rows = points(*({"cache": c, "save": s, "stored_bytes": n}
                    for c in "wxyz" for s, n in (("gzip", 90), ("torch", 99))))  # fmt: skip
    axes = ["cache", "save"]
    assert told(rows, axes) == "As near: save=torch (0.52 nats), with more bytes."
    few = told(rows[:6] + rows[6:7], axes)
    assert few.startswith("As near: cache=w save=torch and cache=x save=torch and cache=y "), few


def test_over_seeds_settings_tie_within_what_the_seeds_differ_by() -> None:
    """The twin is nearer with every seed, as far apart in its median."""
    sizes = (("0.25", 90, (0.30, 0.44, 0.40)), ("0.5", 180, (0.45, 0.34, 0.35)))
    rows = points(*({"prune.ratio": r, "seed": str(s), "stored_bytes": n, "kl_mean": k}
                    for r, n, kls in sizes for s, k in enumerate(kls)))  # fmt: skip
    axes = ["prune.ratio", "seed"]
    assert {row["prune.ratio"] for row in overall.chosen(rows, axes)} == {"0.25"}
    said = "As near: prune.ratio=0.5 (0.35 nats against 0.4, within what the seeds differ by), with 2 times the bytes on disk."
    assert told(rows, axes) == said
    assert set(overall.marks(overall.chosen(rows, axes), axes, rows).values()) == {"best nearest"}
    mixed = [row | {"verdict": "drifted" if row["seed"] == "1" else "diverged"} for row in rows]
    marks = overall.marks(overall.chosen(mixed, axes), axes, mixed)
    assert [*marks.values()] == ["best"] * 3, "one setting, one word"
    least = [[0.1, 0.3, 0.5], [0.2, 0.4, 0.6]]
    some = [[{"verdict": "diverged", "kl_mean": k} for k in kls] for kls in least]
    assert not overall._as_near(some[1], some[0])


def test_where_every_setting_ties_over_the_seeds_none_is_named() -> None:
    rows = points(*({"prune": p, "seed": s, "kl_mean": k}
                    for p, kls in (("a", (0.3, 0.5)), ("b", (0.5, 0.3))) for s, k in zip("12", kls)))  # fmt: skip
    axes = ["prune", "seed"]
    said = overall.sentence(overall.chosen(rows, axes), axes, rows)
    assert "No setting is nearer than another over 2 values of seed (4 diverged; mean KL" in said


def test_without_a_divergence_the_later_first_other_token_is_nearer() -> None:
    rows = points(*({"prune": p, "kl_mean": None, "first_divergence": n} for p, n in (("a", 2), ("b", 5))))  # fmt: skip
    assert [row["point"] for row in overall.chosen(rows, ["prune"])] == ["1"]
    assert told(rows, ["prune"]) == ""


def test_an_error_that_is_the_difference_over_a_constant_is_shown_once() -> None:
    rows = points(*({"prune": p, "max_abs_diff": d, "error_ratio": d / 3.49e-5, "kl_max": d, "kl_mean": d}
                    for p, d in (("a", 9.3), ("b", 12.7))))  # fmt: skip
    titles = str(panels.sections(rows, ["prune"])[0]["panels"])
    assert "Largest logit difference" in titles and "rounding" not in titles
    columns = table.every(rows, ["prune"], {}, {}, alone=False)["columns"]
    assert "logits" in columns and "error" not in columns
    own = [rows[0], rows[1] | {"error_ratio": 1.0}]
    assert "rounding" in str(panels.sections(own, ["prune"])[0]["panels"])
    assert "error" in table.every(own, ["prune"], {}, {}, alone=False)["columns"]
    alike = [row | {"max_abs_diff": 1.0, "error_ratio": 0.4} for row in rows]
    assert not panels.doubled(alike), "what is the same everywhere is told, not drawn"
    assert not panels.doubled([rows[0], rows[1] | {"error_ratio": None}])


def test_the_share_of_steps_with_the_same_token_is_drawn_and_in_the_table() -> None:
    rows = points(*({"prune": p, "top1_agreement": n} for p, n in (("a", 0.75), ("b", 0.9375))))
    block = table.every(rows, ["prune"], {}, {}, alone=False)
    place = block["columns"].index("same token, %")
    assert [line[place] for line in block["rows"]] == [75, 93.8]
    assert (
        "same token: share of steps whose most likely token is the uninterrupted run's most likely one, whatever was drawn"
        in block["text"].lower()
    )
    apart = panels.sections(rows, ["prune"])[0]
    assert "Steps with the same likeliest token, %" in str(apart["panels"])
    same = [row | {"top1_agreement": 1.0, "kl_mean": n} for n, row in enumerate(rows)]
    whole = panels.sections(same, ["prune"])[0]["text"]
    assert "share of steps with the same most likely token is 100%" in whole
    said = table.every(same, ["prune"], {}, {}, alone=False)["text"]
    assert "share of steps with the same most likely token 100%" in said
