"""Nothing is lost on the page: undo, autosave, a server that was killed, runs without a page."""

import contextlib
import shutil
import time
from dataclasses import replace

import pytest

from harness.errors import HarnessError, InputProblem
from harness.pipeline import step
from harness.task.ui import journal, picture, words
from harness.task.ui.desk import Desk
from harness.task.ui.journal import Journal, tabs
from harness.task.ui.shelf import Shelf
from harness.task.ui.tabs import NEW, Tabs

TEXT = "let k be 5 . the bird sang . what is"
TAB = "0" * 32


@pytest.fixture
def desk(session, tmp_path):
    """Desks over one shelf, as one server would make them."""

    def make(*overrides: str) -> Desk:
        opened = session(*overrides)
        return Desk(opened, Shelf(tmp_path / "shelf", opened.cfg.save), tmp_path)

    return make


@pytest.fixture
def kept(desk, tmp_path):
    """Desks that keep themselves as tab TAB."""

    def make(*overrides: str) -> Desk:
        made = desk(*overrides)
        made.keep(Journal(tmp_path / "shelf", TAB, made.cfg.save))
        return made

    return make


def ids(desk: Desk) -> list[int]:
    return desk.branch.state.token_ids[0].tolist()


def finished(desk: Desk) -> None:
    give_up = time.time() + 20
    while desk.running is not None:
        assert time.time() < give_up
        time.sleep(0.01)
    assert desk.problem is None


def test_after_a_kill_everything_is_there_and_goes_on_the_same(kept, tmp_path):
    one = kept("sampling=sample", "seed=3")
    one.begin(TEXT)
    one.step()
    one.fork()
    one.say(" k ? k is")
    one.prune("keep_last", 6)
    one.flush()
    assert words.greeting(one).endswith("as you left them.")
    two = kept("sampling=sample", "seed=3")  # the first is gone without a word
    assert words.greeting(two).endswith("What comes now can be undone.")
    assert list(two.branches) == ["A", "B"] and two.current == "B" and ids(two) == ids(one)
    assert two.branch.growth == one.branch.growth and two.branch.own == one.branch.own
    assert two.prompt == one.prompt == TEXT
    assert two.branch.state.kept_tokens == one.branch.state.kept_tokens
    assert [two.step() for _ in range(4)] == [one.step() for _ in range(4)]
    for place in (tmp_path / "shelf" / journal.FOLDER, tmp_path / "shelf" / journal.FOLDER / TAB):
        assert place.stat().st_mode & 0o777 == 0o700


def test_only_the_newest_state_of_a_branch_stays_on_the_disk(kept, tmp_path):
    one = kept()
    one.begin(TEXT)
    for _ in range(3):
        one.step()
        one.flush()
    folder = tmp_path / "shelf" / journal.FOLDER / TAB
    assert len([p for p in folder.iterdir() if p.is_dir()]) == 1


def test_a_damaged_branch_is_left_out_and_the_others_come_back(kept, tmp_path):
    one = kept()
    one.begin(TEXT)
    one.fork()
    one.step()
    one.flush()
    (damaged,) = (tmp_path / "shelf" / journal.FOLDER / TAB).glob("B-*")
    payload = next(damaged.glob("kv*"))
    payload.write_bytes(payload.read_bytes()[:-1] + b"x")
    two = kept()
    assert list(two.branches) == ["A"] and two.current == "A"
    assert len(two.aside) == 1 and "Branch B is damaged" in two.aside[0]
    two.step()
    two.flush()
    assert damaged.is_dir()


def test_a_branch_that_went_back_in_codes_comes_back_and_one_that_fails_its_proof_says_so(kept):
    one = kept()
    one.begin(TEXT)
    one.quantize("fp8_e4m3")
    one.back(10)
    one.fork()
    state = one.branch.state
    layers = tuple(replace(la, segments=(step.joined(la).segments[0],)) for la in state.layers)
    one._put(replace(one.branch, state=state.with_layers(layers, quantized=[])))
    one.flush()  # the last one's codes were opened, and nothing says so
    two = kept()
    assert list(two.branches) == ["A", "B"] and two.branches["B"].state.quantized
    assert "Branch C fails its proof" in two.aside[0] and "model" not in two.aside[0]


