"""The audit of a run that was refused: it compares what the refusal says, names a forged one, and claims no more than
it compared."""

import copy
import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from harness.report.audit import figures, page
from harness.snapshot import record
from harness.task.audit import refusal
from harness.task.audit.difference import compare, since

Result = dict[str, Any]
ELSEWHERE = {"threads": 77}


@pytest.fixture(scope="module")
def point(shell, tmp_path_factory) -> Path:
    runs = tmp_path_factory.mktemp("refused")
    shell("fault=layer_swap", "steps=4", f"runs_dir={runs}", "name=refused", "track=none")
    (folder,) = (runs / "refused").iterdir()
    return folder


@pytest.fixture
def result(point: Path) -> Result:
    return record.read(point / "result.json")


@pytest.fixture
def again(result: Result) -> Result:
    """The same refusal, in another place."""
    text = json.dumps(result).replace(str(result["folder"]), "/elsewhere/again/run")
    return {**json.loads(text), "date": "later", "stages": []}


def moved(result: Result) -> Result:
    """The same, by another number of threads, whose rounding is another."""
    other = copy.deepcopy(result)
    other["environment"] |= ELSEWHERE
    other["diagnosis"]["picture"] = [[v * 1.5 for v in r] for r in other["diagnosis"]["picture"]]
    for key in ("reason", "conclusion"):
        other[key] = json.loads(json.dumps(other[key]).replace("2.", "3."))
    return other


def named(one: Result, two: Result) -> list[str]:
    return [finding.what for finding in compare(one, two, since(one, two))]


FORGED = {
    "reason.code": lambda r: r["reason"].update(code="restore_refused"),
    "reason.args.differences.1": lambda r: r["reason"]["args"]["differences"].__setitem__(
        0, "none"
    ),
    "diagnosis.layer": lambda r: r["diagnosis"].update(layer=1),
    "diagnosis.cause": lambda r: r["diagnosis"].update(cause="rounding"),
    "diagnosis.evidence": lambda r: r["diagnosis"].update(
        evidence=re.sub(r"[\d.]+e\+\d+", "3.1", r["diagnosis"]["evidence"])
    ),
    "diagnosis.picture": lambda r: r["diagnosis"]["picture"][0].__setitem__(0, 0.5),
    "differences.1.found": lambda r: r["differences"][0].update(found="off by 0.0001"),
    "differences: how many": lambda r: r["differences"].pop(),
    "known.size.tokens": lambda r: r["known"]["size"].update(tokens=98),
    "known.elements.tokenizer": lambda r: [
        e.update(digest="0" * 64) for e in r["known"]["elements"] if e["name"] == "tokenizer"
    ],
    "environment": lambda r: r.pop("environment"),
    "exit_code": lambda r: r.update(exit_code=0),
}


@pytest.mark.parametrize("what", FORGED)
@pytest.mark.parametrize("rounded", [False, True])
def test_a_forged_refusal_is_named_where_it_ran_and_elsewhere(result, again, what, rounded) -> None:
    assert named(result, again) == [], "an honest one is the same, wherever it lies"
    twin = moved(again) if rounded else again
    assert named(result, twin) == [], "and where only rounding differs"
    FORGED[what](result)
    assert any(name.startswith(what) for name in named(result, twin)), named(result, twin)


def test_a_refusal_records_where_it_was(result, harness) -> None:
    """The block of a finished run, also of one that was refused before any model was loaded."""
    finished = harness("steps=2", "name=finished").result["environment"]
    assert result["environment"].keys() == finished.keys()
    assert result["environment"]["device"] == "cpu" and "environment" not in result["known"]


