"""The report of one run: conclusion first, plain names, digests behind a fold, links, any width."""

import re

import pytest
from browsing import needs_browser, shown

from harness.present.conclusion import conclusion
from harness.report.html import page, section
from harness.report.names import NAMES, plain
from harness.report.picture import plots
from harness.report.run import page as run
from harness.snapshot.result import METRICS, MUTATION, TIMES
from harness.track.metrics import metrics

ALONE = "Links work in the folder that this page was written to."


SCROLLED = """
document.querySelectorAll('details').forEach(e => e.open = true)
return [...document.querySelectorAll('.rows')].filter(e => e.scrollWidth > e.clientWidth + 1).length
"""


WIDER = """
return [...document.querySelectorAll('body *')].filter(e => e.checkVisibility() && !e.closest('svg')
  && !e.closest('.wide') && e.getBoundingClientRect().right > innerWidth + 1).map(e => e.outerHTML.slice(0, 80))
"""


@pytest.fixture(scope="module")
def page_of_an_answer(tmp_path_factory, shell):
    """The report of a run that was asked something, and its result."""
    folder = tmp_path_factory.mktemp("answered") / "run"
    words = [
        "prompt=recall",
        "prompt.distance=24",
        "steps=4",
        "track=none",
        f"hydra.run.dir={folder}",
    ]
    done = shell(*words)
    assert done.returncode == 0, done.stderr
    return folder / "report.html"


def test_every_figure_of_a_record_has_a_plain_name():
    digests = {"digest_before", "digest_after"}
    assert {*METRICS, *MUTATION, *TIMES} - digests <= set(NAMES)
    assert plain("max_ulp") == "largest difference in units in the last place"
    assert plain("something_new") == "something new"


def test_the_two_times_that_a_headline_compares_are_rows_of_the_page():
    times = {"prefill": 3.0, "recompute": 2.9, "load": 0.2, "verify": 0.05, "restore": 0.03}
    result = {
        "verdict": "exact",
        "metrics": {"max_abs_diff": 0.0},
        "time_s": times,
        "size": {},
        "mutation": {},
    }
    assert (
        "(0.28 s to load, verify and restore, timed once; 2.9 s for the faster of two prefills of the same tokens)"
        in conclusion(result)
    )
    drawn = run._cost(result)["panels"][0]
    rows = dict(re.findall(r'"name">([^<]*)</td>.*?"n">([^<]*)<', drawn))
    times = [rows[plain(key)].replace("\u00a0", " ") for key in ("back", "recompute")]
    assert times == ["280 ms", "2,900 ms"], "in one unit"
    assert [*rows.values()].count(rows[plain("recompute")]) == 1, "told once"
    assert "recomputed in 2.9\u00a0s, the faster of two prefills." in run._cost(result)["text"]
    assert plain("back") not in run._cost({**result, "waived": [{}]})["panels"][0], (
        "that proof failed"
    )


def test_a_noise_path_that_is_bit_equal_is_said_to_be():
    curves = {name: {"kl": [0.1], "max_abs_diff": [gap]} for name, gap in (("restored", 1.0), ("noise: in chunks of 16", 0.0))}  # fmt: skip
    told = run._above({"verdict": "drifted", "curves": curves, "noise_floor": {}, "oracle": {}, "metrics": {}})  # fmt: skip
    assert told == " Bit-equal to the uninterrupted run, so at 0 in every step: in chunks of 16."


def test_conclusion_picture_words_then_figures(page_of_an_answer):
    page = page_of_an_answer.read_text()
    order = ["Same thought", "Expected:", "Restored against uninterrupted", "<svg", "What was said",
             "largest difference of a logit", "<summary>The 13 elements"]  # fmt: skip
    places = [page.index(part) for part in order]
    assert places == sorted(places)
    assert "rounding's own, of the model run without a cache, " in page.replace("&#39;", "'")
    assert "max_ulp" not in page and ">+1<" not in page
    folded = page[page.index("<summary>The 13 elements") :].split("</details>")[0]
    assert re.findall(r'<td class="n">(\d+)</td>', folded) == [str(n) for n in range(1, 14)]
    assert not re.search(r"\b[0-9a-f]{64}\b", page.replace(folded, "").split("<details>")[0])
    assert 'href="result.json"' in page and "task=audit run=" in page


def test_steps_are_counted_from_1_wherever_somebody_reads_them(harness):
    """The step whose logits differ, the reason, the sentence, the console and the page name one number."""
    done = harness("prune=keep_last", "prune.tokens=14", "steps=6")
    row = done.result["metrics"]["first_divergence"]
    assert done.result["reason"]["args"]["step"] == row + 1
    other = round(6 * (1 - done.result["metrics"]["top1_agreement"]))
    words = '("k is 35" where the full cache says "k is 5")'
    said = f"Pruning: another token than the full cache's at {other} of 6 steps, first at step {row + 1} {words}, "
    assert other and said in done.result["conclusion"], done.result["conclusion"]
    assert re.search(rf"first step with another most likely token +\| +{row + 1} \|", done.out)
    page = (done.folders[0] / "report.html").read_text()
    assert (
        page.count("<s title=") == 83
        and "14 of 97 tokens are held by every head, 83 by none." in page
    )
    assert "Each KV head keeps 14 of 97 tokens (14.4%), which take 28,672 of 198,656 bytes" in page
    assert "14 of 97 (14.4%)</td>" in page and "28,672 of 198,656 (14.4%) of the full cache" in page
    assert done.result["metrics"]["max_ulp"] > run.FAR and "units in the last place" not in page
    assert all(f' k is <mark class="first">{word}</mark> .' in page for word in ("5", "35"))
    label = (
        rf"first step with another most likely token, counted from 1 \(index {row} in result.json\)"
    )
    shown = re.search(rf"{label}</td><td[^>]*>(\d+)</td>", page)
    assert shown and int(shown[1]) == row + 1
    told = list(metrics(done.result))
    (at,) = (value for name, value, _ in told if name.startswith("logits/first_divergence"))
    assert at == row + 1
    assert [step for name, _, step in told if name == "by_step/kl"][:2] == [1, 2]


