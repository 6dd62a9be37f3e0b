"""The page in a real browser: the whole round, by mouse and by keyboard alone, in light and dark, and
nothing leaves the machine (neither the browser nor the server)."""

import time
import urllib.error
import urllib.request
from pathlib import Path
from urllib.parse import urlparse

import pytest
from browsing import CONTRAST, OUTSIDE, hosts, needs_browser, shown
from handling import PROMPT, SENT, at, begun, click, drawn, ended, press, said, write, wrote


def typed(browser) -> str:
    return browser.find_element("css selector", "#prompt textarea").get_attribute("value").strip()


@pytest.mark.browser
@needs_browser
def test_step_save_reload_load_step_is_the_same_token(browser, page):
    _, address, folder = page
    hosts(browser)
    begun(browser, address)
    browser.find_element("css selector", "#sampling button").click()
    click(browser, drawn(browser, "#how input[value=sample]"))
    said(browser, "chosen by sample")
    write(browser, "temperature", "2\ue004")
    said(browser, "chosen by sample, temperature 2.")
    box = browser.find_element("css selector", "#temperature input[type=number]")
    box.send_keys("\ue009a\ue000", "\ue003")  # all of it, gone
    said(browser, "a number is missing")  # and no traceback in the terminal: see the last test
    box.send_keys("9")
    said(browser, "temperature 3. temperature 9 is not from 0.1 to 3")
    box.send_keys("\ue004")
    said(browser, "chosen by sample, temperature 3.")
    assert box.get_property("value") == "3"  # what is shown is what holds
    box.send_keys("\ue009a\ue000", "2\ue004")
    said(browser, "chosen by sample, temperature 2.")
    press(browser, "step")
    assert len(wrote(browser, SENT)) == SENT + 1
    write(browser, "name", "tomorrow")
    press(browser, "save")
    said(browser, "Saved as tomorrow", "verified")
    assert (folder / "shelf" / "tomorrow" / "manifest.json").is_file()
    expected = []
    for step in range(3):
        press(browser, "step")
        expected = wrote(browser, SENT + 1 + step)
    browser.refresh()
    shown(browser, "Ready. One branch, as you left")
    assert wrote(browser, SENT + 3) == expected  # nothing is lost
    assert typed(browser) == PROMPT
    write(browser, "prompt", "let m be red . typed")
    browser.refresh()
    shown(browser, "Ready. One branch, as you left")
    assert typed(browser) == "let m be red . typed"  # though no thought began with it
    press(browser, "load")
    said(browser, "Restored tomorrow as branch B")
    assert wrote(browser, SENT) == expected[: SENT + 1]
    assert "Sampling: sample" in shown(browser, "Sampling: sample")
    for step in range(3):
        press(browser, "step")
        found = wrote(browser, SENT + 1 + step)
    assert found == expected
    write(browser, "name", "tomorrow")
    press(browser, "save")
    said(browser, "taken")
    write(browser, "name", "../../evil")
    press(browser, "save")
    line = said(browser, "cannot name a snapshot")
    click(browser, browser.find_element("css selector", "#status .dismiss"))
    assert at(browser, "status").text == ""
    press(browser, "save")
    assert said(browser, "cannot name a snapshot") == line  # the same words are shown again
    names = sorted(p.name for p in (folder / "shelf").iterdir())
    assert names == [".autosave", "tomorrow"]
    assert hosts(browser) <= {"127.0.0.1"}


@pytest.mark.browser
@needs_browser
def test_branch_compare_prune_and_verdict(browser, page):
    _, address, _ = page
    hosts(browser)
    begun(browser, address)
    write(browser, "count", "-3")
    press(browser, "run")
    said(
        browser, "Type a whole number from 1 to 4096."
    )  # and no traceback in the terminal: see the last test
    write(browser, "count", "6")
    press(browser, "run")
    said(browser, "Wrote 6 of 6")
    assert f"{SENT + 6} held" in " ".join(at(browser, "cache").text.split())
    press(browser, "fork")
    said(browser, "Branch B starts here")
    write(browser, "more", " the river ran")
    press(browser, "add")
    said(browser, "Read 3 tokens")
    press(browser, "compare")
    text = shown(
        browser,
        f"Branch B at {SENT + 9} tokens and branch A at {SENT + 6} tokens part at token {SENT + 7}",
        "largest logit difference",
    )
    assert len(browser.find_elements("css selector", "#compared tbody tr")) == 8
    press(browser, "judge")
    said(browser, "Verdict: equivalent")
    assert "recomputed from the token buffer" in at(browser, "judged").text
    slider = browser.find_element("css selector", "#keep input[type=range]")
    assert (slider.get_attribute("min"), slider.get_attribute("max")) == ("1", "29")
    assert slider.get_attribute("value") == "13"
    slider.send_keys("\ue012" * 3)  # the slider itself, three to the left
    press(browser, "prune")
    said(browser, "Branch C: keep_last dropped 19 tokens, 10 are held")
    assert at(browser, "judged").text.startswith("Branch C is not judged yet")  # that was branch B
    assert len(browser.find_elements("css selector", "#thought .thought .gone")) == 19
    press(browser, "judge")
    said(browser, "Verdict: exact")
    assert "Same thought" in at(browser, "judged").text
    assert "has changed since" not in at(browser, "judged").text
    browser.find_element("css selector", "#branches input[value=A]").click()
    said(browser, "On branch A.")
    assert at(browser, "judged").text.startswith("Branch A is not judged yet")  # that was branch B
    text = " ".join(at(browser, "cache").text.split())
    assert "26 tokens sent 26 held" in text  # the other branch lost nothing
    assert hosts(browser) <= {"127.0.0.1"}


