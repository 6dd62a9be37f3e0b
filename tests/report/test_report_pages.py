"""Pages and tables: what is shown is what was measured, and nothing of it is run or fetched."""

import re

from harness.report import html
from harness.report.console import Say, number, table

NASTY = "<script>alert(1)</script>"


def test_everything_but_our_own_pictures_is_escaped() -> None:
    sections = [
        html.section(NASTY, text=NASTY, pre=NASTY, columns=[NASTY], rows=[[NASTY]]),
        html.section("picture", svg="<svg></svg>"),
    ]
    page = html.page(NASTY, sections, NASTY, NASTY)
    assert "<script" not in page and page.count("&lt;script&gt;") >= 6
    assert "<svg></svg>" in page


def test_a_page_fetches_nothing() -> None:
    page = html.page("t", [html.section("s", columns=["a"], rows=[[1.0]])], "exact", "why")
    assert not re.search(r"(src|href)\s*=\s*[\"']?(https?:)?//|@import|url\(", page)


def test_a_verdict_is_coloured_by_whether_it_is_good_enough() -> None:
    assert 'class="verdict good"' in html.page("t", [], "drifted", "", good=True)
    assert 'class="verdict bad"' in html.page("t", [], "drifted", "", good=False)
    assert 'class="verdict' not in html.page("t", [], "", "")


def test_cells_link_and_colour_and_escape_their_text() -> None:
    rows = [[html.cell(NASTY, href="a/report.html", kind="bad")]]
    page = html.page("t", [html.section("s", columns=["a"], rows=rows)])
    assert '<td class="bad"><a href="a/report.html">&lt;script&gt;' in page


def test_numbers_are_short_and_unambiguous() -> None:
    shown = [number(v) for v in (None, True, False, 0.000123456, 12345.678, 7, "x")]
    assert shown == ["-", "yes", "no", "0.000123", "1.23e+04", "7", "x"]


def test_a_table_shows_every_cell() -> None:
    say = Say()
    with say.out.capture() as caught:
        say.out.print(table("Title", ["name", "value"], [["a", 1.5], ["b", None]]))
    lines = caught.get()
    assert all(word in lines for word in ("Title", "name", "value", "a", "1.5", "b", "-"))


def test_a_quiet_reporter_says_problems_only(capsys) -> None:
    say = Say(quiet=True)
    say.stage("work")
    say.note("slow")
    say.done("result")
    say.problem("harness: broken")
    assert capsys.readouterr().err == "harness: broken\n"
