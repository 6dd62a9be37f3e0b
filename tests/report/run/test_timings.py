"""The picture of how long each stage took: room for its dots at any width, whatever the stages are called."""

import re

import pytest
from browsing import OUTSIDE, needs_browser

from harness.report.html import page, section
from harness.report.picture import plots

SECONDS = {"prefill": 0.0047, "back": 0.0553, "recompute": 123.4567, "load_model": 0.2549}
MEASURED = """
const wide = s => [...document.querySelectorAll(s)].map(e => e.getBoundingClientRect().width);
const dots = [...document.querySelectorAll('.track i')].map(e => e.getBoundingClientRect().left);
const cut = [...document.querySelectorAll('.timings td')].filter(e => e.getBoundingClientRect().right > innerWidth
  || e.scrollWidth > e.clientWidth + 8).length;
return {track: Math.min(...wide('.track')), row: wide('.timings')[0], span: Math.max(...dots) - Math.min(...dots),
  cut, page: document.documentElement.scrollWidth, lines: Math.max(...[...document.querySelectorAll('.timings td.n')]
  .map(e => { const all = document.createRange(); all.selectNodeContents(e); return all.getClientRects().length }))};
"""


def test_the_times_of_one_picture_are_in_one_unit() -> None:
    def told(*seconds: float) -> list[str]:
        drawn = plots.timings({str(place): some for place, some in enumerate(seconds)})
        return re.findall(r'<td class="n">(.*?)</td>', drawn.replace("\u00a0", " "))

    assert told(0.00041, 0.027, 12.2) == ["0.41 ms", "27 ms", "12,200 ms"]
    assert told(1.25, 123.4) == ["1.25 s", "123 s"]


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("width", [360, 400, 480, 1000, 1400])
def test_the_dots_of_the_stages_have_room_and_their_seconds_are_whole(browser, tmp_path, width):
    drawn = plots.timings(SECONDS)
    words = [section("Time and size", panels=[drawn, "<table class=figures></table>"])]
    (tmp_path / "times.html").write_text(page("T", words))
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((tmp_path / "times.html").as_uri())
    try:
        seen = browser.execute_script(MEASURED)
        assert seen["track"] >= max(90, 0.25 * seen["row"]) and seen["span"] >= 80, seen
        assert seen["cut"] == 0 and seen["page"] <= width and seen["lines"] == 1, seen
        assert browser.execute_script(OUTSIDE) == []
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
