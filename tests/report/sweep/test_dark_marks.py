"""The marks of a sweep and the lines that join them stand out from the page, in light and in the dark."""

import re

import pytest
from browsing import needs_browser

from harness.report.html import page, section
from harness.report.sweep import panels, scatter

# the least contrast to the ground of anything drawn in a colour of its own, by what it is
LEAST = """
const part = v => { v /= 255; return v <= .03928 ? v / 12.92 : ((v + .055) / 1.055) ** 2.4 };
const light = c => .2126 * part(c[0]) + .7152 * part(c[1]) + .0722 * part(c[2]);
const rgb = c => c.match(/[\\d.]+/g).slice(0, 3).map(Number);
const ground = rgb(getComputedStyle(document.body).backgroundColor);
const least = {};
for (const e of document.querySelectorAll('figure [style*="stroke: #"]')) {
  const s = getComputedStyle(e), much = +s.strokeOpacity;
  if (e.closest('defs') || /rgb\\(176, 176, 176\\)/.test(s.stroke) || !/^rgb/.test(s.stroke)) continue;
  const seen = rgb(s.stroke).map((v, i) => v * much + ground[i] * (1 - much));
  const [a, b] = [light(seen), light(ground)].sort((x, y) => y - x);
  least[e.tagName] = Math.min(least[e.tagName] ?? 99, (a + .05) / (b + .05));
}
return least;
"""


@pytest.mark.browser
@needs_browser
def test_marks_and_the_lines_that_join_them_are_seen_in_the_dark(browser, tmp_path) -> None:
    rows = [
        {"x": x, "y": 10.0**-x * (1 + g), "g": f"g{g}", "v": kind}
        for g in range(8)
        for x, kind in enumerate(["good", "soft", "bad"], 1)
    ]
    drawn, _ = scatter.scatter(rows, "x", "y", lambda r: r["v"], ("g", None), "T", "x", "y")
    told = page("T", [section("S", panels=[drawn])])

    def least(text: str) -> dict[str, float]:
        (tmp_path / "p.html").write_text(text)
        browser.get((tmp_path / "p.html").as_uri())
        return browser.execute_script(LEAST)

    dark = {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", dark)
    try:
        seen = least(told)
        assert set(seen) == {"use", "path"} and min(seen.values()) >= 3, seen
        seen = least(re.sub(r"--join: \.9; --half: \.85", "", told))
        assert max(seen.values()) < 3, "half transparent on black"  # the twin
    finally:
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


def test_what_was_allowed_is_not_marked_as_what_is_exact() -> None:
    exact = {
        "verdict": "exact",
        "required": "block",
        "pruned": True,
        "outcome": None,
        "prune": "a",
        "x": 1,
    }
    allowed = {**exact, "verdict": "diverged", "x": 2}
    full = {
        by: [scatter.FULL[panels._kind(row, by)] for row in (exact, allowed)]
        for by in (None, "prune")
    }
    assert full["prune"] == [
        "full",
        "none",
    ]  # where colours tell the policy, fullness tells the verdict
    said = panels._legend([exact, allowed], "prune", None)
    signs = [scatter.FULLNESS[kind] for kind in ("good", "bad")]
    assert all(sign in said for sign in signs), said
