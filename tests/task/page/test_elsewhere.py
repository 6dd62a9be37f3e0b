"""A branch continued in another cache or by another engine, beside how it goes on here."""

from dataclasses import replace
from importlib.util import find_spec

import pytest
import torch

from harness.engine.base import Engine
from harness.engine.llamacpp.weights import write
from harness.errors import InputProblem
from harness.task.ui import picture
from harness.task.ui.session import PageSession
from harness.task.ui.snapshots import SnapshotStore

TEXT = "let k be 5 . the bird sang . what is"


def rounding(desk: PageSession) -> float:
    """What 64 roundings of the largest logit, float32, may set two log-probabilities apart."""
    return 64 * torch.finfo(torch.float32).eps * float(desk.branch.state.logits.abs().max())


class Remembering(Engine):
    """An engine that reads ids with our own model, and may be told to say something else."""

    def __init__(self, desk: PageSession, wrong: bool = False):
        self.desk, self.wrong, self.asked = desk, wrong, []

    def encode(self, text):
        return [1]

    def evaluate(self, prompt, steps, composition=None):
        raise NotImplementedError

    def resume(self, prompt, steps):
        self.asked.append(prompt)
        said = self.desk.elsewhere._cached(self.desk.branch.state, "dynamic", steps, lambda: None)
        if self.wrong:
            said = replace(said, tokens=(said.tokens[0], (said.tokens[1] + 1) % 500, *said.tokens[2:]))  # fmt: skip
        return replace(said, reused=len(prompt) - 1)


@pytest.fixture
def desk(session, tmp_path):
    opened = session("task=ui")
    made = PageSession(opened, SnapshotStore(tmp_path / "shelf", opened.cfg.save), tmp_path)
    made.begin(TEXT)
    return made


@pytest.mark.parametrize("cache", ["manual", "dynamic", "view", "static"])
def test_another_cache_writes_the_same_tokens_as_a_branch_of_its_own(desk, cache):
    before = desk.branch.state.tokens
    made = desk.go_on(f"cache {cache}", 6)
    assert desk.current == "B" and desk.branch.state.tokens == before + 6
    assert desk.branch.state.token_ids[0, before:].tolist() == list(made.tokens) == list(made.here)
    assert made.parted is None and made.apart < rounding(desk) and made.read == 0
    assert list(desk.branch.own) == list(range(before, before + 6))
    desk.switch("A")
    assert [desk.step() for _ in range(6)] == list(made.tokens)  # what stepping writes
    assert "the same 6 tokens" in picture.went(desk)
    assert "branch B beside branch A" in picture.went(desk)  # whichever branch is looked at
    assert "From before" not in picture.went(desk)
    desk.switch("B")
    desk.step()
    assert "branch B has changed since" in picture.went(desk)


def test_an_engine_is_asked_the_branch_and_another_token_is_seen(desk):
    engine = Remembering(desk)
    desk.elsewhere.engine, desk.elsewhere.places = engine, ["engine mine"]
    ids = desk.branch.state.token_ids[0].tolist()
    made = desk.go_on("engine mine", 5)
    assert (
        engine.asked == [ids]
        and made.parted is None
        and made.read == 1
        and made.apart < rounding(desk)
    )
    desk.switch("A")
    engine.wrong = True  # the twin
    other = desk.go_on("engine mine", 5)
    assert other.parted == 1 and "another token at step 2" in picture.went(desk)
    desk.switch("A")
    desk.prune("keep_last", 4)
    desk.go_on("engine mine", 5)
    assert "read every token, though this branch holds fewer" in picture.went(desk)


def test_an_engine_that_takes_text_only_is_refused(desk):
    engine = Remembering(desk)
    engine.encode = lambda text: text
    desk.elsewhere.engine, desk.elsewhere.places = engine, ["engine mine"]
    with pytest.raises(InputProblem, match="text only"):
        desk.go_on("engine mine", 5)
    with pytest.raises(InputProblem, match="choose where"):
        desk.go_on("engine other", 5)
    assert desk.current == "A"


@pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs the extra llamacpp")
def test_llama_cpp_goes_on_as_our_model_does(session, tmp_path):
    """A real server with the very weights, in float32: the same thought there and here. Its module is
    imported by the server's process alone: beside others that Cython made it may refuse to load."""
    from harness.task.ui import engine_of, facts

    opened = session("task=ui", "engine=llamacpp", f"engine.model={tmp_path / 'm.gguf'}",
                     "engine.type_k=f32", "engine.type_v=f32", "engine.flash=off", "engine.threads=1")  # fmt: skip
    write(opened.loaded.model, tmp_path / "m.gguf")
    with engine_of(opened.cfg, opened.say) as engine:
        made = PageSession(
            opened, SnapshotStore(tmp_path / "shelf", opened.cfg.save), tmp_path, engine
        )
        assert "beside it xllamacpp" in facts(opened, engine) and "Transformers" in facts(
            opened, None
        )
        made.begin(TEXT)
        first = made.go_on("engine llamacpp", 12)
        assert first.parted is None and 0 < first.apart < rounding(made) and len(first.tokens) == 12
        second = made.go_on("engine llamacpp", 4)  # the branch it has just written
        assert second.parted is None and second.read is not None and second.read < 12
        made.switch("A")
        made.quantize("int4")  # the twin: here the codes' values are read, there the whole
        assert made.go_on("engine llamacpp", 12).apart > 10 * first.apart
