"""The report of one run: conclusion first, plain names, one numbering, digests behind a fold, links."""

import re
import shlex

import pytest
from browsing import needs_browser, shown

from harness import machine
from harness.cli.arguments import literal_text
from harness.compare.conclusion import conclusion
from harness.config.literal import command
from harness.report import audit, audited, diagnosis, kept, plots, run
from harness.report.html import page, section
from harness.report.names import NAMES, plain
from harness.snapshot.result import METRICS, MUTATION, TIMES
from harness.snapshot.words import required
from harness.track import description
from harness.track.measured import metrics

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
    assert rows[plain("back")] == machine.seconds(0.28) and rows[plain("again")] == machine.seconds(
        2.9
    )
    assert plain("back") not in run._cost({**result, "waived": [{}]})["panels"][0], (
        "that proof failed"
    )


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
    named = re.search(r"step (\d+) chooses another token", done.result["reason"])
    assert named and int(named[1]) == row + 1
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
    note = description.note(done.result, "id", done.folders[0])
    assert f"| first_divergence, from 1 | {row + 1} | - |" in note.replace("&emsp;", "")
    named = {"what": "metrics.first_divergence", "recorded": row, "found": None}
    assert [audit._told(named, key) for key in named] == [
        "metrics.first_divergence",
        str(row + 1),
        "none",
    ]
    assert audit._told({"what": "size.tokens", "recorded": row}, "recorded") == str(row)
    assert audited.figures(done.result)["metrics.first_divergence"] == row + 1


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


def test_a_sentence_says_in_how_many_steps_another_token_is_most_likely():
    figures = {"max_abs_diff": 1.0, "first_divergence": 1, "top1_agreement": 0.9375}
    result = {"verdict": "diverged", "metrics": figures, "curves": {"restored": {"kl": [0.1] * 32}}}
    said = (
        "Another thought at step 2, in 2 of 32 steps: another token is most likely, logits are off"
    )
    assert conclusion(result).startswith(said)
    for odd in (
        {"top1_agreement": 0.953125},
        {"top1_agreement": None},
    ):  # rows of a batch; an older record
        told = conclusion({**result, "metrics": {**figures, **odd}})
        assert told.startswith(
            "Another thought at step 2: another token is most likely, logits are off"
        )


def test_a_sentence_names_the_near_tie_that_flipped():
    result = {"verdict": "equivalent", "metrics": {"max_abs_diff": 1e-6, "first_divergence": None}}
    assert "the tokens of the run" in conclusion(result) and "tie" not in conclusion(result)
    result["metrics"]["first_divergence"] = 12
    assert "but for a near tie at step 13, which rounding decides" in conclusion(result)


def test_what_was_required_is_said_and_what_would_let_it_through(harness):
    done = harness("quantize=int4", "steps=4")
    told = "equivalent or better (compare.require=equivalent); this is drifted: exit code 1. compare.require=drifted lets it through."
    page = (done.folders[0] / "report.html").read_text()
    assert done.code == 1 and f"required:     {told}" in done.out
    assert page.count(f"Required: {told}") == 2  # under the conclusion, and above the figures
    assert harness("quantize=int4", "steps=4", "compare.require=drifted").code == 0
    done = harness("steps=4")
    page = (done.folders[0] / "report.html").read_text()
    assert (
        page.count("Required: equivalent or better (compare.require=equivalent). Judged by: ") == 1
    )
    assert "exit code 1" not in page and "exit code 1" not in done.out
    unsound = {"verdict": "unsound", "required": "equivalent"}
    assert required(unsound).endswith("this is unsound: exit code 1.")


def test_a_recorded_command_can_be_typed_again():
    for text in (" what is k ?", "it's 5, {so}", "$HOME"):
        (carried,) = literal_text([f"text={text}"])
        assert shlex.split(command([carried]))[3:] == [f"text={text}"]
    assert command(["steps=8"]) == "python -m harness steps=8"
    assert shlex.split(command(["out=a b; c"]))[3:] == ["out=a b; c"]


