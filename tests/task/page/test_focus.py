"""Where the focus is while something runs, and what is said at once: in a real browser."""

import time

import pytest
from browsing import needs_browser, shown
from handling import PROMPT, at, begun, ended, press, said, started, write


def focused(browser, name: str) -> None:
    give_up = time.time() + 20
    while (at_ := browser.execute_script("return document.activeElement.id")) != name:
        assert time.time() < give_up, f"the focus is on {at_!r}"
        time.sleep(0.05)


@pytest.mark.browser
@needs_browser
@pytest.mark.slow
def test_the_focus_goes_to_what_stops_and_back_and_the_end_is_one_message(browser, tmp_path):
    process, address = started(tmp_path, f"text={PROMPT}", f"out={tmp_path / 'shelf'}")
    begun(browser, address)
    write(browser, "count", "4000")
    at(browser, "run").send_keys("\ue007")
    focused(browser, "stop")
    at(browser, "stop").send_keys("\ue007")
    said(browser, "Stopped at")
    focused(browser, "run")
    write(browser, "samples", "200")
    at(browser, "evaluate").send_keys("\ue007")
    focused(browser, "enough")
    browser.execute_script(
        "window.told = []; new MutationObserver(() => told.push(document.getElementById('status').innerText))"
        ".observe(document.getElementById('status'), {childList: true, subtree: true})"
    )
    at(browser, "enough").send_keys("\ue007")
    said(browser, "The evaluation ended after")
    assert any("Stopping after" in line for line in browser.execute_script("return told"))
    focused(browser, "evaluate")
    assert ended(process, tmp_path / "console.txt") == 0
    press(browser, "step")
    shown(browser, "The server has stopped: start it again and reload")
    toasts = browser.find_elements("css selector", ".toast-wrap")
    assert not any(toast.is_displayed() for toast in toasts)
