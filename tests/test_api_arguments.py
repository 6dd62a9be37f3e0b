"""What cannot be asked of the Python API, said in one sentence before anything is computed."""

import io
import re
from dataclasses import replace

import pytest
import torch

import harness
from harness import blame
from harness.config.option import schema_of
from harness.errors import InputProblem
from harness.pipeline import argument
from harness.present.conclusion import conclusion
from harness.prune import Policy
from harness.quantize import Quantizer, symmetric
from harness.save import Format

TURNS = [{"role": "user", "content": "let k be 5 ."}]


class Coarse(Quantizer):
    def encode(self, tensor, part):
        return symmetric(tensor, self.span(tensor), torch.int8)


class NoNumbers(Quantizer):
    def encode(self, tensor, part):
        codes = symmetric(tensor, (1, 32), torch.int8)
        return replace(codes, scale=codes.scale * float("nan"))


class WrongSpan(Quantizer):
    def encode(self, tensor, part):
        return replace(symmetric(tensor, (1, 32), torch.int8), span=(1, 16))


class Forgetful(Policy):
    def score(self, layer, rank, keep):
        return rank.double() * self.settings.alpha


@pytest.fixture(scope="module")
def model():
    return harness.load_model("tiny", dtype=torch.float32, device=torch.device("cpu"))


@pytest.fixture(scope="module")
def state(model):
    return harness.capture_text(model, "let k be 5 . the bird sang .")


MISTAKES = {
    "turns that no policy reads": (lambda m, s: harness.capture_text(m, turns=TURNS), 'policy="chat"'),
    "nothing": (lambda m, s: harness.capture_text(m, ""), "no text to capture"),
    "an empty row": (lambda m, s: harness.capture_text(m, ["a", ""]), "no text to capture"),
    "text and turns": (
        lambda m, s: harness.capture_text(m, "a", turns=TURNS, policy="chat"), "into a turn"),
    "no turns": (lambda m, s: harness.capture_text(m, turns=[], policy="chat"), "turns is empty"),
    "no step": (lambda m, s: harness.judge(m, s, steps=0), "1 or more"),
    "steps in a text": (lambda m, s: harness.resume(m, s, steps="3"), "steps is '3'"),
    "steps back": (lambda m, s: harness.resume(m, s, steps=-1), "0 or more"),
    "text None": (lambda m, s: harness.resume(m, s, None), "text is a NoneType: give a str"),
    "a word as seed": (lambda m, s: harness.resume(m, s, seed="x"), "seed is 'x'"),
    "a word as ratio": (lambda m, s: harness.prune_state(m, s, ratio="half"), "give a number"),
    "a number as a word": (
        lambda m, s: harness.prune_state(m, s, tokens=3, budget=5),
        "give a text, uniform or pyramid or adaptive",
    ),
    "two budgets": (lambda m, s: harness.prune_state(m, s, tokens=3, ratio=0.5), "two budgets"),
    "nowhere": (lambda m, s: harness.save_state(s, None), "out is None"),
    "from nowhere": (lambda m, s: harness.load_state(None), "source is None"),
    "no cache": (lambda m, s: harness.judge(m, s, cache=None), "cache is None"),
    "a class of a cache": (lambda m, s: harness.judge(m, s, cache=dict), r"a class below harness\.cache\.Decoder"),
    "no sampler": (lambda m, s: harness.capture_text(m, "a", sampling=None), "sampling is None"),
    "a key of a quantizer": (lambda m, s: harness.quantize_state(s, Coarse), "give group="),
    "a key of a policy": (lambda m, s: harness.prune_state(m, s, Forgetful, ratio=0.5), "give alpha="),
    "the state of another model": (
        lambda m, s: harness.prune_state(
            m, harness.capture_text(harness.load_model("tiny_gpt2"), "let k be"), "snapkv", ratio=0.5
        ),
        "of a model with other layers or heads",
    ),
    "scales of NaN": (lambda m, s: harness.quantize_state(s, NoNumbers), "NoNumbers.*not finite"),
    "another span": (lambda m, s: harness.quantize_state(s, WrongSpan), "WrongSpan.*has a scale of"),
}  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_sentence(model, state, mistake) -> None:
    call, said = MISTAKES[mistake]
    with pytest.raises(harness.HarnessError, match=said) as problem:
        call(model, state)
    assert "\n" not in str(problem.value)


