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
    (finding,) = derivation.sentence(forged)
    assert finding.what == "conclusion" and finding.found == said
    older = {**result, "conclusion": "It went well."}
    assert list(derivation.sentence(older)) == []  # its words are of another version


def test_a_reason_that_the_errors_do_not_give(result) -> None:
    assert result["reason"]["code"] == "oracle_error"
    errors = {**result["oracle"], "restored": result["oracle"]["restored"] / 1000}
    named = {finding.what for finding in derivation.sentence({**result, "oracle": errors})}
    assert named == {"oracle.ratio", "reason"}


def test_a_page_that_the_figures_do_not_give(recorded, result, tmp_path) -> None:
    """Its headline and its speeds: the rest of a page no other version draws again."""
    point = Path(shutil.copytree(recorded, tmp_path / "moved" / recorded.name))
    assert list(derivation.page(point, result)) == []
    page = (point / "report.html").read_text("utf-8")
    figure, link = f"{result['oracle']['ratio']:.2g} of rounding", '<p class="links">'
    for was, now in ((figure, "0.001 of rounding"), (link, f"{link}230 times faster")):
        assert was in page
        (point / "report.html").write_text(page.replace(was, now), "utf-8")
        assert [d.what for d in derivation.page(point, result)] == ["report.html"]


def test_a_run_that_was_refused_speaks_of_its_own_folder(harness, compose, tmp_path) -> None:
    run = harness("fault=layer_swap", "steps=4", "name=refused").folders[0]
    result = record.read(run / "result.json")
    assert result["verdict"] == "refused" and result["reason"]["code"] == "proof_failed"
    assert list(derivation.page(run, result)) == []
    entry = audit._kept(compose("track=none"), tmp_path, run, run)
    assert entry["kept"] is None and not entry["uncompared"]
    assert entry.pop("unsealed") == [".hydra/hydra.yaml", "harness.log"]
    assert report.unknown({"p": entry}, {}, set()) == list(report.ALWAYS)


@pytest.mark.parametrize("elsewhere", [False, True])
def test_the_steps_of_a_loop_are_said_again(elsewhere) -> None:
    steps = [{"step": 1, "token": 5, "probability": 0.9, "kept": 9}]
    rounded = [{**steps[0], "probability": 0.90000001}]
    assert bool(list(traces(steps, rounded, elsewhere))) is not elsewhere
    for forged in ([{**steps[0], "token": 6}], [{**steps[0], "kept": 8}], []):
        assert list(traces(forged, json.loads(json.dumps(steps)), elsewhere))