def test_what_the_restored_run_chose_is_no_text_of_its_own_and_first_differs_at_a_word():
    said = {"prompt": "p", "continuation": " y is 60 . the monk", "restored": " y is 69 . the boy"}
    assert run._text(said)["marked"].endswith(
        "from the first other word on, the first of those marked above: &#x27;60 . the monk&#x27; against &#x27;69 . the boy&#x27;"
    )
    for same in ({**said, "restored": said["continuation"]}, {"continuation": "a"}):
        assert "first other" not in run._text(same)["marked"]
    forced = "what it chooses at each step, the tokens of the uninterrupted run being fed (teacher forcing)"
    shown = run._text(said)["marked"]
    assert f'restored, {forced}:  y is <mark class="first">69</mark>' in shown
    assert " . the <mark>monk</mark>" in shown and " . the <mark>boy</mark>" in shown
    assert "forcing" not in run._text({"continuation": "a"})["marked"]
    longer = {"continuation": "k is 5", "restored": "k is 5 . ok"}
    assert run._text(longer)["marked"].endswith(
        "from the first other word on, the first of those marked above: &#x27;5&#x27; against &#x27;5 . ok&#x27;"
    )


def test_of_a_long_text_both_ends_are_shown_and_what_some_heads_hold_is_told_apart():
    block = {
        "tokens": ["let", " k", "ee", " <b>"],
        "held": [4, 2, 0, 4],
        "heads": 4,
        "left_out": 230,
    }
    (made,) = kept.sections({"kept": block})
    assert (
        made["text"]
        == "2 of the 4 tokens shown are held by every head, 1 by none, 1 by some of the 4 KV heads of all layers."
    )
    strip = re.sub(' title="[^"]*"', "", made["svg"])
    assert (
        "let <u>k</u> <span" in strip
        and "230 tokens left out ...</span> <s>ee</s> &lt;b&gt;" in strip
    )
    assert kept.sections({"kept": {**block, "held": [4] * 4}}) == kept.sections({}) == []


def test_what_is_above_one_step_or_floor_is_clearly_darker_than_what_is_below():
    told = {"cause": "other", "evidence": "quantized", "picture": [[0.5 * 8, 5.0 * 8, 13.7 * 8]]}
    pale, five, more = (
        float(shade)
        for block in diagnosis.sections(told, coded=True)
        for shade in re.findall(r'fill-opacity="([\d.]+)"', block["panels"][0])
    )
    assert pale == diagnosis.PALE and 0.5 < five < more < 1
    assert diagnosis.strength(1.0) == pale and diagnosis.strength(1.1) >= 0.3
    assert diagnosis.strength(1e6) == pytest.approx(1) and diagnosis.strength(1e9) == 1


def measured(verdict: str, step: int | None = None) -> dict:
    figures = {
        "max_abs_diff": 0.5,
        "kl_max": 1e-3,
        "kl_mean": 1e-5,
        "mean_abs_diff": 0.1,
        "first_divergence": step,
    }
    curve = {"max_abs_diff": [0.1, 0.5], "kl": [1e-5, 1e-3]}
    return {"verdict": verdict, "metrics": figures, "noise_floor": {**figures, "max_abs_diff": 0.25},
            "oracle": {"restored": 0.5, "plain": 0.5}, "curves": {"restored": curve, "noise: a": curve}}  # fmt: skip


def test_figures_above_their_noise_floor_in_an_equivalent_run_are_accounted_for(tmp_path):
    said = run._comparison(tmp_path / "r.html", measured("equivalent"))[0]["text"]
    assert (
        "the least that rounding does: largest difference of a logit. The verdict rests on the error against float64: 0.5,"
        in said
    )
    assert "float64" not in run._comparison(tmp_path / "r.html", measured("drifted"))[0]["text"]
    below = measured("equivalent")
    below["noise_floor"]["max_abs_diff"] = 0.5
    assert "float64" not in run._comparison(tmp_path / "r.html", below)[0]["text"]