def test_what_looks_like_these_mistakes_is_taken(model, state) -> None:
    assert harness.capture_text(model, turns=TURNS, policy="chat").tokens > 1
    assert harness.quantize_state(state, Coarse, group=32).quantized
    assert harness.prune_state(model, state, Forgetful, ratio=0.5, alpha=1.0).pruned
    assert harness.prune_state(model, state, tokens=3, ratio=None).kept_tokens == 3
    assert list(harness.resume(model, state, steps=0)) == []


@pytest.mark.parametrize("cut", [lambda t: t[:, :, :0], lambda t: t[:, :1], lambda t: t[0]])
def test_keys_of_a_cache_that_cannot_be_committed_are_told(model, state, cut, monkeypatch) -> None:
    resumed = harness.resume(model, state, steps=2, cache="cloned")
    list(resumed)
    decoder = resumed._decoder
    assert resumed.state.tokens > state.tokens
    right = decoder.new_kv
    monkeypatch.setattr(decoder, "new_kv", lambda i, n: tuple(cut(t) for t in right(i, n)))
    with pytest.raises(harness.HarnessError, match=r"cache=cloned: `new_kv` gave a key of"):
        _ = resumed.state


def test_an_option_from_outside_is_told_where_its_key_or_its_name_goes(
    tmp_path, monkeypatch
) -> None:
    (tmp_path / "prune").mkdir()
    for name in ("nan", "alpha"):
        text = f"# mine\n_target_: nowhere.Mine\nname: {name}\n"
        (tmp_path / "prune" / f"{name}.yaml").write_text(text)
    monkeypatch.setattr("sys.argv", ["harness", "--config-dir", str(tmp_path)])
    with pytest.raises(AttributeError) as lacking:
        schema_of("prune", "alpha")(name="alpha").decay  # noqa: B018
    assert blame.meant(lacking.value) == ". Add `decay:` to alpha.yaml"


def test_errors_that_are_no_numbers_are_the_worst_and_said_so() -> None:
    rows = [
        {"layer": 0, "head": 0, "key_error": 0.5, "value_error": 0.25},
        {"layer": 1, "head": 1, "key_error": None, "value_error": 0.1},
    ]
    coded = {"quantizer": "mine", "layers": rows, "kv_bytes": 1, "plain_bytes": 4}
    metrics = {"max_abs_diff": None, "first_divergence": 2}
    said = conclusion({"verdict": "diverged", "metrics": metrics, "quantization": coded})
    assert "its logits are not numbers" in said
    assert (
        "beyond any number of keys (layer 1, head 1), 25.00% of values (layer 0, head 0)." in said
    )


@pytest.mark.parametrize(
    "nbytes, off, said",
    [
        (4, 0.0, " quantize=mine changed nothing: its codes give back every key and every value"),
        (2, 0.0, " mine keeps 50% of the K/V bytes, and its codes give back every key"),
        (4, 0.5, " where it is largest: 50.00% of keys (layer 0, head 0), 0.00% of values"),
    ],
)
def test_codes_that_lose_nothing_are_told(nbytes, off, said) -> None:
    row = {"layer": 0, "head": 0, "key_error": off, "value_error": 0.0}
    row |= {"key_max_error": off, "value_max_error": 0.0}
    coded = {"quantizer": "mine", "layers": [row], "kv_bytes": nbytes, "plain_bytes": 4}
    metrics = {"max_abs_diff": 0.0, "first_divergence": None}
    assert said in conclusion({"verdict": "exact", "metrics": metrics, "quantization": coded})


@pytest.mark.parametrize("typed, meant", [("top_q", "top_p"), ("tempratur", "temperature")])
def test_a_misspelt_sampling_option_names_the_nearest_of_all(typed, meant) -> None:
    """Not the nearest of the few that the sampler in use reads, as `stop` is of `top_q`."""
    model = harness.load_model("tiny")
    state = harness.capture_text(model, "let k be 5 .")
    with pytest.raises(harness.HarnessError, match=f"mean 'sampling.{meant}'"):
        list(harness.resume(model, state, " what", steps=1, **{typed: 0.5}))


