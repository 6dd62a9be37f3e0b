"""Classes of a caller's own, judged: what is broken in them is told as theirs, and what is lossy on purpose as that."""

import copy
import io
from dataclasses import replace
from types import MappingProxyType

import pytest
import torch
from transformers import MambaConfig, MambaForCausalLM

import harness
from harness.cache import LibraryDecoder
from harness.errors import ConfigProblem
from harness.prune import Policy
from harness.quantize import Codes, Quantizer
from harness.save import Format

PROMPT = "let k be 5 . the bird sang in the tree . let m be red ."


@pytest.fixture(scope="module")
def model():
    return harness.load_model("tiny")


@pytest.fixture(scope="module")
def state(model):
    return harness.capture_text(model, PROMPT)


class Rows(Quantizer):
    """int8, a scale for every row."""

    turned = 0

    def encode(self, tensor, part):
        scale = (tensor.abs().amax(-1, keepdim=True) / 127).clamp_min(1e-9)
        codes = (tensor / scale).round().to(torch.int8).roll(self.turned, 2)
        return Codes(codes, scale, None, 8, tensor.shape[-1], (1, tensor.shape[-1]), tensor.dtype)


class Turned(Rows):
    """Its codes stand one token too late."""

    turned = 1


def test_codes_that_are_of_other_tokens_are_not_on_purpose(model, state) -> None:
    """Every cache continues them alike: only the tokens tell."""
    right, wrong = (harness.judge(model, harness.quantize_state(state, q)) for q in (Rows, Turned))
    assert right.itself["verdict"] in {"exact", "equivalent"}
    assert wrong.itself["verdict"] == "drifted"
    assert (right.good, right.broken) == (True, False) and "on purpose" in repr(right)
    assert (wrong.good, wrong.broken) == (False, True) and "on purpose" not in repr(wrong)
    assert "a fault of the quantizer, or too few levels" in str(wrong)
    assert wrong.diagnosis["evidence"] in str(wrong) and "fault" not in str(right)


def test_a_state_without_keys_and_values_has_no_fault_of_a_quantizer(model) -> None:
    """Of no segments all are codes."""
    sizes = {"hidden_size": 32, "state_size": 8, "num_hidden_layers": 2, "vocab_size": 1144}
    whole = MambaForCausalLM(MambaConfig(**sizes, pad_token_id=0, bos_token_id=1, eos_token_id=2))
    mine = harness.wrap(whole.eval(), model.tokenizer)
    state = harness.capture_text(mine, "let k be 5 .")
    first, *others = state.layers
    turned = MappingProxyType({name: 1.5 * tensor for name, tensor in first.recurrent.items()})
    damaged = replace(state, layers=(replace(first, recurrent=turned), *others))
    told = harness.judge(mine, damaged, steps=2)
    assert told.broken and told.diagnosis["cause"] == "recurrent state" and not first.segments
    assert "quantizer" not in str(told)


def test_a_judgement_has_one_word_for_a_test_to_ask(model, state) -> None:
    """`good` is of the state itself: neither pruning nor an honest quantizer makes it false, damage does."""
    damaged = copy.deepcopy(state)
    damaged.layers[1].key[0, 1, 4] += 0.5
    small = harness.prune_state(model, state, ratio=0.5)
    made = {what: harness.judge(model, one) for what, one in
            {"whole": state, "damaged": damaged, "pruned": small}.items()}  # fmt: skip
    assert {what: (j.good, j.broken) for what, j in made.items()} == {
        "whole": (True, False), "damaged": (False, True), "pruned": (True, False)}  # fmt: skip
    assert made["pruned"].verdict in ("drifted", "diverged")
    assert f"Verdict beside the full cache: {made['pruned'].verdict}." in str(made["pruned"])
    assert str(made["pruned"]).startswith("Good: the pruned state goes on as it was. Cross-check: ")
    with pytest.raises(TypeError, match="unhashable type: 'Judgement'"):
        hash(made["whole"])


class Copied(LibraryDecoder):
    """The library's cache, copied whole."""

    def working_copy(self, cache):
        return copy.deepcopy(cache)


class Rolled(LibraryDecoder):
    """The keys one token too late."""

    def working_copy(self, cache):
        other = copy.deepcopy(cache)
        for layer in other.layers:
            layer.keys = layer.keys.roll(1, 2)
        return other


def test_a_cache_of_ones_own_needs_no_name(model, state) -> None:
    assert harness.judge(model, state, cache=Copied).good
    wrong = harness.judge(model, state, cache=Rolled)
    assert wrong.broken and wrong.diagnosis["cause"] == "cache" and "cache=Rolled" in str(wrong)
    small = harness.prune_state(model, state, ratio=0.5)
    assert harness.judge(model, small, cache=Copied).good
    assert "not continued by cache=Rolled" in str(harness.judge(model, small, cache=Rolled))
    plain, own = (
        "".join(harness.resume(model, state, " what is k ?", steps=4, cache=c, at=at))
        for c, at in (("auto", 6), (Copied, 6))
    )
    assert plain == own
    with pytest.raises(ConfigProblem, match=r"a class below harness\.cache\.Decoder"):
        harness.resume(model, state, cache=Rows)