def test_words_and_counts_are_equal_and_measured_numbers_near() -> None:
    for one, two, same in (
        ("off by 20", "off by 21", True), ("off by 20.2", "off by 2000", False), ("layer 1 of 2", "layer 2 of 2", False),
        ("within 2.86e-05", "within 3e-05", True), ("a", "b", False), (1, 2, False), (1.0, 1.5, True), (1.0, -1.0, False),
    ):  # fmt: skip
        assert refusal.alike(one, two) is same, (one, two)
    text = "was at /a/b c/d and `runs/x/y/snapshot`, at 3/4 of it, 2.5 tokens."
    assert (
        refusal.told(text, {"folder": "/a/b c"})
        == "was at PLACE and `PLACE`, at 3/4 of it, 2.5 tokens."
    )


def test_its_audit_says_what_was_compared(point, result, harness, place) -> None:
    """No figure, no token and no bit that there was none of; the page has the copies that it was drawn from."""
    done = harness("task=audit", f"run={point}", "name=audit")
    assert done.code == 0, done.out
    said = " ".join(done.out.split())
    assert "The refusal of 1 run is reproduced: the same cause, element," in said
    assert "every figure" not in said.lower() and "bitwise" not in said
    (folder,) = (place / "runs" / "audit").iterdir()
    own = record.read(folder / "result.json")
    assert own["audit"]["bitwise"] is False
    assert own["conclusion"].startswith("The refusal of 1 run is reproduced: the same")
    text = (folder / "report.html").read_text("utf-8")
    assert "bitwise" not in text and "what it names of the refusal" in text
    assert ">first layer beyond the noise<" in text and "diagnosis." not in text
    for side in ("recorded", "again"):
        assert f'href="evidence-{point.name}-{side}-result.json"' in text
    forged = Path(shutil.copytree(point, place / point.name))
    result["diagnosis"]["layer"], sealed = 1, record.read(forged / record.NAME)
    result["folder"] = str(forged)
    record.seal(forged, result, sealed["config"], sealed["packages"])
    done = harness("task=audit", f"run={forged}", "name=forged")
    assert done.code == 1 and "diagnosis.layer" in done.out, done.out


def test_the_headline_says_how_many_figures_are_the_same(tmp_path) -> None:
    """And by what the others were held: not the noise floors alone."""
    entry = {"came": None, "figures": 1019, "same": 15, "tokens": 18}
    document = {"differences": [], "points": 1, "compared": "", "evidence": {"p": entry},
                "environment": {"p": [{"what": "threads", "decisive": True}]}}  # fmt: skip
    assert page.sentence(document) == (
        "What was compared of 1 run is reproduced: all 18 tokens and 15 of 1,019 figures are the same to the last "
        "digit, the others within their stated bounds."
    )
    entry["same"] = 1019
    assert page.sentence(document).endswith("all 1,019 figures are the same to the last digit.")
    both = {**document, "points": 3, "environment": {}, "compared": "bitwise",
            "evidence": {"p": entry, "q": {"came": "refused", "named": ["cause", "reason"]}, "r": {"came": "failed"}}}  # fmt: skip
    assert page.sentence(both) == (
        "Every figure and token of 1 run is reproduced, bitwise; the refusal of 1 run is reproduced: the same cause "
        "and reason; the failure of 1 run is reproduced: it fails again."
    )


def test_tokens_and_digests_have_a_row_of_their_own() -> None:
    one = {"text": {"token_ids": [1, 2, 3]}, "size": {"kv_bytes": 1234567},
           "elements": [{"name": "kv_cache", "digest": "a"}, {"name": "tokenizer", "digest": "b"}]}  # fmt: skip
    two = copy.deepcopy(one)
    two["text"]["token_ids"][1] = 9
    two["elements"][0]["digest"] = "c"
    _, rows = figures.rows(one, one, {})
    shown = [[c["text"] if isinstance(c, dict) else c for c in row] for row in rows]
    assert ["bytes of keys and values", "1,234,567", "the same"] in shown
    assert ["tokens of the uninterrupted run", "3", "the same"] in shown
    assert ["digests of the elements", "2", "the same"] in shown
    _, rows = figures.rows(one, two, {})
    assert rows[-2][2] == "1 is another, the first is number 2"
    assert rows[-1][2] == "1 is another: kv_cache"
