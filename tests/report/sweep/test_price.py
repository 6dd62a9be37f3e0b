"""What the best point of a sweep costs otherwise, from what was measured and nothing else."""

from pathlib import Path

from harness.report.sweep import panels, price


def row(point: str, size: int, load: float | None, **more) -> dict:
    return {"point": point, "verdict": "equivalent", "stored_bytes": size, "load_s": load, **more}


def test_the_best_says_what_it_saves_and_what_it_gives_up() -> None:
    best, large, gone = (
        row("0", 100, 0.21),
        row("1", 800, 0.1),
        row("2", 900, 0.01, verdict="failed"),
    )
    told = price.sentence([best], [], [best, large, gone])
    assert told == (
        "What the point chosen costs: 12% of the bytes on disk of .../1, the largest; "
        "loading it takes 2.1 times as long as in .../1, the fastest (timed once)."
    )


def test_noise_and_what_was_asked_otherwise_is_no_price() -> None:
    best = row("0", 100, 0.012, seed="0")
    near, other = row("1", 800, 0.011, seed="0"), row("2", 900, 0.001, seed="1")
    told = price.sentence([best], ["seed"], [best, near, other])
    assert told == "What the point chosen costs: 12% of the bytes on disk of seed=0, the largest."
    assert "long" not in price.sentence([row("0", 100, None)], [], [best, near])
    same = row("2", 99, 0.01, seed="0")
    assert price.sentence([same], [], [same, row("3", 100, 0.01)]) == "", "99% of the bytes"
    slow = row("0", 100, 0.05)
    assert "long" not in price.sentence([slow], [], [slow, near]), "39 ms, timed once"
    assert not price.sentence([best, near], ["seed"], [best, near])  # there is not one best
    assert not price.sentence([near], ["seed"], [near])


def test_the_nearest_of_one_prompt_is_no_better_policy() -> None:
    rows = [row(p, 100, 0.1, prune=p, verdict="diverged", kl_mean=0.1) for p in ("knorm", "tova")]
    said = "One prompt says how these runs compare, not which policy is better in general: for that, task=evaluate."
    won, right = {**rows[0], "verdict": "drifted"}, [{**r, "answer": "right"} for r in rows]
    for some, of in ((rows[:1], rows), ([won], [won, rows[1]]), (right[:1], right)):
        assert price.caution(some, ["prune"], of) == said, "whoever wins, it is one prompt"
    for told in (
        price.caution(rows[:1], ["prune", "model"], rows),
        price.caution(rows[:1], ["cache"], rows),
        price.caution([{**rows[0], "verdict": "equivalent"}], ["prune"], rows),
        price.caution([], ["prune"], rows),
    ):
        assert told == ""
    two = [{**r, "verdict": "drifted", "text": t} for r in rows for t in ("a", "b")]
    assert price.caution(two[:1], ["prune", "text"], two) == said.replace(
        "One prompt says", "2 prompts say"
    )
    many = [{**two[0], "text": str(t)} for t in range(price.FEW + 1)]
    assert price.caution(many[:1], ["prune", "text"], many) == "", "so many say more"
    greedy = [
        {**r, "task": "experiment", "sampling": "greedy", "seed": s} for r in rows for s in "12"
    ]
    assert price.caution(greedy[:1], ["prune", "seed"], greedy) == said, "the seed draws nothing"
    drawn = [{**r, "prune.seed": s, "sampling": "sample"} for r in rows for s in "12"]
    assert price.caution(drawn[:1], ["prune", "prune.seed"], drawn) == said, "tokens, and no prompt"


def test_what_is_drawn_is_what_tells_the_nearest_and_a_seed_has_no_size() -> None:
    points = [
        {**row(str(i), 100 + i, 0.1), "prune": "tova" if i else "knorm", "seed": str(i), "save_s": 0.1,
         "per_token_s": 0.01 + i, "kl_mean": 0.1 + i, "kl_max": 0.2 + i, "noise_kl_max": None, "kept_tokens": 4, "dtype": "float32"}
        for i in range(2)
    ]  # fmt: skip
    others = [{**point, "verdict": "diverged"} for point in points]
    (same, cost), (other, _) = (panels.sections(rows, ["prune"]) for rows in (points, others))
    assert "Largest KL per step" in str(same) and "Mean KL per step" not in str(same)
    assert "Mean KL per step" in str(other) and "Largest KL per step" not in str(other)
    assert cost["fold"] and "fold" not in same, "timed once: no trend is shown unasked"
    assert [s["title"] for s in panels.sections(others, ["seed"])] == ["How far the logits went"]


def test_fewer_bytes_with_the_right_answer_are_named_beside_the_nearest() -> None:
    """The twin of each: a wrong answer, as many bytes, a point that fell short, another question."""

    def point(name: str, size: int, verdict: str, **more) -> dict:
        kept = {"answer": "right", "exit_code": "0", "prune": "keydiff", "prune.ratio": name}
        return row(name, size, None, **{**kept, "verdict": verdict, **more})

    best, axes = point("0.75", 1000, "drifted"), ["prune.ratio"]
    rows = [best, point("0.5", 700, "diverged"), point("0.25", 500, "diverged")]
    said = "With other tokens the right answer comes also in 50% of these bytes: prune.ratio=0.25."
    assert price.smaller([best], axes, rows) == said and said in price.beside(
        Path(), [best], axes, rows
    )
    for other in (
        {"answer": "wrong"}, {"stored_bytes": 990}, {"exit_code": "1"}, {"verdict": "failed"},
    ):  # fmt: skip
        assert "70% of" in price.smaller([best], axes, [*rows[:2], {**rows[2], **other}])
    asked = [{**r, "seed": str(i)} for i, r in enumerate(rows)]
    assert price.smaller(asked[:1], ["seed", *axes], asked) == "", "each was asked another question"
    assert price.smaller([{**best, "answer": "wrong"}], axes, rows) == ""
    assert price.smaller([], axes, rows) == price.smaller(rows[:2], axes, rows) == ""


def test_the_smallest_that_is_as_required_is_named_where_the_nearest_is_not() -> None:
    """The twins: another question, formats of one size, a nearest point that is as required itself."""
    full = [row(f, size, None, exit_code="0", quantize="none", save=f)
            for f, size in (("safetensors", 300), ("gzip", 200))]  # fmt: skip
    near = row("2", 100, None, exit_code="1", quantize="int8", save="gzip") | {"verdict": "drifted"}
    axes, rows = ["quantize", "save"], [*full, near]
    said = "As required, and the smallest that is: quantize=none save=gzip (200 bytes)."
    assert price.required([near], axes, rows) == said
    assert price.required([near | {"exit_code": "0"}], axes, rows) == ""
    assert price.required([near], axes, [full[0], full[1] | {"stored_bytes": 299}, near]) == ""
    asked = [r | {"seed": str(i)} for i, r in enumerate(rows)]
    assert price.required(asked[2:], ["seed", *axes], asked) == ""
