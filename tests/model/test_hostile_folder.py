"""A model's folder, or a GGUF file, made to harm: nothing of it runs, nobody is asked, little time and memory is spent,
and each is refused in one line."""

import io
import json
import shutil
import struct
import sys
import time
import zipfile

import pytest

from harness.errors import ConfigProblem, InputProblem
from harness.model.build import ASSETS, declared
from harness.model.loaded import load

EVIL = """
from pathlib import Path
Path({mark!r}).touch()
from transformers import LlamaConfig as Config, LlamaForCausalLM as Model, PreTrainedTokenizerFast as Tokenizer
"""


@pytest.fixture
def folder(place, monkeypatch):
    """The shipped model's folder as one's own, some of its files to be changed; who is asked says yes."""
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n" * 9))
    yield shutil.copytree(ASSETS / "tiny", place / "mine")
    assert sys.stdin.tell() == 0 and not (place / "mark").exists()


def edited(folder, name: str, **values) -> None:
    document = json.loads((folder / name).read_text()) if (folder / name).exists() else {}
    (folder / name).write_text(json.dumps(document | values))


def refused(compose, path) -> str:
    from transformers.models.llama import modeling_llama  # noqa: F401  which is not what is timed

    settings = compose("model=path", f"model.path={path}").model
    start = time.monotonic()
    with pytest.raises(InputProblem) as caught:
        load(settings, "float32", "cpu")
    assert time.monotonic() - start < 20
    said = str(caught.value)
    assert len(said.splitlines()) == 1 and "Traceback" not in said, said
    return said


def test_the_copy_itself_loads(compose, folder) -> None:
    load(compose("model=path", f"model.path={folder}").model, "float32", "cpu")


def test_code_of_a_config_is_not_run_and_nobody_is_asked(compose, folder, place) -> None:
    (folder / "evil.py").write_text(EVIL.format(mark=str(place / "mark")))
    named = {"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"}
    edited(folder, "config.json", model_type="evil", auto_map=named)
    assert "custom code" in refused(compose, folder)
    assert declared(compose("model=path", f"model.path={folder}").model) is None


def test_code_of_a_tokenizer_is_not_run_and_nobody_is_asked(compose, folder, place) -> None:
    (folder / "evil.py").write_text(EVIL.format(mark=str(place / "mark")))
    edited(
        folder, "tokenizer_config.json", tokenizer_class="Evil",
        auto_map={"AutoTokenizer": [None, "evil.Tokenizer"]},
    )  # fmt: skip
    assert "custom code" in refused(compose, folder)


def test_a_known_model_that_names_code_is_loaded_without_it(compose, folder, place) -> None:
    (folder / "evil.py").write_text(EVIL.format(mark=str(place / "mark")))
    edited(folder, "config.json", auto_map={"AutoConfig": "evil.Config", "AutoModelForCausalLM": "evil.Model"})  # fmt: skip
    load(compose("model=path", f"model.path={folder}").model, "float32", "cpu")


@pytest.mark.parametrize(
    "values, says",
    [
        ({"num_hidden_layers": 10_000_000}, "num_hidden_layers is 10,000,000"),
        ({"num_hidden_layers": 1_000}, "num_hidden_layers is 1,000, and the weights are "),
        ({"text_config": {"num_hidden_layers": 10**18}}, "num_hidden_layers is"),
        ({"num_labels": 10**9}, "num_labels is 1,000,000,000"),
        ({"hidden_size": 1 << 20, "intermediate_size": 1 << 20}, "parameters, and its weights are at most"),
        ({"vocab_size": 1 << 40}, "parameters, and its weights are at most"),
    ],
)  # fmt: skip
def test_a_config_that_asks_for_more_than_the_weights_is_refused(compose, folder, values, says) -> None:  # fmt: skip
    edited(folder, "config.json", **values)
    assert says in refused(compose, folder)


@pytest.mark.parametrize("name", ["config.json", "tokenizer_config.json", "generation_config.json"])
def test_lists_in_lists_are_refused(compose, folder, name) -> None:
    (folder / name).write_text('{"a": ' + "[" * 100_000 + "]" * 100_000 + "}")
    assert f"{name} cannot be read: it is nested too deeply." in refused(compose, folder)


def test_weights_outside_of_the_folder_are_not_read(compose, folder) -> None:
    (folder / "model.safetensors").rename(folder.parent / "model.safetensors")
    edited(folder, "model.safetensors.index.json", metadata={}, weight_map={"a": "../model.safetensors"})  # fmt: skip
    assert "in its own folder" in refused(compose, folder)


