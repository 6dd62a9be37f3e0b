"""The marks of a sweep's pictures: none hides another, and each says whose it is."""

import re

from harness.report.sweep import scatter

MARK = re.compile(
    r'<a href="(\d+)/report.html"[^>]*><title>([^<]*)</title><use [^>]*x="([\d.]+)" y="([\d.]+)"'
)


def points(*values: tuple[str, str, float]) -> list[dict]:
    return [
        {"point": str(i), "verdict": "equivalent", "kept": 27, "cache": c, "model": m, "kl": kl}
        for i, (c, m, kl) in enumerate(values)
    ]


def drawn(rows: list[dict], x: str = "kept", by_name: bool = False) -> list[tuple[str, ...]]:
    panel, _ = scatter.scatter(
        rows, x, "kl", lambda _: "good", ("cache", "model"), "KL", x, "nats", by_name=by_name
    )
    assert "marks:" not in panel
    return MARK.findall(panel)


def test_marks_of_one_colour_and_of_another_size_stand_side_by_side_as_others_do() -> None:
    four = [(c, m, 1.0) for c in ("view", "cloned") for m in ("tiny", "gemma")]
    far = ("view", "tiny", 9.0)
    for by_name in (False, True):
        marks = drawn(points(*four, far), by_name=by_name)
        assert len({(x, y) for *_, x, y in marks}) == len(marks) == 5
    twice = drawn(points(*four[:1], *four[:1], far))
    assert len({(x, y) for *_, x, y in twice}) == 3, "the same options twice"
    near = drawn(points(("view", "tiny", 1.0), ("view", "gemma", 1.0001), far))
    assert len({x for *_, x, _ in near}) == 3, "no value of theirs is the same, and one would hide"


def test_a_mark_is_named_by_its_options_and_leads_to_its_report() -> None:
    marks = drawn(points(("view", "tiny", 1.0), ("cloned", "tiny", 2.0)))
    assert [mark[:2] for mark in marks] == [
        ("0", "kept=27, cache=view, model=tiny, equivalent"),
        ("1", "kept=27, cache=cloned, model=tiny, equivalent"),
    ]
