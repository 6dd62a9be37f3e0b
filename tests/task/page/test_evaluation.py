"""An evaluation at the page: the figures of `task=evaluate`, beside whoever steps, stopped and gone on."""

import json
import time
from pathlib import Path
from urllib.request import urlopen

import pytest
from browsing import CONTRAST, OUTSIDE, needs_browser, shown
from handling import PROMPT, at, begun, press, said, started, write

from harness.errors import InputProblem
from harness.task.ui import picture
from harness.task.ui.evaluation import Evaluation
from harness.task.ui.session import PageSession
from harness.task.ui.snapshots import SnapshotStore


@pytest.fixture
def thought(session, place):
    opened = session("task=ui", f"runs_dir={place}")
    return PageSession(opened, SnapshotStore(place / "shelf", opened.cfg.save), place)


def ended(made: Evaluation) -> Evaluation:
    give_up = time.time() + 120
    while made.running:
        assert time.time() < give_up
        time.sleep(0.02)
    return made


def values(rows: list[dict]) -> dict:
    return {
        (r["prune"], r["quantize"], r["budget"], r["measure"]): (r["value"], r["kv_bytes"])
        for r in rows
    }


def test_the_figures_are_those_of_the_task(thought, harness, place):
    """Policies and quantizers, each head for itself or not; the whole state comes first."""
    chosen = (["knorm", "keydiff"], [0.25], ["int8"])
    made = thought.evaluation
    made.start(*chosen, "recall", samples=4, per_head=False)
    assert made.problem is None and ended(made).problem is None and made.done == 4
    done = harness(
        "task=evaluate", "prompt=recall", "prompt.samples=4", "steps=6", "task.prunes=[none,knorm,keydiff]",
        "task.budgets=[0.25]", "task.quantizers=[none,int8]", "task.asked=[after]", "prune=knorm", "prune.per_head=false",
    )  # fmt: skip
    assert done.code == 0, done.out
    table = json.loads((done.folders[0] / "evaluate.json").read_text())
    assert values(made.rows) == values(table)
    page = picture.scores(made)
    table = page[page.index("<table") :]
    assert (
        table.index("full cache") < table.index("keydiff 25%")
        and "By 4 prompts, smallest safe choice: " in page
    )
    assert (made.place / "report.html").is_file() and (made.place / "answers.jsonl").is_file()
    before = values(made.rows)
    made.start(*chosen, "recall", samples=4)  # the twin: each head for itself keeps others
    assert values(ended(made).rows) != before


def test_it_can_be_stopped_and_goes_on_and_nobody_waits_for_it(thought):
    thought.begin("let k be 5 . the bird sang . what is")
    made = thought.evaluation
    many = (["keydiff", "snapkv", "knorm"], [0.1, 0.25, 0.5], ["int8"], "recall")
    made.start(*many, samples=60)
    waited = []  # questions that were answered while a step waited for its turn
    for _ in range(5):
        before = made.done
        thought.step()
        waited.append(made.done - before)
    with pytest.raises(InputProblem, match="is running"):
        made.start(*many)
    while made.running and made.done < 2:
        time.sleep(0.01)
    before = made.done
    made.stop()
    assert made.done <= before + 1 and not made.running and made.stopped
    assert 2 <= made.done < 60 and "Stopped: " in picture.scores(made)
    assert sorted(waited)[2] <= 2, "an evaluation keeps the model to itself"
    (kept,) = Path(made.session.cfg.runs_dir).glob(".evaluate/*.jsonl")
    before = kept.read_text().split()
    assert len(before) >= 2
    made.start(*many, samples=60)
    while made.running and made.done < 60 and len(kept.read_text().split()) <= len(before):
        time.sleep(0.005)
    made.stop()
    after = kept.read_text().split() if kept.exists() else [*before, ""]
    assert after[: len(before)] == before and len(after) > len(before)  # nothing is asked twice


@pytest.mark.parametrize(
    "chosen, told",
    [
        (([], [0.5], [], "recall"), "nothing to evaluate"),
        ((["knorm"], [], [], "recall"), "needs a budget"),
        ((["knorm"], [0.5], [], "jsonl", " "), "path of your questions"),
        ((["knorm"], [0.5], [], "jsonl", "nowhere.jsonl"), "nowhere.jsonl"),
    ],
)
def test_what_cannot_be_asked_is_said(thought, chosen, told):
    with pytest.raises(InputProblem, match=told):
        thought.evaluation.start(*chosen)
    assert (
        not thought.evaluation.running and picture.scores(thought.evaluation) == picture.NO_SCORES
    )


def test_answers_that_are_all_wrong_are_no_success(thought, place):
    lines = [{"context": "the dog ran .", "question": "what is k ?", "expected": str(n)} for n in range(3)]  # fmt: skip
    (place / "mine.jsonl").write_text("\n".join(map(json.dumps, lines)))
    thought.evaluation.start(["random"], [0.5], [], "jsonl", "mine.jsonl")
    page = picture.scores(ended(thought.evaluation))
    assert "the full cache itself has 0 of 3 prompts right" in page and "safe" not in page


@pytest.mark.browser
@needs_browser
def test_the_page_evaluates_and_stops_and_remembers(browser, tmp_path):
    from handling import ended as closed

    process, address = started(tmp_path, f"text={PROMPT}", f"out={tmp_path / 'shelf'}")
    try:
        begun(browser, address)
        browser.execute_script("document.querySelector('#prunes input[name=random]').click()")
        write(browser, "samples", "3")
        press(browser, "evaluate")
        said(browser, "Asking 3 questions of 7 settings.")
        shown(
            browser,
            "By 3 prompts, smallest safe choice: keydiff 25%",
            "random 25%",
            "Kept in ",
        )
        report = browser.find_element("link text", "report.html").get_attribute("href")
        assert b"<title>" in urlopen(report).read()
        press(browser, "step")  # the page is free again
        said(browser, "Wrote")
        rows = browser.find_elements("css selector", "#scores tr th[scope=row]")
        assert [row.text for row in rows][:2] == ["full cache", "keydiff 25%"] and len(rows) >= 7
        browser.refresh()
        shown(browser, "Ready. One branch", "By 3 prompts, smallest safe choice: ")
        for width in (1400, 400):
            size = {"height": 1400, "deviceScaleFactor": 1, "mobile": False, "width": width}
            browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
            assert browser.execute_script(CONTRAST) == []
            assert browser.execute_script(OUTSIDE) == []
            assert browser.find_element("css selector", "#scores thead .kl").is_displayed()
            bars = browser.find_elements("css selector", "#scores .track")
            assert min(bar.size["width"] for bar in bars) > 300  # a bar that can be read
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        write(browser, "samples", "120")
        press(browser, "evaluate")
        shown(browser, "of 120 questions asked")
        press(browser, "enough")
        said(browser, "The evaluation ended after")
        shown(browser, "Stopped: ")
        assert at(browser, "evaluate").is_enabled() and not at(browser, "enough").is_enabled()
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
        assert closed(process, tmp_path / "console.txt") == 0