@pytest.mark.parametrize(
    "pickled",
    [
        b"cbuiltins\nbytearray\n\x8a\x05" + (8 << 30).to_bytes(5, "little") + b"\x85R.",
        b"cposix\nsystem\nX\x04\x00\x00\x00true\x85R.",
        b"}X\x01\x00\x00\x00actorch._utils\n_rebuild_tensor_v2\n((X\x07\x00\x00\x00storagectorch\nFloatStorage\n"
        b"X\x01\x00\x00\x000X\x03\x00\x00\x00cpuK\x01tQK\x00J\xff\xff\xff\x7f\x85K\x01\x85\x89}tRs.",
        b"]."
    ],
)  # fmt: skip
def test_pickled_weights_that_are_more_than_weights_are_refused(compose, folder, pickled) -> None:
    (folder / "model.safetensors").unlink()
    with zipfile.ZipFile(folder / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02" + pickled)
        archive.writestr("archive/data/0", bytes(4))
        archive.writestr("archive/version", "3\n")
    assert "is cut short or damaged: " in refused(compose, folder)


def test_a_shape_is_bounded_too(compose) -> None:
    """No weights bound it; a record may ask for it."""
    settings = compose(
        "model=shape", "model.architecture=llama", "model.config={num_hidden_layers: 10000000}"
    ).model
    with pytest.raises((ConfigProblem, InputProblem), match="10,000,000"):
        load(settings, "float32", "cpu")
    assert declared(settings) is None


def text(value: str | bytes) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(data)) + data


def gguf(values: list[bytes], tensors: list[bytes] = (), version: int = 3, many=(0, 0)) -> bytes:
    """many: tensors and values that it claims, where that is not as many as it has."""
    claimed = (many[0] or len(tensors), many[1] or len(values))
    return b"GGUF" + struct.pack("<IQQ", version, *claimed) + b"".join([*values, *tensors])


def word(key: str | bytes, value: str) -> bytes:
    return text(key) + struct.pack("<I", 8) + text(value)


def number(key: str, value: int) -> bytes:
    return text(key) + struct.pack("<IQ", 10, value)


def listed(key: str, kind: int, count: int, raw: bytes = b"") -> bytes:
    return text(key) + struct.pack("<IIQ", 9, kind, count) + raw


def tensor(name: str, shape: list[int], kind: int = 0, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<I{len(shape)}Q", len(shape), *shape)
    return text(name) + sizes + struct.pack("<IQ", kind, offset)


LLAMA = word("general.architecture", "llama")
FILES = {
    "only its name": b"GGUF",
    "zeros": b"GGUF" + bytes(64),
    "a model of default size": gguf([LLAMA]),
    "another version": gguf([LLAMA], version=9),
    "values without end": gguf([LLAMA], many=(0, 1 << 60)),
    "tensors without end": gguf([LLAMA], many=(1 << 60, 0)),
    "a list without end": gguf([LLAMA, listed("a", 0, 1 << 60)]),
    "words without end": gguf([LLAMA, listed("a", 8, 1 << 60)]),
    "lists in a list": gguf([LLAMA, listed("a", 9, 1 << 20, struct.pack("<IQ", 9, 1) * 1000)]),
    "a word without end": gguf([LLAMA, text("a") + struct.pack("<IQ", 8, 1 << 60)]),
    "a value of no type": gguf([LLAMA, text("a") + struct.pack("<I", 77)]),
    "a name that is no text": gguf([word(b"\xff\xfe", "x"), LLAMA]),
    "an architecture that is not known": gguf([word("general.architecture", "evil")]),
    "an architecture that is a number": gguf([number("general.architecture", 7)]),
    "a tensor of no type": gguf([LLAMA], [tensor("a", [4], 99), bytes(64)], many=(1, 0)),
    "a tensor that is not there": gguf([LLAMA], [tensor("a", [1 << 40])]),
    "a tensor of many dimensions": gguf([LLAMA], [text("a") + struct.pack("<I", 1 << 31)]),
    "ten million layers": gguf([LLAMA, number("llama.block_count", 10_000_000)]),
    "a wide model": gguf([LLAMA, number("llama.embedding_length", 1 << 30)]),
    "a head of none": gguf([LLAMA, number("llama.attention.head_count", 0)]),
}  # fmt: skip


@pytest.mark.parametrize("raw", FILES.values(), ids=FILES)
def test_a_gguf_that_claims_more_is_refused(compose, folder, raw) -> None:
    path = folder.parent / "m.gguf"
    path.write_bytes(raw)
    assert len(raw) < 1 << 16
    said = refused(compose, path)
    assert said.startswith((f"{path} cannot be read as a model: ", f"{path}: ", "model=m.gguf: "))


def test_on_the_command_line_it_is_one_line_and_exit_2(harness, folder, place) -> None:
    (place / "m.gguf").write_bytes(FILES["a model of default size"])
    for path in ("m.gguf", "mine"):
        edited(folder, "config.json", num_hidden_layers=10_000_000)
        done = harness("model=path", f"model.path={path}", "steps=2")
        assert done.code == 2 and "fault of the harness" not in done.out, done.out
