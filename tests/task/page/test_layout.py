"""How the page lies in a real browser: answers move nothing, and the width is used."""

import pytest
from browsing import OUTSIDE, needs_browser
from handling import PROMPT, at, begun, ended, press, said, started

WIDE = {"width": 1400, "height": 1400, "deviceScaleFactor": 1, "mobile": False}


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    """The address of one page that the tests share."""
    folder = tmp_path_factory.mktemp("ui")
    process, address = started(folder, f"text={PROMPT}", f"out={folder / 'shelf'}")
    yield address
    assert ended(process, folder / "console.txt") == 0


@pytest.mark.browser
@needs_browser
@pytest.mark.slow
def test_a_verdict_moves_nothing_and_cards_fill_their_rows(browser, page):
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", WIDE)
    try:
        begun(browser, page)
        below = ("prune", "compare", "there", "evaluate")
        before = [at(browser, name).location["y"] for name in below]
        press(browser, "judge")
        said(browser, "Verdict:")
        assert [at(browser, name).location["y"] for name in below] == before
        press(browser, "fork")
        said(browser, "Branch B")
        press(browser, "compare")
        said(browser, "Branch B beside branch A")
        assert [at(browser, name).location["y"] for name in below[:3]] == before[:3]
        for row in (".deck", ".pairs"):
            ends = {
                round(card.rect["y"] + card.rect["height"])
                for card in browser.find_elements("css selector", f"{row} > .card")
            }
            assert len(ends) == 1, row
        assert browser.execute_script(OUTSIDE) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
