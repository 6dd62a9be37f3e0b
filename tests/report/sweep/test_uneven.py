"""A pruning by layers, of which the first keeps every token: it is pruned all the same, wherever that is told."""

import csv
import math
import re

from harness.report.badge import allowed_kind
from harness.report.sweep import pruned, summary

WIDE = ("prune=snapkv", "prune.budget=pyramid", "prune.ratio=0.75", "steps=3")


def test_a_run_is_not_told_as_another_thought(harness) -> None:
    done = harness(*WIDE)
    result, said = done.result, done.result["conclusion"]
    assert done.code == 0 and result["size"]["kept_tokens"] == result["size"]["tokens"]
    assert said.startswith("Restore: as saved, within rounding. Pruning: ")
    mean = f"{result['kept']['mean']:,.0f}"
    told = f"with {mean} of {result['size']['tokens']} tokens kept on average, at most"
    assert told in said and "Another thought" not in done.out
    assert f"{mean} kept on average" in done.out, "by its size"
    assert f"{mean} kept on average, at most {result['size']['tokens']}, verified" in done.out
    assert (
        f"{mean} of {result['size']['tokens']} tokens are kept" in result["diagnosis"]["evidence"]
    )
    page = (done.folders[0] / "report.html").read_text()
    assert f"{mean} of {result['size']['tokens']} on average" in re.sub(r"<[^>]+>", " ", page)
    whole = harness("prune=snapkv", "prune.ratio=1.0", "steps=3")
    assert whole.result["size"]["kept_tokens"] == whole.result["size"]["tokens"]
    assert "on average" not in whole.out and whole.result["conclusion"].startswith("Same thought")


def test_a_sweep_has_it_among_the_pruned_and_draws_budgets_by_their_bytes(harness, place) -> None:
    done = harness(
        "-m", *WIDE[:1], "prune.budget=uniform,pyramid", "prune.ratio=0.5,0.75", "steps=3"
    )
    (folder,) = place.glob("runs/experiment/*")
    with (folder / "sweep.csv").open() as table:
        told, means = zip(*((row["pruned"], row["kept_mean"]) for row in csv.DictReader(table)))
    assert done.code == 0 and told == ("", "", "", "True")
    assert all(
        math.isclose(float(one), float(two), abs_tol=1) for one, two in zip(means, means[2:])
    )
    rows = [{"kept_tokens": 97, "tokens": 97, "quantize": "none", "restore": "equivalent", "verdict": "diverged",
             "outcome": "diverged", "exit_code": 0, **more} for more in ({pruned.UNEVEN: True}, {})]  # fmt: skip
    assert pruned.judged(rows[0]) and not pruned.judged(rows[1])
    assert pruned.tone(rows[0]) == allowed_kind("diverged") != pruned.tone(rows[1])
    assert [*map(summary._held, rows)] == [False, True]
    page = (folder / "sweep.html").read_text()
    assert ">kept, mean</th>" in page, "beside the most"
    assert "KiB of keys and values" in page and ">tokens kept</text>" not in page