def test_a_branch_of_another_model_waits_and_what_is_new_is_kept(kept):
    one = kept()
    one.begin(TEXT)
    one.flush()
    assert one.aside == [] and one.unkept == ""
    two = kept("model=tiny_gpt2")
    assert not two.branches and "Branch A belongs to another model, tiny:" in two.aside[0]
    assert "another model" in words.greeting(two) and "model" not in words.greeting(one)
    two.begin(TEXT)
    two.flush()
    two.fork()
    two.flush()
    again = kept("model=tiny_gpt2")
    assert ids(again) == ids(two) and len(again.aside) == 1
    back = kept()  # and the other way round
    assert ids(back) == ids(one) and len(back.aside) == 1
    assert back.aside[0].startswith("Branches A, B: each belongs to another model, tiny_gpt2")


def test_an_autosave_that_cannot_be_read_is_put_aside_and_a_new_one_begun(kept, tmp_path):
    one = kept()
    one.begin(TEXT)
    one.flush()
    folder = tmp_path / "shelf" / journal.FOLDER / TAB
    for broken in ("{", '{"current": 1, "branches": []}'):
        (folder / "desk.json").write_text(broken)
        two = kept()
        assert not two.branches and "cannot be read" in words.greeting(two)
        (aside,) = folder.parent.glob(f"{TAB}.*")
        assert (aside / "desk.json").read_text() == broken and list(aside.glob("A-*"))
        two.begin(TEXT)
        two.flush()
        assert ids(kept()) == ids(two) and tabs(tmp_path / "shelf") == [TAB]
        shutil.rmtree(aside)
    (folder / "desk.json").write_text("{")  # while the page is open
    two.step()
    two.flush()
    assert ids(kept()) == ids(two) and two.unkept == ""


def test_a_disk_that_refuses_is_said_and_tried_again(kept, tmp_path):
    one = kept()
    one.begin(TEXT)
    one.flush()
    folder = tmp_path / "shelf" / journal.FOLDER / TAB
    away = folder.rename(tmp_path / "away")
    folder.write_text("in the way")
    one.step()
    one.flush()
    assert "The autosave failed" in one.unkept and "failed" in picture.problems(one.unkept)
    folder.unlink()
    away.rename(folder)
    one.flush()  # nothing new was done
    assert one.unkept == "" and ids(kept()) == ids(one)


def test_load_and_start_add_branches_and_undo_takes_acts_back(desk):
    one = desk()
    one.begin(TEXT)
    one.step()
    one.save("pause")
    before = ids(one)
    one.load("pause")
    assert list(one.branches) == ["A", "B"] and ids(one) == before
    one.begin("the bird sang .")
    assert one.current == "C"
    one.prune("keep_last", 2)
    one.close()
    assert list(one.branches) == ["A", "B"]
    one.undo()
    assert one.current == "C" and one.branch.state.kept_tokens == 2
    one.undo()
    assert one.branch.state.kept_tokens == one.branch.state.tokens
    for _ in range(4):
        one.undo()
    assert not one.branches
    with pytest.raises(InputProblem, match="nothing to undo"):
        one.undo()


def test_undo_says_what_it_took_back_and_what_did_nothing_is_no_act(desk):
    one = desk()
    one.begin(TEXT)
    one.fork()
    tokens, settings = one.branch.state.tokens, one.sampling
    one.start(16)
    finished(one)
    one.switch("A")
    one.step()
    one.save("pause")
    one.sample("sample", temperature=1.3)
    one.load("pause")
    one.close()
    for act in (
        lambda: one.prune("keep_last", one.branch.state.tokens),  # everything may stay
        lambda: one.prune("knorm", 10_000),
        lambda: one.say(""),
        lambda: one.quantize("kivi"),
        lambda: one.back(10_000),
        lambda: one.load("nowhere"),
    ):
        held = one.branches
        with contextlib.suppress(HarnessError):
            assert act() == 0
        assert one.branches is held
    one.save("again")  # what was refused is no act either once something else has changed
    held, told = one.branches, []
    while one.undoable:
        told.append((one.undo(), one.current))
        if told[-1][0].startswith("Load"):
            assert one.sampling.name == "sample"  # as it was before the snapshot's own
    assert told == [
        ("Put away (branch C is back)", "C"),
        ("Load (branch C is gone)", "A"),
        ("Step of 1 token on branch A", "A"),
        ("Run of 16 tokens on branch B", "B"),
        ("Branch here (branch B is gone)", "A"),
        ("Start (branch A is gone)", ""),
    ]
    assert one.sampling == settings
    again = []
    while one.redoable:
        again.append((one.redo(), one.current))
    assert again == [
        ("Start (branch A is back)", "A"),
        ("Branch here (branch B is back)", "B"),
        ("Run of 16 tokens on branch B", "B"),
        ("Step of 1 token on branch A", "A"),
        ("Load (branch C is back)", "C"),
        ("Put away (branch C is gone)", "B"),
    ]
    assert one.branches == held  # states are never changed, so these are the very same
    with pytest.raises(InputProblem, match="nothing to redo"):
        one.redo()
    assert one.undo() == told[0][0]
    one.switch("A")
    one.step()
    assert not one.redoable  # what was done since would be lost
    one.begin(TEXT)
    one.prune("keep_last", tokens - 1)  # the twin: it drops one
    assert one.undo() == "Prune on branch D" and one.redo() == "Prune on branch D"


