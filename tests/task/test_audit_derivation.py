"""What a record says of its own figures: no leaf, sentence or page of it is beyond the audit."""

import copy
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.snapshot import record
from harness.task import audit
from harness.task.audit import derivation, report
from harness.task.audit import tolerance as elsewhere
from harness.task.audit.difference import MEASURED, compare, formed, traces

PLACES = {"snapshot.path", "options.track", "folder", "mlflow"}  # where it lies and is tracked


@pytest.fixture(scope="module")
def result(recorded) -> dict:
    return record.read(recorded / "result.json")


def leaves(tree: Any, path: tuple = ()) -> Iterator[tuple[tuple, Any]]:
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, (*path, key))
    elif isinstance(tree, list) and tree:
        yield from leaves(tree[-1], (*path, len(tree) - 1))
    else:
        yield path, tree


def edited(result: dict, path: tuple, value: Any) -> dict:
    forged = copy.deepcopy(result)
    node: Any = forged
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return forged


def test_no_leaf_of_a_result_is_beyond_the_audit(result) -> None:
    """Each of them changed alone: but for times, and for where it was made and lies, which `changes` and
    the seal's own folder tell."""
    unseen = []
    for path, value in leaves(result):
        other = not value if isinstance(value, bool) else f"{value} 7" if isinstance(value, str) else 777  # fmt: skip
        if path[0] not in ("environment", "time_s", "mlflow") and not [
            *formed(compare(edited(result, path, other), result, []))
        ]:
            unseen.append(".".join(map(str, path)))
    assert set(unseen) <= PLACES, unseen
    assert list(compare(result, result, [])) == []
    slower = {k: v and 2 * v for k, v in result["time_s"].items()}
    assert all(key.endswith(MEASURED) for key in ("loop.first_tenth_s", "chat.cached_growth"))
    assert list(compare(result, {**result, "time_s": slower}, [])) == []


def test_a_sentence_that_the_figures_do_not_give(result) -> None:
    said = result["conclusion"]
    assert list(derivation.sentence(result)) == []
    forged = {**result, "conclusion": said.replace("error ", "error 0.0")}
    assert forged["conclusion"] != said
    for environment in (
        result["environment"],
        {**result["environment"], "code": "of another time"},
    ):
        (finding,) = derivation.sentence({**forged, "environment": environment})
        assert finding.what == "conclusion" and finding.found == said
    older = {**result, "environment": {"code": "of another time"}, "conclusion": "It went well."}
    assert list(derivation.sentence(older)) == []  # its words are of another version
    assert list(derivation.sentence({**older, "environment": result["environment"]}))


def test_a_reason_that_the_errors_do_not_give(result) -> None:
    """Elsewhere, where other errors are honest, they are at least those of which the record speaks."""
    elsewhere = {**result, "environment": {**result["environment"], "code": "of another time"}}
    assert result["reason"].startswith("error against float64") and not list(
        derivation.sentence(elsewhere)
    )
    errors = {**result["oracle"], "restored": result["oracle"]["restored"] / 1000}
    named = {finding.what for finding in derivation.sentence({**elsewhere, "oracle": errors})}
    assert named == {"oracle.ratio", "reason"}


def test_a_page_that_the_figures_do_not_give(recorded, result, tmp_path) -> None:
    point = Path(shutil.copytree(recorded, tmp_path / "moved" / recorded.name))
    assert derivation.redrawable(point, result) and list(derivation.page(point, result)) == []
    page = (point / "report.html").read_text("utf-8")
    figure = f"{result['oracle']['ratio']:.2g} of rounding"
    link = '<p class="links">'
    for was, now in (
        (figure, "0.001 of rounding"),
        (link, f'{link}<a href="x">230 times faster</a>'),
    ):
        assert was in page
        (point / "report.html").write_text(page.replace(was, now), "utf-8")
        assert [d.what for d in derivation.page(point, result)] == ["report.html"]
    (point / "report.html").write_text(page, "utf-8")
    picture = point / "divergence.svg"
    picture.write_text(picture.read_text("utf-8").replace("</svg>", "<g/></svg>"), "utf-8")
    assert [d.what for d in derivation.page(point, result)] == ["divergence.svg"]


def test_a_page_of_another_version_is_said_not_to_be_told(recorded, result) -> None:
    other = {**result, "environment": {**result["environment"], "code": "of another time"}}
    assert (
        not derivation.redrawable(recorded, other) and list(derivation.page(recorded, other)) == []
    )
    said = report.unknown({"p": {"drawn": False}, "q": {"drawn": True}}, {}, set())
    assert [line for line in said if line.startswith("p: made by another version")]


def test_a_run_that_was_refused_by_this_very_code_is_compared_with_its_page(
    harness, compose, tmp_path
) -> None:
    """It speaks of its own folder, and an older one has no environment: neither makes it another version's."""
    run = harness("fault=layer_swap", "steps=4", "name=refused").folders[0]
    result = record.read(run / "result.json")
    assert result["verdict"] == "refused" and str(result["folder"]) in result["reason"]
    assert derivation.redrawable(run, result) and list(derivation.page(run, result)) == []
    text = (run / "report.html").read_text("utf-8")
    (run / "report.html").write_text(text.replace("restore refused", "restore allowed"), "utf-8")
    assert [d.what for d in derivation.page(run, result)] == ["report.html"]
    again = json.loads(json.dumps(result).replace(result["folder"], "elsewhere/run"))
    assert elsewhere.told(result, again) == {}
    other = {**again, "reason": "restore refused: its tokenizer is another"}
    assert list(elsewhere.told(result, other)) == ["the words of its reason"]
    entry = audit._kept(compose("track=none"), tmp_path, run, run)
    assert entry["kept"] is None and entry["drawn"] and not entry["uncompared"]
    assert entry.pop("unsealed") == [".hydra/hydra.yaml", "harness.log"]
    assert report.unknown({"p": entry}, {}, set()) == list(report.ALWAYS)
    older = {**result, "environment": None}
    assert derivation.ours(older) and not derivation.ours({**older, "code": "of another time"})


def test_the_growth_that_a_chat_speaks_of_is_the_one_it_measured() -> None:
    result = {"reason": "2 turns; time per turn x1.02 cached", "chat": {"cached_growth": 1.0199}}
    assert list(derivation.sentence(result)) == []
    (finding,) = derivation.sentence({**result, "reason": "2 turns; time per turn x0.52 cached"})
    assert finding.what == "reason"


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_steps_of_a_loop_are_said_again(elsewhere) -> None:
    steps = [{"step": 1, "token": 5, "probability": 0.9, "kept": 9}]
    rounded = [{**steps[0], "probability": 0.90000001}]
    assert bool(list(traces(steps, rounded, elsewhere))) is not elsewhere
    for forged in ([{**steps[0], "token": 6}], [{**steps[0], "kept": 8}], []):
        assert list(traces(forged, json.loads(json.dumps(steps)), elsewhere))