@pytest.mark.parametrize("group, name, base", [
    ("cache", "dynamic", Rolled), ("save", "gzip", Format), ("quantize", "int8", Turned), ("prune", "random", Policy),
])  # fmt: skip
def test_a_class_that_is_called_like_an_option_is_not_taken_for_it(
    model, state, tmp_path, group, name, base
) -> None:
    """Ours would have gone on in its place, and have been found exact."""
    kind = type(name, (base,), {})
    calls = {
        "cache": lambda: harness.judge(model, state, cache=kind),
        "save": lambda: harness.save_state(state, tmp_path / "s", format=kind),
        "quantize": lambda: harness.quantize_state(state, kind),
        "prune": lambda: harness.prune_state(model, state, kind, ratio=0.5),
    }
    with pytest.raises(ConfigProblem, match="the name of an option that there is"):
        calls[group]()


class Halves(Format):
    """Loses half of the digits of what is wide, unless `lossless`."""

    extension, lossless = ".half", False

    def write(self, sink, stream):
        kept = io.BytesIO()
        torch.save([(n, t if self.lossless else _narrow(t)) for n, t in stream], kept)
        sink.write(len(kept.getvalue()).to_bytes(8, "little") + kept.getvalue())

    def read(self, source, wanted):
        held = io.BytesIO(source.exactly(int.from_bytes(source.exactly(8), "little")))
        yield from (pair for pair in torch.load(held, weights_only=True) if pair[0] in wanted)


def _narrow(tensor):
    return tensor.half().float() if tensor.dtype == torch.float32 else tensor


def test_a_format_that_loses_digits_saves_nothing(model, state, tmp_path, monkeypatch) -> None:
    """Found where it is written, by the one who can mend it; the snapshot that stood there stays."""
    harness.save_state(state, tmp_path / "s")
    with pytest.raises(ConfigProblem, match=r"save=Halves: `read` does not give back") as told:
        harness.save_state(state, tmp_path / "s", format=Halves, overwrite=True)
    assert "does not match its digest" in str(told.value) and "backup" not in str(told.value)
    assert harness.load_state(tmp_path / "s", model).tokens == state.tokens
    monkeypatch.setattr(Halves, "lossless", True)
    harness.save_state(state, tmp_path / "s", format=Halves, overwrite=True)
    assert harness.judge(model, harness.load_state(tmp_path / "s", model, format=Halves)).good


@pytest.mark.parametrize("write, read, said", [
    (lambda sink, stream: sink.write(b"x"), lambda source: [], "whole stream of 6 tensors"),
    (lambda sink, stream: sink.write(next(iter(stream))[0].encode()), lambda source: [], "did not take layer.0.key"),
    (lambda sink, stream: [sink.write(b"x") for _ in stream], lambda source: [], "layer.0.segment.0.key is not given back"),
], ids=["none", "one", "all, and gives back none"])  # fmt: skip
def test_a_format_that_takes_or_gives_back_too_little_saves_nothing(
    state, tmp_path, write, read, said
) -> None:
    methods = {
        "write": lambda self, sink, stream: write(sink, stream) and None,
        "read": lambda self, source, wanted: iter(read(source)),
    }
    kind = type("Little", (Format,), {"extension": ".little", **methods})
    with pytest.raises(ConfigProblem, match="nothing was saved") as told:
        harness.save_state(state, tmp_path / "s", format=kind)
    assert said in str(told.value) and not [*tmp_path.iterdir()], told.value


def test_only_what_a_format_has_just_written_is_read_back(
    model, state, tmp_path, monkeypatch
) -> None:
    """Else a chat would read its whole past at each turn, and an older damage would be told as the format's."""
    monkeypatch.setattr(Halves, "lossless", True)
    harness.save_state(state, tmp_path / "1", format=Halves)
    run = harness.resume(model, harness.load_state(tmp_path / "1", model, format=Halves), steps=3)
    assert list(run)
    read: list[str] = []
    plain = Halves.read
    monkeypatch.setattr(Halves, "read", lambda self, source, wanted: read.extend(wanted) or plain(self, source, wanted))  # fmt: skip
    harness.save_state(run.state, tmp_path / "2", format=Halves)
    assert read and not any(name.endswith("segment.0.key") for name in read), read
    assert harness.load_state(tmp_path / "2", model, format=Halves).tokens == run.state.tokens


def test_an_encrypted_snapshot_of_a_format_of_ones_own_is_read_back_too(state, tmp_path) -> None:
    (tmp_path / "key").write_bytes(bytes(range(32)))
    with pytest.raises(ConfigProblem, match="does not give back"):
        harness.save_state(state, tmp_path / "s", format=Halves, encrypt=tmp_path / "key")


def test_what_is_chosen_from_no_numbers_is_warned_of_once(model, state) -> None:
    lost = copy.deepcopy(state)
    lost.layers[0].value[0, 0, 2, 3] = float("nan")
    with pytest.warns(UserWarning, match=r"not numbers \(NaN\)") as warned:
        list(harness.resume(model, lost, steps=4))
    assert len(warned) == 1 and warned[0].filename == __file__
    assert "1e+300" not in str(told := harness.judge(model, lost)) and told.broken
    assert "no numbers (NaN or infinite)" in told.diagnosis["evidence"]


def test_another_dtype_is_refused_without_a_warning_before(state, recwarn) -> None:
    """Which would speak of what comes of it, where nothing does."""
    narrow = harness.load_model("tiny", dtype="bfloat16")
    with pytest.raises(harness.UnsupportedModel, match="does not fit the loaded model"):
        harness.resume(narrow, state, steps=2)
    assert not [w for w in recwarn if issubclass(w.category, UserWarning)]


def test_a_shipped_model_that_is_nearly_named_is_offered() -> None:
    with pytest.raises(harness.InputProblem, match="Did you mean 'tiny'"):
        harness.load_model("tyny")