def test_a_run_needs_no_page_and_nothing_comes_between(desk):
    one, two = desk(), desk()
    one.begin(TEXT)
    two.begin(TEXT)
    one.start(40)
    with pytest.raises(InputProblem, match="the model is at work"):
        one.undo()
    finished(one)
    assert one.said == "Wrote 40 of 40 tokens." and ids(one) == ids(two) + [
        two.step() for _ in range(40)
    ]
    one.undo()  # a run is one act
    assert one.branch.state.tokens == two.branch.state.tokens - 40
    one.start(10_000)
    one.stop()
    assert one.running is None and one.branch.state.tokens < 9_000


def test_a_long_text_read_in_pieces_is_the_same_thought(desk, monkeypatch):
    whole, pieces = desk(), desk()
    text = " ".join([TEXT] * 6)
    whole.begin(text)
    monkeypatch.setattr("harness.task.ui.desk.PIECE", 16)
    pieces.begin(text)
    assert ids(whole) == ids(pieces)
    assert [whole.step() for _ in range(8)] == [pieces.step() for _ in range(8)]
    assert pieces.verdict(4).verdict in ("exact", "equivalent")


def test_back_and_quantize(desk):
    one = desk()
    one.begin(TEXT)
    start = one.branch.state.tokens
    written = [one.step() for _ in range(6)]
    assert one.back(start + 2) == "B" and ids(one)[start:] == written[:2]
    assert [one.step() for _ in range(4)] == written[2:]
    codes, plain = one.quantize("int8")
    assert codes < plain / 2
    one.step()
    with pytest.raises(InputProblem):
        one.back(10_000)


def test_a_token_that_some_heads_dropped_is_told_apart(desk):
    one = desk()
    one.begin(TEXT)
    assert 'class="t thin"' not in picture.thought(one)
    one.prune("keydiff", 6, per_head=True)
    heads, every = one.heads()
    layers = sum(bool(layer.segments) for layer in one.branch.state.layers)
    thin = [
        (h, n) for h, n in zip(heads.tolist(), one.holders().tolist()) if n == layers and h < every
    ]
    page = picture.thought(one)
    assert thin and page.count(" thin") >= len(thin) and "KV heads" in page
    one.undo()
    assert "some layers" not in page  # which layers is no one's choice where each head has its own
    one.prune("keydiff", 6, per_head=False)
    page = picture.thought(one)
    assert " thin" not in page and "dropped by some layers" in page


def test_a_tab_gets_its_desk_back_and_another_one_does_not(desk, tmp_path, session):
    settings = session().cfg.save
    seats = Tabs(desk, tmp_path / "shelf", settings)
    tab, one = seats.seat("", "page 1")
    one.begin(TEXT)
    assert seats.seat(tab, "page 1 reloaded")[1] is one
    seats.leave("page 1")
    other, two = seats.seat("", "page 2")
    assert other != tab and not two.branches
    for session_ in ("page 1 reloaded", "page 2"):
        seats.leave(session_)
    assert seats.seat("", "page 3")[1] is one  # closed and opened again
    assert seats.seat(NEW, "page 4")[1] not in (one, two)
    assert seats.seat("../../etc", "page 5")[0] != "../../etc"
    seats.end()
    again = Tabs(desk, tmp_path / "shelf", settings)  # the server was started again
    assert tab in tabs(tmp_path / "shelf") and ids(again.seat(tab, "x")[1]) == ids(one)
