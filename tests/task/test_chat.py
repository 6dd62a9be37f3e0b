"""The chat: what is resumed is what was never interrupted, and history is never re-tokenized."""

import json
import time

import pytest

from harness.errors import InputProblem
from harness.model import pace
from harness.model.oracle import Cost
from harness.pipeline import session
from harness.pipeline.dialogue import Dialogue
from harness.task import chat as task
from harness.task.chat import growth


@pytest.fixture
def chat(harness):
    def run(*overrides):
        done = harness("task=chat", "threads=1", "steps=8", *overrides)
        rows = json.loads((done.folders[0] / "chat.json").read_text()) if done.folders else []
        return done, rows

    return run


def test_every_turn_can_be_resumed_token_for_token(chat):
    done, rows = chat()
    assert done.code == 0, done.out
    assert done.result["verdict"] in ("exact", "equivalent") and done.result["soundness"]["sound"]
    assert done.result["cache"]["served"] == "manual"
    assert [r["restored_equal"] for r in rows] == [True] * (len(rows) - 1) + [None]
    assert f" {len(rows) - 1} of {len(rows) - 1} equal" in done.out, "nobody asks after the last"
    (verdict,) = [line for line in done.out.splitlines() if line.startswith("verdict:")]
    assert "expected answers are right" in verdict and "naive" not in verdict, "times are figures"
    assert all(r["naive_equal"] for r in rows)
    asked = [r["recalled"] for r in rows if r["expect"]]
    assert len(asked) == 6
    assert all(asked), [(r["ask"], r["answer"]) for r in rows]
    assert "<svg" in (done.folders[0] / "report.html").read_text()


def test_the_chat_goes_on_from_any_pause(chat):
    done, rows = chat()
    for turn in (1, 4, len(rows) - 1):
        place = done.folders[0] / rows[turn - 1]["snapshot"]
        again, rest = chat(f"snapshot={place}", "task.verify=false")
        assert [r["ids"] for r in rest] == [r["ids"] for r in rows[turn:]], again.out


def test_what_a_chat_makes_once_is_in_no_time_of_its_first_turn(chat, monkeypatch):
    """Half a second for the proof that every pause carries, and another for how fast this machine is."""
    floor, product = session.floor, pace.product
    monkeypatch.setattr(session, "floor", lambda *given: (time.sleep(0.5), floor(*given))[1])
    left = iter([0.5])
    monkeypatch.setattr(
        pace, "product", lambda *given: (time.sleep(next(left, 0)), product(*given))[1]
    )
    nothing = property(lambda pace: None, lambda pace, rate: None)  # was timed yet
    monkeypatch.setattr(pace.Pace, "rate", nothing, raising=False)
    turns = "task.turns=[{ask: 'let k be 5 .'},{ask: 'what is k ?'}]"
    done, (first, second) = chat(turns, "task.verify=false")
    assert next(left, None) is None, "it was asked once"
    assert first["cached_s"] < 0.4 and first["apart_s"] > 0.5 and second["apart_s"] is None
    assert "Turn 1 leaves out " in (done.folders[0] / "report.html").read_text()


def test_long_work_of_a_turn_is_announced(chat, monkeypatch):
    given = ("task.turns=[{ask: 'let k be 5 .'},{ask: 'what is k ?'}]", "steps=2")
    told = chat(*given)[0].out
    assert "about" not in told and "answers turn 2 token for token" in " ".join(told.split())
    alone = " ".join(chat("task.turns=[{ask: 'let k be 5 .'}]", "steps=2")[0].out.split())
    assert "1 turn; nothing was restored" in alone and "every turn token" not in alone
    monkeypatch.setattr(Cost, "worth_saying", property(lambda cost: True))
    done, rows = chat(*given)
    said = [line for line in done.out.splitlines() if ": about " in line]
    for row in rows:
        assert any(line.startswith(f"  reading {row['sent_tokens']} tokens") for line in said)
    assert sum("the same without a cache" in line for line in said) == len(rows), done.out


def test_nothing_is_left_after_the_last_turn(chat):
    done, rows = chat()
    again, _ = chat(f"snapshot={done.folders[0] / rows[-1]['snapshot']}")
    assert again.code == 2
    assert "after the last" in again.out