@pytest.mark.browser
@needs_browser
def test_the_keyboard_alone_is_enough(browser, page):
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    _, address, _ = page
    browser.get(address + "?new")
    shown(browser, "Ready.")

    def keys(*given: str) -> None:
        ActionChains(browser).send_keys(*given).perform()

    def tab_to(inside: str) -> None:
        script = f"return document.activeElement.closest('{inside}') !== null"
        for _ in range(60):
            if browser.execute_script(script):
                ring = "return getComputedStyle(document.activeElement).outlineStyle"
                assert browser.execute_script(ring) == "solid", f"no focus ring on {inside}"
                return
            keys(Keys.TAB)
        raise AssertionError(f"{inside} cannot be reached by Tab")

    tab_to("#prompt")
    keys(Keys.END, " k", Keys.ENTER)
    said(browser, f"Read {SENT + 1} tokens.")
    tab_to("#step")
    keys(Keys.ENTER)
    assert len(wrote(browser, SENT + 1)) == SENT + 2
    keys(Keys.SPACE)  # the focus stays where it was
    assert len(wrote(browser, SENT + 2)) == SENT + 3
    tab_to("#keep input[type=range]")
    keys(Keys.ARROW_LEFT)
    tab_to("#prune")
    keys(Keys.ENTER)
    said(browser, "keep_last dropped 14 tokens")
    tab_to("#quantizer")
    keys(Keys.ARROW_DOWN, Keys.ENTER)  # what is marked is taken, and gradio lets the focus fall
    shown(browser, "two bits of mantissa")
    time.sleep(0.5)
    assert browser.execute_script("return document.activeElement.closest('#quantizer') !== null")
    tab_to("#name")
    keys("by keyboard", Keys.ENTER)
    said(browser, "Saved as by keyboard")
    left = browser.find_elements("css selector", "[role=listbox]")
    assert left == []  # the lists of the boxes that Tab went through
    tab_to("#fork")
    keys(Keys.ENTER)
    said(browser, "Branch C")
    tab_to("#judge")
    keys(Keys.ENTER)
    said(browser, "Verdict: ")
    give_up = time.time() + 20  # the button was disabled meanwhile, and has the focus again
    while browser.execute_script("return document.activeElement.id") != "judge":
        assert time.time() < give_up
        time.sleep(0.1)


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_readable_in_light_and_dark_wide_and_narrow(browser, page, tmp_path, scheme):
    _, address, _ = page
    asked = {"prefers-color-scheme": scheme, "prefers-reduced-motion": "reduce"}  # nothing fades
    media = {"features": [{"name": name, "value": value} for name, value in asked.items()]}
    size = {"height": 1400, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", media)
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "width": 1280})
    try:
        begun(browser, address)
        for name, answer in (("step", "Wrote"), ("prune", "dropped"), ("step", "Wrote"), ("compare", "Branch B beside branch A"), ("judge", "Verdict: ")):  # fmt: skip
            press(browser, name)
            said(browser, answer)
        assert ("dark" in browser.find_element("css selector", "body").get_attribute("class")) == (
            scheme == "dark"
        )
        for width in (1280, 390):
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {**size, "width": width})
            assert browser.execute_script(CONTRAST) == []
            assert browser.execute_script(OUTSIDE) == []
            assert browser.execute_script("return document.documentElement.scrollWidth") <= width
            line = [at(browser, name).location["y"] for name in ("step", "run", "stop")]  # fmt: skip
            assert len(set(line)) == 1  # none of them wraps alone
        browser.save_screenshot(str(tmp_path / "page.png"))
        assert (tmp_path / "page.png").stat().st_size > 20_000
        browser.execute_script(
            "document.querySelector('header p').style.color = getComputedStyle(document.body).backgroundColor"
        )
        assert browser.execute_script(CONTRAST)  # the twin: words nobody can read are found
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.browser
@needs_browser
def test_two_tabs_have_two_thoughts_and_one_shelf(browser, page):
    _, address, _ = page
    begun(browser, address)
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    try:
        browser.get(address + "?new")
        shown(browser, "Ready.", "Start reads the prompt above", "same thought?")
        assert not at(browser, "branches").is_displayed()  # what could not be used yet is not there
        assert not at(browser, "stop").is_enabled()
        write(browser, "prompt", "tell me a story . {{value}} ${1+1} <b>x</b>")
        press(browser, "begin")
        said(browser, "Read ")
        assert at(browser, "branches").is_displayed()
        assert "{{value}} ${1+1} <b>x</b>" in at(browser, "thought").text
        write(browser, "name", "from the second tab")
        press(browser, "save")
        said(browser, "Saved as from the second tab")
    finally:
        browser.close()
        browser.switch_to.window(first)
    press(browser, "step")
    assert len(wrote(browser, SENT)) == SENT + 1
    write(browser, "snapshot", "from the second tab\ue007")
    press(browser, "load")
    said(browser, "Restored from the second tab")


