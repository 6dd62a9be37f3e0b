"""Long work behind the page: it says how far it is, can be stopped, and lets the others have the model."""

import threading
import time

import pytest
import torch

from harness import progress
from harness.errors import InputProblem
from harness.task.ui.session import JUDGING, MODEL, PageSession
from harness.task.ui.snapshots import SnapshotStore
from harness.task.ui.work import Counted, Stopped, Turns, Work

TEXT = "let k be 5 . the bird sang in the tree . the old man walked to the river . what is"


@pytest.fixture
def thought(session, tmp_path):
    opened = session("task=ui")
    return lambda: PageSession(
        opened, SnapshotStore(tmp_path / "snapshots", opened.cfg.save), tmp_path
    )


def ended(thought: PageSession) -> str:
    assert thought._thread is not None
    thought._thread.join(60)
    assert thought.running is None and thought.problem is None
    return thought.message


@pytest.mark.parametrize("breathes", [True, False])
def test_whoever_waits_has_a_turn_between_two_of_the_owners(breathes):
    turns, order = Turns(), []

    def other() -> None:
        with turns, turns:  # reentrant
            order.append("other")

    waiting = threading.Thread(target=other)
    with turns:
        waiting.start()
        while not turns._door.locked():
            time.sleep(0.001)
        with turns:
            if breathes:
                turns.breathe()
        order.append("owner")
    waiting.join(5)
    assert order == (["other", "owner"] if breathes else ["owner", "other"])
    with turns:
        turns.breathe()  # nobody waits: nothing happens


def test_work_says_how_far_it_is_and_ends_when_told(monkeypatch):
    work = Work("Read", 10)
    work.advance(4)
    assert str(work) == "Read 4 of 10 tokens."
    later = time.monotonic() + 8
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert str(work) == "Read 4 of 10 tokens, about 12 s left."
    work.stop()
    with pytest.raises(Stopped):
        work.advance()


def test_what_another_thread_counts_is_not_this_works(thought):
    work = Work("Judging")
    shown = Counted(work, Turns())
    shown.begin("float64 oracle", 8)
    shown.advance(2)
    assert str(work) == "Judging: float64 oracle, 25%."
    other = threading.Thread(target=shown.advance, args=(4,))
    other.start()
    other.join()
    assert str(work) == "Judging: float64 oracle, 25%."
    progress.show_on(shown)
    seen = []
    try:
        looking = threading.Thread(target=lambda: seen.append(progress._look.display))
        looking.start()
        looking.join()
        assert seen == [None] and progress._look.display is shown
    finally:
        progress.show_on(None)


def test_reading_that_is_stopped_leaves_everything_as_it_was(thought, monkeypatch):
    monkeypatch.setattr("harness.task.ui.session.PIECE", 4)
    one = thought()
    one.begin(TEXT)
    before, fed = one.branches, PageSession._fed
    reached = threading.Event()

    def slow(self, state, ids):
        reached.set()
        time.sleep(0.05)
        return fed(self, state, ids)

    monkeypatch.setattr(PageSession, "_fed", slow)
    for act in (one.begin, one.add):
        reached.clear()
        one.do(Work("Reading"), lambda work, act=act: f"Read {act(TEXT, work)}.")
        assert reached.wait(20)
        with pytest.raises(InputProblem, match="at work"):
            one.fork()
        one.stop()
        assert "nothing has changed" in ended(one) and one.branches is before
    monkeypatch.setattr(PageSession, "_fed", fed)
    one.do(
        Work("Reading"), lambda work: f"Read {one.begin(TEXT, work)}."
    )  # the twin: nobody stops it
    assert ended(one) == f"Read {one.branch.state.tokens}." and one.current == "B"


def test_another_session_steps_in_the_middle_of_a_verdict_and_neither_changes_the_other(thought):
    one, two, alone = thought(), thought(), thought()
    for each in (one, two, alone):
        each.begin(TEXT)
    expected = alone.verdict(4)
    tokens = [alone.step() for _ in range(3)]
    alone.loaded.__dict__.pop("_yardsticks", None)  # else it would be remembered
    inside, steps = threading.Event(), []
    original = Counted.advance

    def advance(self, by):
        if not steps:  # the first layer waits until the other one stands at the door
            inside.set()
            give_up = time.time() + 20
            while not MODEL._door.locked() and time.time() < give_up:
                time.sleep(0.001)
        original(self, by)

    Counted.advance = advance
    try:
        one.do(Work("Judging"), lambda work: one.verdict(4, work).verdict)
        assert inside.wait(30)
        for _ in range(3):
            steps.append(two.step())
            assert one.running is not None  # it was not waited for
    finally:
        Counted.advance = original
    assert ended(one) == expected.verdict
    made = one.answers.judged["A"][1]
    assert made.metrics == expected.metrics and made.noise == expected.noise
    assert steps == tokens and torch.equal(two.branch.state.logits, alone.branch.state.logits)
    for mine, theirs in zip(two.branch.state.layers, alone.branch.state.layers, strict=True):
        assert torch.equal(mine.received, theirs.received)  # no other thought's attention in it


def test_a_verdict_that_is_stopped_judges_nothing(thought):
    one = thought()
    one.begin(TEXT)
    with JUDGING:  # somebody else's is under way
        one.do(Work("Judging"), lambda work: one.verdict(4, work).verdict)
        one.stop()
    assert (
        "nothing has changed" in ended(one)
        and not one.answers.judged
        and JUDGING.acquire(timeout=1)
    )
    JUDGING.release()


def test_a_long_run_is_kept_while_it_goes_on(thought, monkeypatch):
    one, noted = thought(), []
    one.begin(TEXT)

    class Kept:
        problem = ""

        def note(self, current, branches, typed):
            noted.append((one.running is not None, branches[current][0].tokens))

    one._autosave = Kept()
    monkeypatch.setattr("harness.task.ui.branches.OFTEN", 0.0)
    one.start(3)
    ended(one)
    begun = one.branch.state.tokens - 3
    assert noted == [(True, begun + 1), (True, begun + 2), (True, begun + 3), (False, begun + 3)]
