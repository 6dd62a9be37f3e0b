"""What a caller from Python passes that cannot go on, or goes on otherwise than they may think: one sentence."""

import copy
import pickle
import subprocess
import sys

import pytest
import torch
from transformers import AutoTokenizer, DynamicCache, EncoderDecoderCache

import harness
from harness.errors import ConfigProblem, InputProblem
from harness.model.build import SHIPPED
from harness.prune import Policy
from harness.quantize import Quantizer
from harness.save import Format

PROMPT = "let k be 5 . the bird sang ."


@pytest.fixture(scope="module")
def model():
    return harness.load_model("tiny")


@pytest.fixture(scope="module")
def state(model):
    return harness.capture_text(model, PROMPT)


def test_autocast_is_refused_wherever_the_model_would_run(model, state, tmp_path) -> None:
    harness.save_state(state, tmp_path / "s")
    begun = harness.resume(model, state, steps=2)
    calls = [
        lambda: harness.capture_text(model, PROMPT),
        lambda: harness.judge(model, state, steps=1),
        lambda: harness.resume(model, state),
        lambda: next(begun),
        lambda: harness.load_state(tmp_path / "s", model),
        lambda: harness.prune_state(model, state, ratio=0.5),
    ]
    with torch.autocast("cpu", dtype=torch.bfloat16):
        for call in calls:
            with pytest.raises(InputProblem, match=r"autocast is on.*bfloat16.*dtype=bfloat16"):
                call()
        with torch.autocast("cpu", enabled=False):
            assert next(begun)
    assert "".join(harness.resume(model, state, " what is k ?", steps=4)) == " k is 5 ."


class Every(Policy):
    def score(self, layer, rank, keep):
        return rank.double()


class Halved(Quantizer):
    def encode(self, spans, bits):
        return super().encode(spans, bits)


class Leveled(Format):
    extension = ".lvl"

    def write(self, sink, stream):
        sink.write(bytes([self.settings.level]))

    def read(self, source, wanted):
        yield from ()


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("Every", lambda m, s, place: harness.prune_state(m, s, object.__new__(Every), ratio=0.5)),
        ("Halved", lambda m, s, place: harness.quantize_state(s, object.__new__(Halved))),
        ("Leveled", lambda m, s, place: harness.save_state(s, place / "a", Leveled(None))),
        ("Leveled", lambda m, s, place: harness.load_state(place / "b", m, format=Leveled(None))),
    ],
)
def test_an_object_in_place_of_its_class_is_told(model, state, tmp_path, name, call) -> None:
    harness.save_state(state, tmp_path / "b")
    with pytest.raises(ConfigProblem, match=f"an object of {name}.*give the class itself") as told:
        call(model, state, tmp_path)
    assert " at 0x" not in str(told.value)


def test_a_format_that_reads_a_key_nobody_gave_names_it(state, tmp_path) -> None:
    with pytest.raises(ConfigProblem, match=r"Leveled reads `settings\.level`.*give level=\.\.\."):
        harness.save_state(state, tmp_path / "a", Leveled)
    assert not (tmp_path / "a").exists()


@pytest.mark.parametrize("take", [pickle.dumps, copy.copy, copy.deepcopy])
def test_a_continuation_is_no_thing_to_copy_but_its_state_is(model, state, take) -> None:
    resumed = harness.resume(model, state, " what is k ?", steps=4)
    next(resumed)
    with pytest.raises(TypeError, match=r"`state`.*harness\.resume"):
        take(resumed)
    rest = "".join(harness.resume(model, pickle.loads(pickle.dumps(resumed.state)), steps=3))
    assert resumed.text + rest == " k is 5 ."