@pytest.mark.browser
@needs_browser
def test_a_run_goes_on_while_the_page_is_closed(browser, page):
    _, address, folder = page
    begun(browser, address)
    write(browser, "count", "120")
    press(browser, "run")
    said(browser, "Wrote ", "of 120")
    first = browser.current_window_handle
    browser.switch_to.new_window("tab")
    other = browser.current_window_handle
    browser.switch_to.window(first)
    browser.close()
    browser.switch_to.window(other)
    browser.get(address)
    shown(browser, f"{SENT + 120} held")  # a page that opens meanwhile sees the run to its end
    browser.get(address)
    shown(browser, "Ready. One branch, as you left", f"{SENT + 120} held")
    assert len(wrote(browser, SENT + 119)) == SENT + 120
    write(browser, "place", "5")
    press(browser, "back")
    said(browser, "Branch B stands after 5 tokens.")
    press(browser, "quantize")
    said(browser, "instead of")
    autosave = folder / "shelf" / ".autosave"
    assert autosave.stat().st_mode & 0o777 == 0o700


def test_the_server_answers_this_machine_only(page):
    _, address, _ = page
    port = urlparse(address).port
    table = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]  # fmt: skip
    listening = {row[1].split(":")[0] for row in table if row[3] == "0A" and int(row[1].split(":")[1], 16) == port}  # fmt: skip
    assert listening == {"0100007F"}
    answer = urllib.request.urlopen(address, timeout=10)
    assert "default-src 'self'" in answer.headers["content-security-policy"]
    stranger = urllib.request.Request(address, headers={"Host": "evil.example"})
    with pytest.raises(urllib.error.HTTPError, match="400"):
        urllib.request.urlopen(stranger, timeout=10)


@pytest.mark.browser
@needs_browser
def test_ctrl_c_in_the_middle_of_a_run_ends_the_page_and_nothing_stays_or_left_the_machine(
    browser, page
):
    """The last one here: what the server did during all of the tests above is looked at too."""
    process, address, folder = page
    begun(browser, address)
    write(browser, "count", "3000")
    press(browser, "run")
    said(browser, "Wrote ", "of 3000")
    press(browser, "stop")
    line = said(browser, "Stopped at ")
    stopped = len(wrote(browser, SENT))
    assert line == f"Stopped at {stopped} tokens."
    press(browser, "step")
    assert len(wrote(browser, stopped)) == stopped + 1 < SENT + 3000
    press(browser, "run")
    said(browser, "Wrote ", "of 3000")
    asked = time.time()
    assert ended(process, folder / "console.txt") == 0
    assert time.time() - asked < 15
    said(browser, "The server has stopped: start it again and reload")
    printed = (folder / "console.txt").read_text()
    again = f"out={folder / 'shelf'}\n"
    assert "snapshots in" in printed and again in printed and "Traceback" not in printed
    called = {line.split()[1] for line in printed.splitlines() if line.startswith("CONNECT")}
    assert called <= {"127.0.0.1", "localhost"}, called
    (result,) = folder.glob("ui/*/result.json")
    assert '"verdict": "unjudged"' in result.read_text()
    left = [p.name for p in (folder / "tmp").iterdir() if not p.name.startswith("torchinductor")]
    assert left == [] and not list(result.parent.glob("proof*"))