@pytest.mark.parametrize(
    "turns, said",
    [
        ([{"role": "user"}], "turn 1 is"),
        ([{"content": "hi"}], "turn 1 is"),
        ("hi", "turns is a str"),
        (["hi"], "turn 1 is 'hi'"),
        ({"role": "user", "content": "x"}, "turns is a dict"),
        ([{"role": "user", "content": 5}], "turn 1 is"),
        ([{"role": "usr", "content": "x"}], "Did you mean 'user'"),
    ],
)
def test_turns_that_are_none_are_told(turns, said) -> None:
    with pytest.raises(InputProblem, match=re.escape(said)):
        argument.texts_of("", turns, "chat")


def test_a_state_of_a_larger_vocabulary_and_too_many_steps_are_told_before_anything_runs() -> None:
    model = harness.load_model("tiny_gpt2")
    state = harness.capture_text(model, "let k be 5 .")
    with pytest.raises(InputProblem, match="positions"):
        harness.judge(model, state, steps=10**6)
    rows = model.model.get_input_embeddings().num_embeddings
    other = replace(state, token_ids=state.token_ids.clone().fill_(rows))
    with pytest.raises(InputProblem, match="Load the model it was captured from"):
        harness.judge(model, other)


def test_codes_are_not_coded_again_by_another_quantizer() -> None:
    state = harness.capture_text(harness.load_model("tiny"), "let k be 5 .")
    small = harness.quantize_state(state, "int8")
    with pytest.raises(InputProblem, match="codes of int8 already"):
        harness.quantize_state(small, "int4")
    assert harness.quantize_state(small, "int8").kv_bytes == small.kv_bytes


class Broken(Policy):
    """A policy with a slip of its author's."""

    def score(self, layer, rank, keep):
        return rank.nope


def test_what_a_class_of_ones_own_raises_is_told_with_its_line(model, state) -> None:
    with pytest.raises(
        harness.HarnessError, match=r"AttributeError.*prune=Broken, in .*py:\d+ \(score\)"
    ):
        harness.prune_state(model, state, Broken, ratio=0.5)


class Unread(Format):
    """A format whose author slipped where it is read, once or always."""

    extension, whole = ".mine", False

    def write(self, sink, stream):
        kept = io.BytesIO()
        torch.save(list(stream), kept)
        sink.write(len(kept.getvalue()).to_bytes(8, "little") + kept.getvalue())

    def read(self, source, wanted):
        if not self.whole:
            raise KeyError("oops")
        held = io.BytesIO(source.exactly(int.from_bytes(source.exactly(8), "little")))
        yield from (pair for pair in torch.load(held, weights_only=True) if pair[0] in wanted)


def test_a_slip_in_a_format_of_ones_own_is_no_damage(model, state, tmp_path, monkeypatch) -> None:
    """Found before the snapshot appears; where it was made since, at the next load."""
    slip = r"KeyError.*save=Unread, in .*\(read\)"
    with pytest.raises(harness.HarnessError, match=slip):
        harness.save_state(state, tmp_path / "s", format=Unread)
    assert not [*tmp_path.iterdir()]
    with monkeypatch.context() as mended:
        mended.setattr(Unread, "whole", True)
        harness.save_state(state, tmp_path / "s", format=Unread)
    with pytest.raises(harness.HarnessError, match=slip) as told:
        harness.load_state(tmp_path / "s", model, format=Unread)
    assert "backup" not in str(told.value) and isinstance(told.value.__cause__, KeyError)


def test_a_class_of_ours_that_is_passed_stays_ours(model, state) -> None:
    """Else what a hostile file makes our own format raise would be told as a slip of its author's."""
    from harness.prune.keydiff import KeyDiff

    assert harness.prune_state(model, state, KeyDiff, ratio=0.5).pruned
    assert not any(module.startswith("harness.") for module in blame.asked_for)


def test_what_is_no_text_is_named(model) -> None:
    with pytest.raises(harness.InputProblem, match="text is an int: give a str"):
        harness.capture_text(model, 5)  # type: ignore[arg-type]
    with pytest.raises(harness.InputProblem, match="text holds a NoneType"):
        harness.capture_text(model, ["a", None])  # type: ignore[list-item]


