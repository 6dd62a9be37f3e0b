"""A model's folder from elsewhere: nothing in it is run, nobody is asked, nothing is fetched for it, and what its
config.json asks for is held against the weights that are there before anything is built."""

import os
import re
import struct
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from json import JSONDecodeError
from pathlib import Path
from typing import Any

from harness.errors import InputProblem
from harness.foreign import Budget, mapped, opening, parsed, read_json
from harness.foreign import opened as readable
from harness.snapshot.torch_file import Archive, Stored

READ = ("*config.json", "*.index.json", "*_map.json", "added_tokens.json")  # in Python
WEIGHTS = (".safetensors", ".bin", ".pt", ".pth", ".gguf", ".npz")
PREFERRED = (
    "model.safetensors",
    "model.safetensors.index.json",
)  # then the library reads no pickle
LAYERS = re.compile(r"(.*_)?(layers?|blocks?|depth)(_count)?")
COUNTED = re.compile(
    r"(num|n)_(?!.*(embd|embed|ctx|inner|position|hidden_size|vocab|token)).*|.*_count"
)
TALLEST, MOST = 1024, 65536  # layers; anything else that is counted
USUAL = 128  # layers that a default may count where a model has fewer
POINTER = b"version https://git-lfs"  # what Git leaves in place of a file that was not fetched
_loading = threading.RLock()


@contextmanager
def opened(place: str | Path) -> Iterator[dict[str, Any]]:
    """The keywords for the library's loaders of `place`, a folder or the id of a hub; inside the block nobody can be
    asked. Raises InputProblem for a folder that is not to be loaded."""
    here = Path(place).is_dir()
    if here:
        check(Path(place))
    with _loading, Path(os.devnull).open() as nobody:
        before, sys.stdin = sys.stdin, nobody
        try:
            yield {"trust_remote_code": False} | ({"local_files_only": True} if here else {})
        finally:
            sys.stdin = before


def check(folder: Path) -> None:
    """Raise InputProblem for JSON that costs too much, for weights that lie elsewhere or hold more than weights, and
    for a config.json that counts more than there can be. What is no JSON at all, the library says."""
    budget, config = Budget(), None
    for file in sorted({file for pattern in READ for file in folder.glob(pattern)}):
        with opening(str(file)):
            try:
                document = read_json(file, budget)
            except (JSONDecodeError, UnicodeDecodeError):
                continue
            if file.name == "config.json":
                config = document
            if file.name.endswith(".index.json"):
                _check_index(document)
    tensors = sum(_tensors(file) for file in folder.glob("*.safetensors"))
    if not any((folder / name).is_file() for name in PREFERRED):
        tensors += sum(_pickled(file) for file in folder.glob("pytorch_model*.bin"))
    check_counts(str(folder / "config.json"), config, tensors)


def weights(folder: Path) -> int:
    """Bytes of the files that can hold weights."""
    return sum(f.stat().st_size for f in folder.iterdir() if f.suffix in WEIGHTS and f.is_file())


def check_counts(where: str, config: Any, tensors: int = 0) -> None:
    """Raise InputProblem where `config` counts more layers than there are `tensors` (0: not known), or more of
    anything than a model has: the library makes them one by one."""
    if not isinstance(config, Mapping | list):
        return
    for key, value in config.items() if isinstance(config, Mapping) else enumerate(config):
        check_counts(where, value, tensors)
        layers = LAYERS.fullmatch(str(key))
        if type(value) is not int or not (layers or COUNTED.fullmatch(str(key))):
            continue
        if layers and tensors and value > max(tensors, USUAL):
            raise InputProblem(
                f"{where}: {key} is {value:,}, and the weights are {tensors:,} tensors."
            )
        if value > (most := TALLEST if layers else MOST):
            raise InputProblem(f"{where}: {key} is {value:,}, and at most {most:,} are built.")


def _tensors(file: Path) -> int:
    """How many tensors a safetensors file says that it holds; 0 for one that cannot be read, as the library says."""
    try:
        with readable(file) as opened_file:
            (size,) = struct.unpack("<Q", opened_file.read(8))
            budget = Budget()
            budget.spend(nbytes=size)
            return len(parsed(opened_file.read(size), budget))
    except (OSError, ValueError, TypeError, struct.error):
        return 0


def _check_index(document: Any) -> None:
    table = document.get("weight_map") if isinstance(document, dict) else None
    if not isinstance(table, dict) or any(
        not isinstance(name, str) or Path(name).name != name for name in table.values()
    ):
        raise ValueError("it does not name the file of each tensor, in its own folder")


def _pickled(file: Path) -> int:
    """How many tensors the pickle of torch holds. Raises InputProblem for one that holds more than weights, or claims more of them than the file has."""
    try:
        buffer = mapped(file)
        if buffer[: len(POINTER)] == POINTER:  # the library says so
            return 0
        archive = Archive(buffer)
        described = archive.described()
        if not isinstance(described, dict):
            raise ValueError("it holds no table of weights")
        for stored in described.values():
            if not isinstance(stored, Stored):
                raise ValueError("it holds more than weights")
            archive.tensor(stored)
        return len(described)
    except (OSError, ValueError) as problem:
        raise InputProblem(
            f"{file} ({file.stat().st_size:,} bytes) is cut short or damaged: {problem}. Copy it again from where it is "
            "whole, or give safetensors files."
        ) from None
