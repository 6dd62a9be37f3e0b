"""Tables of many rows: they fold, and where a script runs their headings sort them, by mouse and by key."""

import re

import pytest
from browsing import needs_browser

from harness.report import html

HEADS = ["folder", "what", "bytes", "seconds"]


def page(many: int) -> str:
    rows = [
        [html.cell(i, f"{i}/report.html"), f"p{i % 3}", html.grouped(5000 - 400 * i if i else None),
         10.0 ** (i - 9)] for i in range(many)
    ]  # fmt: skip
    return html.page("t", [html.section("Every point", columns=HEADS, rows=rows)])


def test_a_long_table_folds_and_a_short_one_does_not() -> None:
    long, short = page(html.LONG + 1), page(html.LONG)
    assert "<details open><summary><h2>Every point</h2></summary>" in long and " sorts" in long
    assert "<h2>Every point</h2>" in short and "<details" not in short.partition("<script>")[0]
    assert not re.search('class="[^"]*sorts', short)
    assert "<button" not in long.partition("<script>")[0]  # without a script none promises anything


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize(
    "wide, place, shown", [(400, "", False), (400, "#t", True), (1400, "", True)]
)
def test_a_long_table_is_folded_on_a_narrow_screen_alone(
    browser, tmp_path, wide, place, shown
) -> None:
    blocks = [html.section("All", columns=["a"], rows=[[1]], long=True, id="t"), html.section("B")]
    (tmp_path / "p.html").write_text(html.page("t", blocks))
    size = {"width": wide, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get("about:blank")
    browser.get(f"file://{tmp_path}/p.html{place}")
    assert browser.find_element("css selector", "tbody").is_displayed() == shown
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.browser
@needs_browser
def test_a_small_table_of_verdicts_is_no_wider_than_a_narrow_screen(browser, tmp_path) -> None:
    """Not even where every verdict is marked; the twin, with the mark beside it, is."""
    verdict = html.cell("diverged", "x", "bad best nearest", "\u2260")
    rows = [["expected_attention", verdict, verdict]]
    told = html.page("t", [html.section("A", columns=["prune", "manual", "cloned"], rows=rows)])
    size = {"width": 400, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    try:
        over = []
        for text in (told, told.replace("td.best::after { display: block }", "")):
            (tmp_path / "p.html").write_text(text)
            browser.get(f"file://{tmp_path}/p.html")
            wide = "const e = document.querySelector('.wide'); return e.scrollWidth > e.clientWidth"
            over.append(browser.execute_script(wide))
        assert over == [False, True]
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.browser
@needs_browser
def test_a_heading_sorts_by_click_and_by_key_what_is_empty_last(browser, tmp_path) -> None:
    (tmp_path / "p.html").write_text(page(html.LONG + 1))
    browser.get(f"file://{tmp_path}/p.html")

    def column(place: int) -> list[str]:
        return browser.execute_script(
            f"return [...document.querySelectorAll('tbody tr')].map(r => r.cells[{place}].textContent)"
        )

    def press(place: int, key: str = "") -> str | None:
        button = browser.find_elements("css selector", "th button")[place]
        button.send_keys(key) if key else button.click()
        head = button.find_element("xpath", "..")
        return head.get_attribute("aria-sort")

    as_written = column(0)
    assert press(2) == "ascending"
    amounts = [int(text.replace(",", "")) for text in column(2)[:-1]]
    assert amounts == sorted(amounts) and column(2)[-1] in ("", "-") and column(0) != as_written
    assert press(2, "\ue007") == "descending"  # Enter
    assert column(2)[0] == "4,600" and column(2)[-1] in ("", "-")
    assert press(3) == "ascending" and column(0) == as_written  # 1e-09 before 1e-08
    others = browser.find_elements("css selector", "th[aria-sort]")
    assert len(others) == 1
    press(1)
    assert column(1) == sorted(column(1)) and column(0)[:2] == ["0", "3"]  # others as they were
