"""Nothing is lost on the page: autosave, a server that was killed, runs without a page."""

import contextlib
import shutil
import time
from dataclasses import replace

import pytest

from harness.errors import HarnessError, InputProblem
from harness.pipeline import step
from harness.task.ui import autosave, picture
from harness.task.ui.autosave import Autosave, tabs
from harness.task.ui.handlers import greeting
from harness.task.ui.session import PageSession
from harness.task.ui.snapshots import SnapshotStore
from harness.task.ui.tabs import NEW, Tabs

TEXT = "let k be 5 . the bird sang . what is"
TAB = "0" * 32


@pytest.fixture
def thought(session, tmp_path):
    """Desks over one shelf, as one server would make them."""

    def make(*overrides: str) -> PageSession:
        opened = session(*overrides)
        return PageSession(opened, SnapshotStore(tmp_path / "shelf", opened.cfg.save), tmp_path)

    return make


@pytest.fixture
def kept(thought, tmp_path):
    """Desks that keep themselves as tab TAB."""

    def make(*overrides: str) -> PageSession:
        made = thought(*overrides)
        made.keep(Autosave(tmp_path / "shelf", TAB, made.cfg.save))
        return made

    return make


def ids(thought: PageSession) -> list[int]:
    return thought.branch.state.token_ids[0].tolist()


def finished(thought: PageSession) -> None:
    give_up = time.time() + 20
    while thought.running is not None:
        assert time.time() < give_up
        time.sleep(0.01)
    assert thought.problem is None


def test_after_a_kill_everything_is_there_and_goes_on_the_same(kept, tmp_path):
    one = kept("sampling=sample", "seed=3")
    one.begin(TEXT)
    one.step()
    one.fork()
    one.add(" k ? k is")
    one.prune("keep_last", 6)
    one.flush()
    assert greeting(one).endswith("as you left them.")
    two = kept("sampling=sample", "seed=3")  # the first is gone without a word
    assert list(two.branches) == ["A", "B", "C"] and two.current == "C" and ids(two) == ids(one)
    assert two.branch.growth == one.branch.growth and two.branch.own == one.branch.own
    assert two.prompt == one.prompt == TEXT
    assert two.branch.state.kept_tokens == one.branch.state.kept_tokens
    assert [two.step() for _ in range(4)] == [one.step() for _ in range(4)]
    for place in (tmp_path / "shelf" / autosave.FOLDER, tmp_path / "shelf" / autosave.FOLDER / TAB):
        assert place.stat().st_mode & 0o777 == 0o700


def test_only_the_newest_state_of_a_branch_stays_on_the_disk(kept, tmp_path):
    one = kept()
    one.begin(TEXT)
    for _ in range(3):
        one.step()
        one.flush()
    folder = tmp_path / "shelf" / autosave.FOLDER / TAB
    assert len([p for p in folder.iterdir() if p.is_dir()]) == 1


def test_a_damaged_branch_is_left_out_and_the_others_come_back(kept, tmp_path):
    one = kept()
    one.begin(TEXT)
    one.fork()
    one.step()
    one.flush()
    (damaged,) = (tmp_path / "shelf" / autosave.FOLDER / TAB).glob("B-*")
    payload = next(damaged.glob("kv*"))
    payload.write_bytes(payload.read_bytes()[:-1] + b"x")
    two = kept()
    assert list(two.branches) == ["A"] and two.current == "A"
    assert len(two.skipped) == 1 and "Branch B is damaged" in two.skipped[0]
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
    assert list(two.branches) == ["A", "B", "C"] and two.branches["C"].state.quantized
    assert "Branch D fails its proof" in two.skipped[0] and "model" not in two.skipped[0]


def test_a_branch_of_another_model_waits_and_what_is_new_is_kept(kept):
    one = kept()
    one.begin(TEXT)
    one.flush()
    assert one.skipped == [] and one.unsaved == ""
    two = kept("model=tiny_gpt2")
    assert not two.branches and "Branch A belongs to another model (tiny)" in two.skipped[0]
    assert "another model" in greeting(two) and "model" not in greeting(one)
    two.begin(TEXT)
    two.flush()
    two.fork()
    two.flush()
    again = kept("model=tiny_gpt2")
    assert ids(again) == ids(two) and len(again.skipped) == 1
    back = kept()  # and the other way round
    assert ids(back) == ids(one) and len(back.skipped) == 2
    assert "belongs to another model (tiny_gpt2)" in back.skipped[1]