def test_a_token_that_the_model_has_no_row_for_is_told_at_every_text(model, state) -> None:
    tokenizer = AutoTokenizer.from_pretrained(SHIPPED["tiny"])
    tokenizer.add_tokens(["<new>"])
    with pytest.warns(UserWarning, match="not the one that the state was captured from"):
        wrapped = harness.wrap(model.model, tokenizer)
        with pytest.raises(InputProblem, match=r"made token 1144, .* knows 1144 tokens"):
            harness.resume(wrapped, state, "<new>")
    with pytest.raises(InputProblem, match=r"made token 1144"):
        harness.capture_text(wrapped, "<new>")


def test_the_two_caches_of_an_encoder_and_a_decoder_are_told_apart(model) -> None:
    ids = torch.randint(3, 1000, (1, 9), generator=torch.Generator().manual_seed(0))
    both = EncoderDecoderCache(DynamicCache(), DynamicCache())
    with torch.no_grad():
        model.model(ids, past_key_values=both.self_attention_cache)
    with pytest.raises(InputProblem, match=r"an EncoderDecoderCache.*`self_attention_cache`"):
        harness.from_cache(model, both, ids)
    assert harness.from_cache(model, both.self_attention_cache, ids).tokens == 9


def test_the_line_of_a_sampler_says_what_of_it_is_another(model) -> None:
    kept = harness.capture_text(model, PROMPT, sampling="sample", temperature=0.8, seed=3)

    def said(**told):
        return harness.resume(model, kept, steps=1, **told).sampler.removeprefix("sampler: ")

    assert said() == "as saved (temperature 0.8)"
    assert said(seed=9) == "as saved (temperature 0.8), but seed 9"
    assert said(top_p=0.9, seed=9) == "as saved (temperature 0.8), but top_p 0.9, seed 9"
    same = {"sampling": "sample", "temperature": 0.8}
    assert said(**same) == "as saved (temperature 0.8)"
    assert said(**same, seed=9) == "as saved (temperature 0.8), but seed 9"
    assert said(sampling="greedy") == "greedy, told otherwise; saved with temperature 0.8"


def test_a_stage_of_a_chain_that_is_only_a_name_is_told_its_form(model, state) -> None:
    with pytest.raises(ConfigProblem, match=r"stage 0 is 'knorm': give its keys, \{name: "):
        harness.prune_state(model, state, "chain", stages=["knorm"], ratio=0.5)


def test_a_misspelt_argument_of_a_function_is_named_and_not_the_keys_of_its_options(
    model, state, tmp_path
) -> None:
    for call, meant in (
        (lambda: harness.save_state(state, tmp_path / "s", formt="gzip"), "format"),
        (lambda: harness.save_state(state, tmp_path / "s", overwritte=True), "overwrite"),
        (lambda: harness.resume(model, state, txt="x"), "text"),
        (lambda: harness.prune_state(model, state, ratoi=0.5), "prune.ratio"),
    ):
        with pytest.raises(ConfigProblem, match=rf"Did you mean '{meant}'\?"):
            call()
    with pytest.raises(ConfigProblem, match="There is: compact, sync"):
        harness.save_state(state, tmp_path / "s", bogus=1)


def test_a_quantizer_that_codes_nothing_of_a_short_state_says_so(state, recwarn) -> None:
    assert not harness.quantize_state(state, "kivi").quantized
    (told,) = [w for w in recwarn if "changed nothing" in str(w.message)]
    assert told.filename == __file__
    assert harness.quantize_state(state, "int8").quantized
    harness.quantize_state(state, "none")
    assert len([w for w in recwarn if "changed nothing" in str(w.message)]) == 1


def test_a_type_checker_finds_a_misspelt_name(tmp_path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import harness\nharness.load_modle('tiny')\nharness.load_model('tiny')\n")
    alone = ["--follow-imports=skip", "--cache-dir=/dev/null", "--ignore-missing-imports"]
    done = subprocess.run(
        [sys.executable, "-m", "mypy", *alone, str(file), harness.__file__], capture_output=True, text=True, cwd=tmp_path
    )  # fmt: skip
    assert done.stdout.count('has no attribute "load_modle"') == 1, done.stdout + done.stderr
    assert 'has no attribute "load_model"' not in done.stdout
