"""A model that came without a tokenizer speaks in ids; a cache that chose by chance says how."""

import warnings
from dataclasses import replace
from functools import partial

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM
from transformers.cache_utils import Cache, DynamicLayer

import harness
from harness import variants
from harness.cache import LibraryDecoder


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    shape = {"vocab_size": 1200, "hidden_size": 64, "intermediate_size": 128}
    heads = {"num_hidden_layers": 3, "num_attention_heads": 4, "num_key_value_heads": 2}
    return LlamaForCausalLM(LlamaConfig(**shape, **heads)).eval()


@pytest.fixture(scope="module")
def loaded(model):
    return harness.wrap(model)


def test_without_a_tokenizer_a_text_is_its_ids(loaded, tmp_path) -> None:
    state = harness.capture_text(loaded, "5 17 300")
    assert state.token_ids.tolist() == [[5, 17, 300]]
    harness.save_state(state, tmp_path / "kept")
    resumed = harness.resume(loaded, harness.load_state(tmp_path / "kept", loaded), " 7 8", steps=5)
    said = "".join(resumed)
    assert [int(word) for word in said.split()] == resumed.ids
    assert harness.judge(loaded, tmp_path / "kept", steps=4).good, "and of a place"


@pytest.mark.parametrize(
    "text, word", [("5 hello", "'hello'"), ("1200", "'1200'"), ("3 -1", "'-1'")]
)
def test_a_word_that_is_no_id_is_named(loaded, text, word) -> None:
    with pytest.raises(harness.InputProblem, match=rf"{word} is no id: .* from 0 to 1199"):
        harness.capture_text(loaded, text)
    state = harness.capture_text(loaded, "5 17")
    with pytest.raises(harness.InputProblem, match=f"{word} is no id"):
        harness.resume(loaded, state, f" {text}")


def test_words_are_another_tokenizer(loaded, model) -> None:
    state = harness.capture_text(loaded, "5 17 300")
    assert harness.to_cache(state, model).get_seq_length() == 3
    assert harness.to_cache(state, harness.wrap(model)).get_seq_length() == 3
    words = harness.wrap(model, harness.load_model("tiny").tokenizer)
    with pytest.raises(harness.RestoreRefused, match="tokenizer"):
        harness.to_cache(state, words)


def sampled(model, ids, steps=6, **going):
    return model.generate(ids, do_sample=True, top_k=0, max_new_tokens=steps, return_dict_in_generate=True, **going)  # fmt: skip


@pytest.mark.parametrize("kind", ["state", "generator"])
def test_what_generate_drew_goes_on_with_its_own_random_numbers(loaded, model, kind) -> None:
    ids = torch.arange(40)[None] * 7
    torch.manual_seed(5)
    first = sampled(model, ids)
    rng = torch.get_rng_state()
    whole = sampled(model, first.sequences, past_key_values=first.past_key_values)
    torch.manual_seed(5)
    first = sampled(model, ids)
    if kind == "generator":
        given: torch.Tensor | torch.Generator = torch.Generator()
        given.set_state(rng)
    else:
        given = rng
    kept = first.past_key_values.get_seq_length()
    draws = {"sampling": "sample", "top_k": 0}
    state = harness.from_cache(loaded, first.past_key_values, first.sequences, rng=given, **draws)
    assert first.past_key_values.get_seq_length() == kept, "the last id was fed to a copy"
    assert state.token_ids.tolist() == first.sequences.tolist()
    assert harness.judge(loaded, state, steps=4).good
    resumed = harness.resume(loaded, state, steps=6)
    said = "".join(resumed)
    assert resumed.ids == whole.sequences[0, -6:].tolist(), "the sampler and its numbers are kept"
    assert resumed.text == said and said[0] == " ", "a text that goes on"
    other = harness.from_cache(loaded, first.past_key_values, first.sequences, seed=3, **draws)
    resumed = harness.resume(loaded, other, steps=6)
    list(resumed)
    assert resumed.ids != whole.sequences[0, -6:].tolist()


def test_rows_on_the_left_of_which_there_is_padding_are_whole_too(loaded, model) -> None:
    ids, mask = torch.arange(24).reshape(2, 12) * 3, torch.ones(2, 12, dtype=torch.int64)
    mask[0, :4] = 0
    made = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=5, return_dict_in_generate=True)  # fmt: skip
    known = torch.cat([mask, torch.ones(2, 5, dtype=torch.int64)], 1)
    state = harness.from_cache(loaded, made.past_key_values, made.sequences, known)
    resumed = harness.resume(loaded, state, steps=4)
    list(resumed)
    longer = model.generate(ids, attention_mask=mask, do_sample=False, max_new_tokens=9)
    assert resumed.rows == longer[:, -4:].tolist()


