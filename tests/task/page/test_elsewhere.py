"""A branch continued in another cache or by another engine, beside how it goes on here."""

from dataclasses import replace

import pytest

from harness.engine.base import Engine
from harness.errors import InputProblem
from harness.task.ui import picture
from harness.task.ui.desk import Desk
from harness.task.ui.shelf import Shelf

TEXT = "let k be 5 . the bird sang . what is"


class Remembering(Engine):
    """An engine that reads ids with our own model, and may be told to say something else."""

    def __init__(self, desk: Desk, wrong: bool = False):
        self.desk, self.wrong, self.asked = desk, wrong, []

    def encode(self, text):
        return [1]

    def evaluate(self, prompt, steps, composition=None):
        raise NotImplementedError

    def resume(self, prompt, steps):
        self.asked.append(prompt)
        said = self.desk.elsewhere._cached(self.desk.branch.state, "dynamic", steps)
        if self.wrong:
            said = replace(said, tokens=(said.tokens[0], (said.tokens[1] + 1) % 500, *said.tokens[2:]))  # fmt: skip
        return replace(said, reused=len(prompt) - 1)


@pytest.fixture
def desk(session, tmp_path):
    opened = session("task=ui")
    made = Desk(opened, Shelf(tmp_path / "shelf", opened.cfg.save), tmp_path)
    made.begin(TEXT)
    return made


@pytest.mark.parametrize("cache", ["manual", "dynamic", "view", "static"])
def test_another_cache_writes_the_same_tokens_as_a_branch_of_its_own(desk, cache):
    before = desk.branch.state.tokens
    made = desk.go_on(f"cache {cache}", 6)
    assert desk.current == "B" and desk.branch.state.tokens == before + 6
    assert desk.branch.state.token_ids[0, before:].tolist() == list(made.tokens) == list(made.here)
    assert made.parted is None and made.apart < 1e-3 and made.read == 0
    assert list(desk.branch.own) == list(range(before, before + 6))
    desk.switch("A")
    assert [desk.step() for _ in range(6)] == list(made.tokens)  # what stepping writes
    assert "the same 6 tokens" in picture.elsewhere(desk, made)


def test_an_engine_is_asked_the_branch_and_another_token_is_seen(desk):
    engine = Remembering(desk)
    desk.elsewhere.engine, desk.elsewhere.places = engine, ["engine mine"]
    ids = desk.branch.state.token_ids[0].tolist()
    made = desk.go_on("engine mine", 5)
    assert engine.asked == [ids] and made.parted is None and made.read == 1 and made.apart < 1e-3
    desk.switch("A")
    engine.wrong = True  # the twin
    other = desk.go_on("engine mine", 5)
    assert other.parted == 1 and "another token at step 2" in picture.elsewhere(desk, other)
    desk.switch("A")
    desk.prune("keep_last", 4)
    pruned = desk.go_on("engine mine", 5)
    assert "read every token, though this branch holds fewer" in picture.elsewhere(desk, pruned)


def test_an_engine_that_takes_text_only_is_refused(desk):
    engine = Remembering(desk)
    engine.encode = lambda text: text
    desk.elsewhere.engine, desk.elsewhere.places = engine, ["engine mine"]
    with pytest.raises(InputProblem, match="text only"):
        desk.go_on("engine mine", 5)
    with pytest.raises(InputProblem, match="choose where"):
        desk.go_on("engine other", 5)
    assert desk.current == "A"