def test_right_and_wrong_answers_are_told_apart():
    said = {"expected": "y is 5", "continuation_right": True, "restored_right": False}
    words = [(line["said"], line["kind"]) for line in run.answers(said)]
    assert words == [("", ""), ("right", "good"), ("wrong", "bad")]
    assert run.answers({"continuation": "y is 5"}) == []


def test_a_point_links_to_its_sweep_and_a_missing_file_is_no_link(tmp_path):
    folder = tmp_path / "0"
    folder.mkdir()
    result = {"snapshot": {"path": str(folder / "snapshot")}}
    assert [name for name, _ in run.links(folder, result)] == ["result.json", "record.json"]
    (tmp_path / "multirun.yaml").touch()
    (folder / "snapshot").mkdir()
    (folder / "snapshot" / "manifest.json").touch()
    assert run.links(folder, result)[:2] == [
        ("sweep", "../sweep.html"),
        ("manifest of the snapshot", "snapshot/manifest.json"),
    ]


def test_equal_curves_still_have_an_axis():
    curves = {"restored": {"kl": [0.0, 0.0], "max_abs_diff": [0.0, 0.0]}}
    assert all("<svg" in panel for panel in plots.divergence(curves))


@pytest.mark.browser
@needs_browser
@pytest.mark.parametrize("width", [400, 1400])
def test_nothing_is_cut_off_at_any_width(browser, page_of_an_answer, width):
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page_of_an_answer.as_uri())
    try:
        assert browser.execute_script(WIDER) == []
        assert browser.execute_script(SCROLLED) == 0, "every table fits a phone"
        charts = "return [...document.querySelectorAll('figure svg')].map(s => s.getBoundingClientRect().width)"
        assert all(250 < w <= width for w in browser.execute_script(charts))
        browser.execute_script(
            "document.body.append(Object.assign(document.createElement('p'), {style: 'min-width: 2000px', textContent: 'x'}))"
        )
        assert len(browser.execute_script(WIDER)) == 1  # the twin
        browser.execute_script("document.querySelector('.rows td').style.minWidth = '2000px'")
        assert browser.execute_script(SCROLLED) == 1
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.browser
@needs_browser
def test_the_name_of_a_size_keeps_its_words_on_a_phone(browser, tmp_path):
    rows = [
        ["its length before, in tokens", "18"],
        ["bytes of keys and values", "18,432 of 36,864 bytes (50.0%) of the full cache"],
    ]
    panels = [run._rows(rows)]
    (tmp_path / "sizes.html").write_text(page("T", [section("Time and size", panels=panels)]))
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((tmp_path / "sizes.html").as_uri())
    name = "return document.querySelector('figure td').getBoundingClientRect().width"
    try:
        assert browser.execute_script(name) > 100 and browser.execute_script(WIDER) == []
        browser.execute_script("document.querySelector('.figures').className = ''")
        assert browser.execute_script(name) < 100  # the twin
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


@pytest.mark.browser
@needs_browser
def test_out_of_its_folder_a_page_has_no_links_that_lead_nowhere(browser, page_of_an_answer):
    """As MLflow shows it: in a sandboxed frame, from a blob: address."""
    links = "return [...document.querySelectorAll('a[href]')].map(a => a.getAttribute('href'))"
    browser.get(page_of_an_answer.as_uri())
    assert "result.json" in browser.execute_script(links)
    assert ALONE in browser.find_element("css selector", "body").text  # copied elsewhere it says so
    browser.get("about:blank")
    browser.execute_script(
        "const frame = document.body.appendChild(document.createElement('iframe'));"
        "frame.sandbox = 'allow-scripts';"
        "frame.src = URL.createObjectURL(new Blob([arguments[0]], {type: 'text/html'}))",
        page_of_an_answer.read_text(),
    )
    browser.switch_to.frame(0)
    said = shown(browser, ALONE, "result.json")
    assert said and not browser.execute_script(links)
    browser.switch_to.default_content()


@pytest.mark.browser
@needs_browser
def test_a_wide_table_is_cards_on_a_phone(browser, tmp_path):
    columns = ["case", *(f"what was measured {n}" for n in range(9)), "reason"]
    rows = [
        [f"case {n}", *range(9), "every log-probability is bit-equal to the run's own"]
        for n in (1, 2)
    ]
    (tmp_path / "wide.html").write_text(page("T", [section("Cases", columns=columns, rows=rows)]))
    size = {"width": 400, "height": 900, "deviceScaleFactor": 1, "mobile": True}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get((tmp_path / "wide.html").as_uri())
    try:
        assert browser.execute_script(SCROLLED) == 0 and browser.execute_script(WIDER) == []
        label = "return getComputedStyle(document.querySelectorAll('td')[4], '::before').content"
        assert "what was measured 3" in str(browser.execute_script(label))
        browser.execute_script("document.querySelector('.cards').classList.remove('cards')")
        assert browser.execute_script(SCROLLED) == 1  # the twin
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