def test_an_autosave_that_cannot_be_read_is_put_aside_and_a_new_one_begun(kept, tmp_path):
    one = kept()
    one.begin(TEXT)
    one.flush()
    folder = tmp_path / "shelf" / autosave.FOLDER / TAB
    for broken in ("{", '{"current": 1, "branches": []}'):
        (folder / "desk.json").write_text(broken)
        two = kept()
        assert not two.branches and "cannot be read" in greeting(two)
        (moved,) = folder.parent.glob(f"{TAB}.*")
        assert (moved / "desk.json").read_text() == broken and list(moved.glob("A-*"))
        two.begin(TEXT)
        two.flush()
        assert ids(kept()) == ids(two) and tabs(tmp_path / "shelf") == [TAB]
        shutil.rmtree(moved)
    (folder / "desk.json").write_text("{")  # while the page is open
    two.step()
    two.flush()
    assert ids(kept()) == ids(two) and two.unsaved == ""


def test_a_disk_that_refuses_is_said_and_tried_again(kept, tmp_path):
    one = kept()
    one.begin(TEXT)
    one.flush()
    folder = tmp_path / "shelf" / autosave.FOLDER / TAB
    away = folder.rename(tmp_path / "away")
    folder.write_text("in the way")
    one.step()
    one.flush()
    assert "The autosave failed" in one.unsaved and "failed" in picture.problems(one.unsaved)
    folder.unlink()
    away.rename(folder)
    one.flush()  # nothing new was done
    assert one.unsaved == "" and ids(kept()) == ids(one)


def test_an_act_that_loses_tokens_makes_a_branch_and_one_that_does_nothing_none(thought):
    one = thought()
    one.begin(TEXT)
    one.step()
    one.save("pause")
    before = ids(one)
    one.load("pause")
    assert list(one.branches) == ["A", "B"] and ids(one) == before
    one.begin("the bird sang .")
    whole = one.branch.state
    assert one.current == "C" and one.prune("keep_last", 2) == whole.tokens - 2
    assert one.current == "D" and one.branches["C"].state is whole
    assert one.close() == "D" and one.current == "C"
    for act in (
        lambda: one.prune("keep_last", one.branch.state.tokens),  # everything may stay
        lambda: one.prune("knorm", 10_000),
        lambda: one.add(""),
        lambda: one.quantize("kivi"),
        lambda: one.back(10_000),
        lambda: one.load("nowhere"),
    ):
        held = one.branches
        with contextlib.suppress(HarnessError):
            assert act() == 0
        assert one.branches is held


def test_a_run_needs_no_page_and_nothing_comes_between(thought):
    one, two = thought(), thought()
    one.begin(TEXT)
    two.begin(TEXT)
    one.start(40)
    with pytest.raises(InputProblem, match="the model is at work"):
        one.close()
    finished(one)
    assert one.message == "Wrote 40 of 40 tokens." and ids(one) == ids(two) + [
        two.step() for _ in range(40)
    ]
    one.start(10_000)
    one.stop()
    assert one.running is None and one.branch.state.tokens < 9_000


def test_a_long_text_read_in_pieces_is_the_same_thought(thought, monkeypatch):
    whole, pieces = thought(), thought()
    text = " ".join([TEXT] * 6)
    whole.begin(text)
    monkeypatch.setattr("harness.task.ui.session.PIECE", 16)
    pieces.begin(text)
    assert ids(whole) == ids(pieces)
    assert [whole.step() for _ in range(8)] == [pieces.step() for _ in range(8)]
    assert pieces.verdict(4).verdict in ("exact", "equivalent")


def test_back_and_quantize(thought):
    one = thought()
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


def test_a_token_that_some_heads_dropped_is_told_apart(thought):
    one = thought()
    one.begin(TEXT)
    assert 'class="t thin"' not in picture.thought(one)
    one.prune("keydiff", 6, per_head=True)
    held, heads, every = one.holders()
    layers = sum(bool(layer.segments) for layer in one.branch.state.layers)
    thin = [h for h, n in zip(heads.tolist(), held.tolist()) if n == layers and h < every]
    page = picture.thought(one)
    assert thin and page.count(" thin") >= len(thin) and "KV heads" in page
    assert "some layers" not in page  # which layers is no one's choice where each head has its own
    one.switch("A")
    one.prune("keydiff", 6, per_head=False)
    page = picture.thought(one)
    assert " thin" not in page and "dropped by some layers" in page


def test_a_tab_gets_its_session_back_and_another_one_does_not(thought, tmp_path, session):
    settings = session().cfg.save
    seats = Tabs(thought, tmp_path / "shelf", settings)
    tab, one = seats.open("", "page 1")
    one.begin(TEXT)
    assert seats.open(tab, "page 1 reloaded")[1] is one
    seats.leave("page 1")
    other, two = seats.open("", "page 2")
    assert other != tab and not two.branches
    for session_ in ("page 1 reloaded", "page 2"):
        seats.leave(session_)
    assert seats.open("", "page 3")[1] is one  # closed and opened again
    assert seats.open(NEW, "page 4")[1] not in (one, two)
    assert seats.open("../../etc", "page 5")[0] != "../../etc"
    seats.end()
    again = Tabs(thought, tmp_path / "shelf", settings)  # the server was started again
    assert tab in tabs(tmp_path / "shelf") and ids(again.open(tab, "x")[1]) == ids(one)
