"""What was asked is there after the server was started again, and says of which place it is."""

import json
import time

import pytest

from harness.task.ui import journal, picture, scores
from harness.task.ui.desk import Desk
from harness.task.ui.journal import Journal
from harness.task.ui.shelf import Shelf

TEXT, TAB = "let k be 5 . the bird sang . what is", "0" * 32


@pytest.fixture
def kept(session, place):
    """Desks that keep themselves as one tab, each as another server would open it."""

    def make(run: str, *overrides: str) -> Desk:
        opened = session("task=ui", f"runs_dir={place}", *overrides)
        (place / run).mkdir()
        made = Desk(opened, Shelf(place / "shelf", opened.cfg.save), place / run)
        made.keep(Journal(place / "shelf", TAB, opened.cfg.save))
        return made

    return make


def pictures(desk: Desk) -> list[str]:
    made = []
    for name in desk.branches:
        desk.switch(name)
        made.append(picture.judged(desk))
    return [*made, picture.compared(desk), picture.went(desk)]


@pytest.fixture
def asked(kept):
    """Branch A judged, B another one that came from elsewhere, both compared."""
    one = kept("first")
    one.begin(TEXT)
    one.verdict(2)
    one.go_on("cache view", 4)
    one.compare("A", "B")
    return one


def test_answers_come_back_after_a_restart_as_they_were(asked, kept):
    asked.flush()
    shown = pictures(asked)
    assert "From before" not in "".join(shown) and "at 12 tokens" in shown[0]
    two = kept("second")
    assert pictures(two) == shown
    two.switch("A")
    two.step()  # the twin: what has gone on says so
    again = pictures(two)
    assert "branch A has changed since" in again[0] and "compare again" in again[2]
    assert "From before" not in again[3]  # branch B is where it was


def test_an_answer_whose_branch_had_gone_on_says_so_after_a_restart(asked, kept):
    asked.switch("A")
    asked.step()
    asked.flush()
    shown = pictures(kept("second"))
    assert "branch A has changed since" in shown[0] and "compare again" in shown[2]
    assert "From before" not in shown[3] and shown == pictures(asked)


def test_answers_that_cannot_be_read_are_left_out_and_the_branches_stay(asked, kept, place):
    asked.flush()
    index = place / "shelf" / journal.FOLDER / TAB / journal.INDEX
    told = json.loads(index.read_text())
    told["branches"]["A"]["judged"]["made"]["verdict"] = "splendid"
    told["answers"]["compared"]["made"]["rows"] = [[1, "x", None, 0.5]]
    del told["answers"]["went"]["made"]["tokens"]
    told["answers"]["evaluation"] = {"rows": 3}
    index.write_text(json.dumps(told))
    two = kept("second")
    assert [*two.branches] == ["A", "B"] and two.aside == []
    assert "not judged yet" in pictures(two)[0] and pictures(two)[2:] == [
        picture.NO_PAIR,
        picture.NO_TRIP,
    ]
    assert scores.shown(two.evaluation) == scores.NOTHING


def test_an_answer_that_lacks_what_is_shown_is_left_out(asked, kept, place):
    asked.flush()
    index = place / "shelf" / journal.FOLDER / TAB / journal.INDEX
    told = json.loads(index.read_text())
    del told["branches"]["A"]["judged"]["made"]["metrics"]["kl_max"]
    rows = [{"measure": "contains"}]
    told["answers"]["evaluation"] = dict.fromkeys(("rows", "otherwise"), rows) | {"place": None}
    index.write_text(json.dumps(told))
    two = kept("second")
    assert "not judged yet" in pictures(two)[0] and scores.shown(two.evaluation) == scores.NOTHING


def test_an_evaluation_comes_back_with_its_report_and_says_which_model_was_asked(kept):
    one = kept("first")
    one.begin(TEXT)
    one.evaluation.start(["random"], [0.25], [], "recall", samples=3)
    give_up = time.time() + 60
    while one.evaluation.running:
        assert time.time() < give_up
        time.sleep(0.02)
    one.flush()
    shown = scores.shown(one.evaluation)
    assert "What was said otherwise" in shown and 'href="reports/first/evaluation-1-' in shown
    two = kept("second")
    assert scores.shown(two.evaluation) == shown
    other = kept("third", "model=tiny_gpt2")
    assert "From before: asked of another model, tiny" in scores.shown(other.evaluation)
    two.evaluation.start(["random"], [0.25], [], "recall", samples=3)
    two.evaluation.stop()
    two.flush()
    assert two.evaluation.kept is None or two.evaluation.kept["stopped"]
