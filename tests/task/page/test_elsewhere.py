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


def rounding(thought: PageSession) -> float:
    """What 64 roundings of the largest logit, float32, may set two log-probabilities apart."""
    return 64 * torch.finfo(torch.float32).eps * float(thought.branch.state.logits.abs().max())


class Remembering(Engine):
    """An engine that reads ids with our own model, and may be told to say something else."""

    def __init__(self, thought: PageSession, wrong: bool = False):
        self.thought, self.wrong, self.asked = thought, wrong, []

    def encode(self, text):
        return [1]

    def evaluate(self, prompt, steps, composition=None):
        raise NotImplementedError

    def resume(self, prompt, steps):
        self.asked.append(prompt)
        said = self.thought.elsewhere._cached(
            self.thought.branch.state, "dynamic", steps, lambda: None
        )
        if self.wrong:
            said = replace(said, tokens=(said.tokens[0], (said.tokens[1] + 1) % 500, *said.tokens[2:]))  # fmt: skip
        return replace(said, reused=len(prompt) - 1)


@pytest.fixture
def thought(session, tmp_path):
    opened = session("task=ui")
    made = PageSession(opened, SnapshotStore(tmp_path / "shelf", opened.cfg.save), tmp_path)
    made.begin(TEXT)
    return made


@pytest.mark.parametrize("cache", ["manual", "dynamic", "view", "static"])
def test_another_cache_writes_the_same_tokens_as_a_branch_of_its_own(thought, cache):
    before = thought.branch.state.tokens
    made = thought.go_on(f"cache {cache}", 6)
    assert thought.current == "B" and thought.branch.state.tokens == before + 6
    assert (
        thought.branch.state.token_ids[0, before:].tolist() == list(made.tokens) == list(made.here)
    )
    assert made.parted is None and made.apart < rounding(thought) and made.read == 0
    assert list(thought.branch.own) == list(range(before, before + 6))
    thought.switch("A")
    assert [thought.step() for _ in range(6)] == list(made.tokens)  # what stepping writes
    assert "the same 6 tokens" in picture.went(thought)
    assert "branch B beside branch A" in picture.went(thought)  # whichever branch is looked at
    assert "From before" not in picture.went(thought)
    thought.switch("B")
    thought.step()
    assert "branch B has changed since" in picture.went(thought)


def test_an_engine_is_asked_the_branch_and_another_token_is_seen(thought):
    engine = Remembering(thought)
    thought.elsewhere.engine, thought.elsewhere.places = engine, ["engine mine"]
    ids = thought.branch.state.token_ids[0].tolist()
    made = thought.go_on("engine mine", 5)
    assert (
        engine.asked == [ids]
        and made.parted is None
        and made.read == 1
        and made.apart < rounding(thought)
    )
    thought.switch("A")
    engine.wrong = True  # the twin
    other = thought.go_on("engine mine", 5)
    assert other.parted == 1 and "another token at step 2" in picture.went(thought)
    thought.switch("A")
    thought.prune("keep_last", 4)
    thought.go_on("engine mine", 5)
    assert "read every token, though this branch holds fewer" in picture.went(thought)


def test_an_engine_that_takes_text_only_is_refused(thought):
    engine = Remembering(thought)
    engine.encode = lambda text: text
    thought.elsewhere.engine, thought.elsewhere.places = engine, ["engine mine"]
    with pytest.raises(InputProblem, match="text only"):
        thought.go_on("engine mine", 5)
    with pytest.raises(InputProblem, match="choose where"):
        thought.go_on("engine other", 5)
    assert thought.current == "A"


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