def test_one_stop_text_needs_no_list(model, state) -> None:
    said = "".join(harness.resume(model, state, " what is k ?", steps=8, stop="5"))
    assert said == "".join(harness.resume(model, state, " what is k ?", steps=8, stop=["5"]))
    assert said.rstrip().endswith("5")


def test_a_prompt_that_is_too_long_names_no_steps(model) -> None:
    with pytest.raises(harness.InputProblem, match=r"4096 positions\. Shorten the prompt\.$"):
        harness.capture_text(model, "the man said " * 3000)


def test_another_architecture_is_told_in_a_few_lines(state, tmp_path) -> None:
    harness.save_state(state, tmp_path / "s")
    with pytest.raises(harness.RestoreRefused) as told:
        harness.load_state(tmp_path / "s", harness.load_model("tiny_gpt2"))
    assert len(str(told.value).splitlines()) < 14 and "which explains the other" in str(told.value)
    assert f"and {len(told.value.differences) - 8} more" in str(told.value)


def _cut(state):
    return replace(state, token_ids=state.token_ids[:, :-1])


TORN = {
    "a layer less": (lambda s: replace(s, layers=s.layers[:-1]), "it has 1 layers, its kv_format describes 2"),
    "layers exchanged": (lambda s: replace(s, layers=s.layers[::-1]), "stand in the order 1, 0"),
    "an id less": (_cut, "token_ids are [1, 9], attention_mask [1, 10]"),
    "an id less, masked": (lambda s: replace(_cut(s), attention_mask=s.attention_mask[:, 1:]), "layer 0 has read 10 tokens, token_ids 9"),
    "a list": (
        lambda s: replace(s, layers=tuple(replace(x, segments=tuple(replace(g, key=[1]) for g in x.segments)) for x in s.layers)),
        "layer 0 has a list where a tensor belongs",
    ),
    "two logits": (lambda s: replace(s, logits=s.logits.repeat(2, 1)), "logits has 2 rows, token_ids 1"),
}  # fmt: skip


@pytest.mark.parametrize("torn", TORN)
def test_a_state_that_was_torn_by_hand_is_one_sentence_everywhere(model, tmp_path, torn) -> None:
    change, said = TORN[torn]
    state = change(harness.capture_text(model, "let k be 5 . the bird sang ."))
    for call in (
        lambda: harness.judge(model, state, steps=1),
        lambda: harness.resume(model, state),
        lambda: harness.save_state(state, tmp_path / "s"),
        lambda: harness.prune_state(model, state, "knorm", ratio=0.5),
        lambda: harness.quantize_state(state),
        lambda: harness.to_cache(state, model),
    ):
        with pytest.raises(harness.InputProblem, match=re.escape(said)):
            call()


def test_a_state_is_itself_and_says_what_was_done_to_it(model, state) -> None:
    assert state == state and len({state, replace(state)}) == 2
    small = harness.prune_state(model, state, "knorm", tokens=4)
    assert f"{state.tokens} tokens (4 kept)" in repr(small)
    coded = harness.quantize_state(state)
    assert "float32 as codes" in repr(coded) and "\n" not in repr(state.layers[0])
    with pytest.warns(UserWarning, match="prune first, then quantize"):
        assert not harness.prune_state(model, coded, "knorm", tokens=4).quantized


def test_the_library_s_names_are_answered(model, state, tmp_path) -> None:
    with pytest.raises(harness.ConfigProblem, match=r"How many .* steps=N says"):
        harness.resume(model, state, max_new_tokens=4)
    with pytest.raises(harness.InputProblem, match="Leave format out"):
        harness.load_state(tmp_path, model, format="safetensors")  # type: ignore[arg-type]


def test_a_misspelt_key_beside_a_class_of_ones_own_is_told(model, state) -> None:
    with pytest.raises(harness.ConfigProblem, match="'protec' is no key of prune"):
        harness.prune_state(model, state, Forgetful, ratio=0.5, protec=4)

    class Spoken(Forgetful):
        def score(self, layer, rank, keep):
            return rank.double() * self.settings.tokens_min

    assert harness.prune_state(model, state, Spoken, ratio=0.5, tokens_min=2.0).pruned