def test_sampled_chat_resumes_bit_for_bit(chat):
    done, rows = chat("sampling=sample", "sampling.temperature=1.4")
    assert done.code == 0, done.out
    assert all(r["restored_equal"] for r in rows[:-1])


def test_nothing_happens_for_the_first_time_in_the_first_turn(harness, monkeypatch):
    """Whatever the first forward and the first step take is over before the clock begins."""
    from harness.model.loaded import Loaded

    order, forward, ask = [], Loaded.forward, Dialogue.ask
    monkeypatch.setattr(
        Loaded, "forward", lambda *a, **k: (order.append("forward"), forward(*a, **k))[1]
    )
    monkeypatch.setattr(Dialogue, "ask", lambda *a, **k: (order.append("ask"), ask(*a, **k))[1])
    done = harness("task=chat", "task.turns=[{ask: 'what is k ?'}]", "task.verify=false", "steps=2")
    assert done.code == 0 and order.index("forward") < order.index("ask")


@pytest.mark.parametrize("turns", [12, pytest.param(40, marks=pytest.mark.slow)])
def test_many_turns_send_only_what_is_new(chat, turns):
    asked = ",".join(["{ask: 'what is k ?'}"] * turns)
    done, rows = chat(f"task.turns=[{asked}]")
    assert done.code == 0, done.out
    assert len(rows) == turns
    assert all(r["restored_equal"] for r in rows[:-1])
    sent = {r["sent_tokens"] for r in rows[1:]}
    assert len(sent) == 1  # the same question costs the same ids at every turn
    assert max(sent) < 16
    assert rows[-1]["total_tokens"] > 7 * turns
    assert turns < 40 or growth([r["naive_s"] for r in rows]) > 0


@pytest.fixture
def dialogue(session):
    def make(repair):
        opened = session("task=chat")
        return Dialogue(opened, opened.sampler(), repair)

    return make


def test_history_that_changed_is_named_and_repaired_by_the_true_ids(dialogue):
    healthy, damaged = dialogue(True), dialogue(True)
    for one in (healthy, damaged):
        one.ask("let k be 5 .", 8)
    damaged.messages[-1]["content"] = damaged.messages[-1]["content"] + " ok ."
    expected, found = healthy.ask("what is k ?", 8), damaged.ask("what is k ?", 8)
    assert expected.mismatch is None
    assert found.mismatch is not None
    assert f"token {found.mismatch.index + 1} was" in str(found.mismatch)
    assert found.ids == expected.ids  # the cache never saw the changed history


def test_history_that_changed_is_refused_where_that_is_declared(dialogue):
    one = dialogue(False)
    one.ask("let k be 5 .", 8)
    one.messages[0]["content"] = "let k be 6 ."
    with pytest.raises(InputProblem, match="on_mismatch=repair"):
        one.ask("what is k ?", 8)


def test_a_model_without_a_template_is_told_so(harness):
    done = harness("task=chat", "model=tiny_gpt2", "task.turns=[{ask: hello, hope: no}]")
    assert done.code == 2
    assert "expect" in done.out


@pytest.mark.parametrize(
    "answer, expected, right",
    [("ok .", "ok .", True), ("k is 5 .", "k is 5 .", True), ("k is 5.", "5", True), ("k is 15 .", "5", False)],
)  # fmt: skip
def test_an_answer_is_judged_as_that_of_a_prompt(answer, expected, right):
    """An expected answer of several words, or with its full stop, is one too; a part of another number is not."""
    assert task._recalled(answer, expected) is right


def test_the_demonstration_is_never_played_into_a_chat(harness, place) -> None:
    """Where nobody types and nothing is piped in: pytest's own stdin is `/dev/null`."""
    options = ("task=chat", "out=mine", "steps=4", "task.naive=false", "task.verify=false")
    assert harness(*options, "task.turns=[{ask: 'let k be 5 .'}]").code == 0
    held = {p: p.read_bytes() for p in (place / "mine").rglob("*") if p.is_file()}
    done = harness(*options)
    assert done.code == 2 and "out=mine is not empty" in done.out and "task.turns=" in done.out
    assert held == {p: p.read_bytes() for p in (place / "mine").rglob("*") if p.is_file()}
