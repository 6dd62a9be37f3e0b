"""What the best point of a sweep costs otherwise, from what was measured and nothing else."""

from harness.report import price


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
        "Beside the others it takes 12% of the bytes of .../1, the largest; "
        "loading it takes 2.1 times as long as in .../1, the fastest (timed once)."
    )


def test_noise_and_what_was_asked_otherwise_is_no_price() -> None:
    best = row("0", 100, 0.012, seed="0")
    near, other = row("1", 800, 0.011, seed="0"), row("2", 900, 0.001, seed="1")
    told = price.sentence([best], ["seed"], [best, near, other])
    assert told == "Beside the others it takes 12% of the bytes of .../1, the largest."
    assert "long" not in price.sentence([row("0", 100, None)], [], [best, near])
    assert not price.sentence([best, near], ["seed"], [best, near])  # there is not one best
    assert not price.sentence([near], ["seed"], [near])