def test_texts_of_two_resumes_join(loaded) -> None:
    state = harness.capture_text(loaded, "5 17 300")
    first = harness.resume(loaded, state, steps=3)
    begun = "".join(first)
    second = harness.resume(loaded, first.state, steps=3)
    rest = "".join(second)
    assert [int(word) for word in (begun + rest).split()] == first.ids + second.ids


@pytest.mark.parametrize("rng", [3, torch.zeros(4), torch.zeros(16, dtype=torch.uint8)])
def test_what_is_no_generator_is_refused(loaded, model, rng) -> None:
    cache = model(torch.arange(9)[None], use_cache=True).past_key_values
    with pytest.raises(harness.InputProblem, match="no state of a generator"):
        harness.from_cache(loaded, cache, torch.arange(9)[None], rng=rng)


def filled(model, ids):
    return model(ids, use_cache=True).past_key_values


def test_a_damaged_cache_is_taken_where_that_is_asked_and_judged(loaded, model) -> None:
    ids = torch.arange(200)[None] * 2
    cache = filled(model, ids)
    cache.layers[1].values[:, 1, 160] *= 1.01
    with pytest.raises(harness.InputProblem, match=r"strict=False takes it .* harness\.judge says"):
        harness.from_cache(loaded, cache, ids)
    told = harness.judge(loaded, harness.from_cache(loaded, cache, ids, strict=False))
    found = told.diagnosis
    assert told.broken and (found["layer"], found["head"], found["token"]) == (1, 1, 160)
    cache = filled(model, ids)
    cache.layers[2].keys[:, 0, 16] = float("nan")
    with pytest.raises(
        harness.InputProblem, match="token 16 in row 0, layer 2, is NaN or infinite"
    ):
        harness.from_cache(loaded, cache, ids)


def test_layers_of_other_lengths_are_named(loaded, model) -> None:
    ids = torch.arange(200)[None] * 2
    cache = filled(model, ids)
    layer = cache.layers[1]
    layer.values = layer.values[:, :, :150]
    with pytest.raises(
        harness.InputProblem, match=r"layer 1 .* keys of 200 tokens and values of 150"
    ):
        harness.from_cache(loaded, cache, ids)
    layer.keys = layer.keys[:, :, :150]
    with pytest.raises(
        harness.InputProblem, match=r"layer 1 of the cache holds 150 tokens, others 200"
    ):
        harness.from_cache(loaded, cache, ids)


def test_a_judgement_is_no_truth_value(loaded) -> None:
    judged = harness.judge(loaded, harness.capture_text(loaded, "5 17 300"), steps=2)
    with pytest.raises(TypeError, match=r"`\.good`"):
        bool(judged)


def test_every_task_that_is_told_is_one() -> None:
    assert {*harness._TASKS} <= {*variants.options("task")}


@pytest.mark.parametrize(
    "name, told",
    [
        ("inspect", "task=inspect --help"),
        ("jugde", "Did you mean 'judge'"),
        ("zzz", "no attribute 'zzz'$"),
    ],
)
def test_a_name_that_is_not_here_is_told_where_it_is(name, told) -> None:
    with pytest.raises(AttributeError, match=told):
        getattr(harness, name)


class Mine(DynamicLayer):
    """As somebody makes one that counts, or logs."""


class Shorter(DynamicLayer):
    """Holds half of what it was given, and says it holds all."""

    def update(self, key_states, value_states, *args, **kwargs):
        both = super().update(key_states, value_states, *args, **kwargs)
        self.keys, self.values = (kept[:, :, ::2] for kept in (self.keys, self.values))
        return both

    def get_seq_length(self):
        return 2 * super().get_seq_length()


def test_a_layer_class_of_one_s_own_is_taken_where_it_holds_every_token(loaded, model) -> None:
    ids = torch.arange(20)[None]
    for kind in (Mine, Shorter):
        cache = Cache(layer_class_to_replicate=kind)
        model(ids, past_key_values=cache)
        if kind is Mine:
            state = harness.from_cache(loaded, cache, ids)
            assert harness.judge(loaded, state, steps=3).good
        else:
            with pytest.raises(
                harness.UnsupportedModel, match=r"a Shorter, .* DynamicCache\(pairs"
            ):
                harness.from_cache(loaded, cache, ids)


class Keyed(LibraryDecoder):
    def working_copy(self, cache):
        assert self.settings.backend == "mine"
        return cache


def test_a_cache_class_has_its_keys_from_a_partial(loaded) -> None:
    state = harness.capture_text(loaded, "5 17 300")
    assert harness.judge(loaded, state, steps=3, cache=partial(Keyed, backend="mine")).good
    assert len([*harness.resume(loaded, state, steps=3, cache=partial(Keyed, backend="mine"))]) == 3
    for call in (harness.judge, harness.resume):
        with pytest.raises(harness.ConfigProblem, match=r"functools\.partial\(Keyed, backend="):
            call(loaded, state, cache=Keyed)
    with pytest.raises(harness.ConfigProblem, match="settings by name"):
        harness.judge(loaded, state, cache=partial(Keyed, "mine"))


