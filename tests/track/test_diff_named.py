"""A comparison of two runs' snapshots, which are all called `snapshot`, is named by the runs."""

from harness.snapshot.words import apart
from harness.track import datasets, names

ONE, TWO = (f"runs/experiment/2026-11-24_03-16-1{i}_{own}/snapshot" for i, own in enumerate(("cc37", "22e8")))  # fmt: skip


def test_a_diff_is_named_by_what_tells_its_sides_apart(tmp_path) -> None:
    typed = [f"a={ONE}", f"b={TWO}", "task=diff"]
    said = names.asked("diff", typed, {"task": "diff", "model": "tiny"})
    assert said == "diff cc37 against 22e8"
    sides = {
        "a": {"path": ONE, "id": "1", "tokens": 3},
        "b": {"path": TWO, "id": "2", "tokens": 3},
    }
    assert [d["name"] for d in datasets.of({"sides": sides}, tmp_path)] == ["a: cc37", "b: 22e8"]
    assert names.asked("diff", ["a=x", "b=y"], {"task": "diff"}) == "diff x against y"
    points = [f"runs/experiment/stamp/{i}/snapshot" for i in (0, 3)]
    assert apart(points) == ["stamp/0", "stamp/3"], "a number alone names no point"
    assert apart(["0", "3"]) == ["0", "3"], "there is no more"
