"""The counts of a sweep, of which a narrow column shows the beginning."""

from harness.snapshot.result import tallied


def test_what_is_not_as_required_comes_first_the_worst_of_it_before_the_rest() -> None:
    points = [("equivalent", True)] * 4 + [("diverged", False), ("exact", True), ("failed", False)]
    assert list(tallied(points)) == ["failed", "diverged", "exact", "equivalent"]
    assert tallied(points)["equivalent"] == 4
    allowed = [("diverged", True), ("exact", True), ("saved", True)]
    assert list(tallied(allowed)) == ["exact", "diverged", "saved"], "nothing is wrong with these"