@pytest.mark.parametrize(
    "part, said",
    [
        ({"layers": ()}, "no layers"),
        ({"logits": None}, "logits is a NoneType"),
        ({"next_position": 40}, "next_position is a int"),
        ({"documents": {}}, "documents lack kv_format"),
        ({"rng": torch.zeros(7, dtype=torch.uint8)}, "generator state"),
        ({"token_ids": torch.zeros(1, 3)}, "token_ids is float32"),
    ],
)
def test_a_part_that_cannot_be_is_one_sentence_before_anything_is_written(
    loaded, tmp_path, part, said
) -> None:
    state = replace(harness.capture_text(loaded, "5 17 300"), **part)
    for call in (
        lambda: harness.judge(loaded, state),
        lambda: harness.resume(loaded, state),
        lambda: harness.to_cache(state, loaded),
        lambda: harness.save_state(state, tmp_path / "kept"),
    ):
        with pytest.raises(harness.InputProblem, match=f"does not hold together: .*{said}"):
            call()
    assert not (tmp_path / "kept").exists()


def test_words_on_one_side_alone_are_told_as_that(loaded, model, tmp_path) -> None:
    words = harness.wrap(model, harness.load_model("tiny").tokenizer)
    harness.save_state(harness.capture_text(loaded, "5 17 300"), tmp_path / "ids")
    harness.save_state(harness.capture_text(words, "let k be 5 ."), tmp_path / "words")
    with pytest.raises(harness.RestoreRefused, match=r"saved without a tokenizer: harness\.wrap"):
        harness.load_state(tmp_path / "ids", words)
    with pytest.raises(
        harness.RestoreRefused, match="saved with a tokenizer, and here there is none"
    ):
        harness.load_state(tmp_path / "words", loaded)


def test_a_model_with_more_layers_is_refused_before_a_step(loaded) -> None:
    config = LlamaConfig.from_dict({**loaded.model.config.to_dict(), "num_hidden_layers": 4})
    deeper = harness.wrap(LlamaForCausalLM(config).eval())
    state = harness.capture_text(loaded, "5 17 300")
    for call in (harness.judge, harness.resume, harness.prune_state):
        with pytest.raises(harness.UnsupportedModel, match="other layers or heads"):
            call(deeper, state)


def test_random_numbers_of_a_generate_go_on_with_its_50_tokens_or_are_warned_of(
    loaded, model
) -> None:
    ids = torch.arange(12)[None]
    cache, rng = filled(model, ids), torch.get_rng_state()
    with pytest.warns(UserWarning, match="draws from 50 of them"):
        harness.from_cache(loaded, cache, ids, rng=rng, sampling="sample")
    with pytest.warns(UserWarning, match='sampling="sample" is not'):
        harness.from_cache(loaded, cache, ids, rng=rng)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        harness.from_cache(loaded, cache, ids, rng=rng, sampling="sample", top_k=50)


def test_a_key_that_no_class_reads_is_refused(loaded) -> None:
    state = harness.capture_text(loaded, "5 17 300")
    with pytest.raises(harness.ConfigProblem, match="Keyed reads no `bits`"):
        harness.judge(loaded, state, cache=partial(Keyed, backend="mine", bits=4))


def test_the_command_line_goes_on_with_ids_too(request, loaded, place) -> None:
    command = request.getfixturevalue("harness")
    loaded.model.save_pretrained(place / "m")
    again = harness.wrap(LlamaForCausalLM.from_pretrained(place / "m").eval())
    harness.save_state(harness.capture_text(again, "5 17 300"), place / "kept")
    done = command("task=resume", "snapshot=kept", "text= 7 8", "steps=3")
    assert done.code == 0, done.out
    run = command("model=path", "model.path=m", "model.tokenizer=ids", "text=5 17 300", "steps=3")
    assert run.code == 0 and run.result["verdict"] in ("exact", "equivalent"), run.out
    shape = (
        "model=shape",
        "model.architecture=llama",
        "model.tokenizer=ids",
        "model.config.vocab_size=64",
    )
    small = [f"model.config.{key}" for key in ("hidden_size=32", "num_hidden_layers=2", "num_attention_heads=2",
             "num_key_value_heads=1", "intermediate_size=64")]  # fmt: skip
    built = command(*shape, *small, "text=5 17 63", "steps=3")
    assert built.code == 0, built.out
    beyond = command(*shape, *small, "text=5 64", "steps=3")
    assert beyond.code == 2 and "'64' is no id" in beyond.out, beyond.out
    lacking = command("model=path", "model.path=m", "text=5 17 300", "steps=3")
    assert lacking.code == 2 and "model.tokenizer=ids" in lacking.out, lacking.out
    with pytest.raises(harness.InputProblem, match=r"a text is its ids"):
        harness.load_model(place / "m")
