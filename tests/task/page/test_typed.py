"""What a person sets on the page is set again after a reload, as it was typed."""

import time

import pytest
from browsing import needs_browser, shown
from handling import PROMPT, at, begun, click, ended, press, said, started, write


def value(browser, selector: str):
    return browser.find_element("css selector", selector).get_property("value")


@pytest.mark.browser
@needs_browser
@pytest.mark.slow
def test_what_was_typed_is_there_after_a_reload_and_after_a_restart(browser, tmp_path):
    shelf = tmp_path / "shelf"
    places = [tmp_path / "one", tmp_path / "two"]
    for place in places:
        place.mkdir()
    process, address = started(places[0], f"text={PROMPT}", f"out={shelf}")
    begun(browser, address)
    keep = browser.find_element("css selector", "#keep input[type=number]")
    keep.send_keys("\ue009a\ue000", "3\ue004")
    write(browser, "count", "7")
    click(browser, browser.find_element("css selector", "#per_head input"))
    browser.execute_script("document.querySelector('#prunes input[name=random]').click()")

    def there() -> None:
        give_up = time.time() + 20
        while (
            seen := (
                value(browser, "#keep input[type=number]"),
                value(browser, "#count input"),
                browser.find_element("css selector", "#per_head input").is_selected(),
                browser.find_element("css selector", "#prunes input[name=random]").is_selected(),
            )
        ) != ("3", "7", False, True):
            assert time.time() < give_up, seen
            time.sleep(0.1)

    time.sleep(1)
    browser.refresh()
    shown(browser, "Ready. One branch")
    there()
    press(browser, "run")
    said(browser, "Wrote 7 of 7 tokens.")
    there()
    press(browser, "prune")
    said(browser, "dropped 24 tokens, 3 are held")
    assert ended(process, places[0] / "console.txt") == 0
    process, again = started(places[1], f"text={PROMPT}", f"out={shelf}", f"task.port={address.rstrip('/').rpartition(':')[2]}")  # fmt: skip
    assert again == address
    browser.refresh()
    shown(browser, "Ready. 2 branches")
    there()
    assert "3 held" in " ".join(at(browser, "cache").text.split())
    assert ended(process, places[1] / "console.txt") == 0
