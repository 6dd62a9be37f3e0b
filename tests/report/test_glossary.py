"""Whoever is handed a page finds on it what the words of its verdict mean, and its outcome in the tab of the browser."""

import re
from pathlib import Path

import pytest

from harness.report import badge, glossary, html
from harness.report.evaluate import intervals

README = Path(__file__).resolve().parents[2] / "README.md"


def test_the_readme_says_the_same_of_every_verdict() -> None:
    rows = re.findall(r"^\| `(\w+)` \| (.*) \|$", README.read_text("utf-8"), re.M)
    assert {word: said for word, said in rows if word in badge.KIND} == glossary.VERDICTS
    assert {*badge.KIND, *badge.SETTLED} <= {*glossary.MEANING}


@pytest.mark.parametrize("word", ["exact", "saved", "differs", "caught"])
def test_one_verdict_is_explained_in_a_line(word: str) -> None:
    page = html.page("t", [], word, "why")
    assert f'<p class="soft"><b>{word}</b>: ' in page and f"<title>{word} \u00b7 t</title>" in page
    assert "<details" not in page


def test_several_verdicts_are_explained_where_they_are_asked_for() -> None:
    rows = [
        [html.cell("exact", sign="=")],
        [html.cell("the exact words (right)", kind="good long")],
    ]
    blocks = [html.section("s", columns=["verdict"], rows=[*rows, [html.cell("failed", sign="x")]])]
    page = html.page("t", blocks, "2 drifted, 1 failed")
    assert "<summary>What drifted, failed, exact mean</summary>" in page
    assert page.count("<li><b>") == 3 and "<title>2 drifted, 1 failed \u00b7 t</title>" in page


def test_a_page_without_a_verdict_explains_none() -> None:
    page = html.page("t", [html.section("s", text="exact")], "", "an exact sentence")
    assert "<title>t</title>" in page and "<b>exact</b>" not in page and "<details" not in page
    pills = [{"text": "pruning: diverged", "kind": "soft", "sign": ""}]
    assert "<title>pruning: diverged \u00b7 t</title>" in html.page("t", [], "", "", pills=pills)


def test_a_picture_of_an_evaluation_names_its_measure_and_when_it_was_asked_only_where_that_varies() -> (
    None
):
    one, two = [{"asked": "after"}], [{"asked": "after"}, {"asked": "before"}]
    assert intervals.titled(one, "nll", "after") == "NLL of the expected text"
    assert intervals.titled(one, "contains", "after") == "Right answers"
    assert intervals.titled(two, "contains", "before") == "Right answers, asked before pruning"


def test_without_a_float64_run_a_page_explains_its_verdict_by_the_noise_floor() -> None:
    run = {"curves": {"restored": {}}, "oracle": {"restored": None, "plain": None}}
    told, asked = (html.page("t", [], "equivalent", "why", meant=glossary.of_result(r)) for r in (
        run, run | {"oracle": {"restored": 0.0, "plain": 1.0}},
    ))  # fmt: skip
    assert "compare.oracle=false" in told and "float64 at most twice" not in told
    assert "float64 at most twice" in asked and "compare.oracle=false" not in asked
    assert not glossary.of_result({"oracle": {}}), "nothing was compared"
