"""A GGUF file as a model of the library: its config, weights and tokenizer read by the library's own table
of names, opened from their codes to float32, keys and queries turned to the library's order of RoPE.

What the table leaves out is refused, not guessed: factors of RoPE that are a tensor, or a scaling.
"""

import struct
from contextlib import redirect_stderr
from io import StringIO
from math import prod
from pathlib import Path
from typing import Any

import torch

from harness import extras, folder
from harness.errors import InputProblem
from harness.foreign import Budget, mapped, opening
from harness.model import footprint
from harness.model.configured import first_line

MAGIC = b"GGUF"
SCALED = ".rope.scaling.type"
UNREAD = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
OTHERWISE = "Give the save_pretrained directory that it was made from."
VERSIONS = (2, 3)
TEXT, LIST = 8, 9  # ggml's numbers of types
FORMS = dict(zip([*range(8), 10, 11, 12], "BbHhIif?Qqd", strict=True))  # of struct, for the others


def is_file(path: Any) -> bool:
    """Whether `path` is a file that begins like a GGUF file."""
    try:
        with Path(path).expanduser().open("rb") as file:
            return file.read(4) == MAGIC
    except (OSError, TypeError):
        return False


def model_of(path: Path, dtype: torch.dtype, attention: dict[str, str]) -> Any:
    """The model in `path`. Raises InputProblem for what the library cannot build from it."""
    extras.need("llamacpp", f"model.path={path}")
    with opening(str(path), "cannot be read as a model"):
        table = _Table(path)
        folder.check_counts(str(path), table.counts, table.tensors)
        if unread := [name for name in table.names if name in UNREAD or name.endswith(SCALED)]:
            raise InputProblem(
                f"{path} has {unread[0]}, which the library does not read from a GGUF file. {OTHERWISE}"
            )
        return _built(path, dtype, attention, table.numbers)


def _built(path: Path, dtype: torch.dtype, attention: dict[str, str], numbers: int) -> Any:
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    config = AutoConfig.from_pretrained(
        path.parent, gguf_file=path.name, local_files_only=True, trust_remote_code=False
    )
    footprint.check_weights(path.name, config, dtype, torch.device("cpu"), numbers)
    with torch.random.fork_rng(devices=[]):
        model = AutoModelForCausalLM.from_config(config, dtype=dtype, **attention)
    with redirect_stderr(StringIO()):  # its progress bar
        read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    own = model.state_dict()
    for name, tensor in read["tensors"].items():
        if name in own and tensor.shape != own[name].shape:
            raise InputProblem(
                f"{path}: {name} has shape {list(tensor.shape)}, and {list(own[name].shape)} by the config that the "
                f"library reads from the file. {OTHERWISE}"
            )
    tied = set(getattr(model, "all_tied_weights_keys", {}) or {})
    missing = set(model.load_state_dict(read["tensors"], strict=False).missing_keys) - tied
    if missing:
        raise InputProblem(f"{path} lacks {len(missing)} weights, the first is {min(missing)}.")
    model.tie_weights()
    return model


def tokenizer_of(path: Path) -> Any:
    """The tokenizer in `path`. Raises InputProblem for one that the library cannot build."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(
            path.parent, gguf_file=path.name, local_files_only=True, trust_remote_code=False
        )
    except Exception as problem:  # whatever its table of tokens makes the library raise
        raise InputProblem(
            f"no tokenizer could be read from {path}: {first_line(problem)} Give model.tokenizer=DIR."
        ) from problem


class _Table:
    """What a GGUF file says before its weights, walked once before the library reads it, which believes it. names: of
    values and tensors. counts: whole numbers by their last name. tensors: how many. numbers, nbytes: of all of them. Raises ValueError
    where the file ends before what it claims."""

    def __init__(self, path: Path):
        from gguf import GGML_QUANT_SIZES

        self._raw, self._at, self._budget = mapped(path), 4, Budget()
        version, self.tensors, values = self._read("IQQ")
        if version not in VERSIONS:
            raise ValueError(f"it is of version {version}, read are {VERSIONS}")
        self.names, self.counts = set[str](), dict[str, int]()
        for _ in range(self._many(values, 12)):
            name = self._text()
            value = self._value(self._read("I")[0])
            self.names.add(name)
            if isinstance(value, int):
                self.counts[name.rpartition(".")[2]] = value
        self.numbers = self.nbytes = 0
        for _ in range(self._many(self.tensors, 24)):
            self.names.add(self._text())
            (dimensions,) = self._read("I")
            shape = self._read("Q" * self._many(dimensions, 8))
            kind, _ = self._read("IQ")
            if kind not in GGML_QUANT_SIZES:
                raise ValueError(f"it holds a tensor of type {kind}, which is not known")
            block, size = GGML_QUANT_SIZES[kind]
            self.numbers += prod(shape)
            self.nbytes += prod(shape) // block * size
        if self.nbytes > len(self._raw) - self._at:
            raise ValueError(
                f"its tensors claim {self.nbytes:,} bytes, and it has {len(self._raw):,}"
            )

    def _value(self, kind: int) -> Any:
        """A number; None for a list, which is passed by."""
        if kind == TEXT:
            return self._text()
        if kind != LIST:
            return self._read(_form(kind))[0]
        inner, count = self._read("IQ")
        if inner == TEXT:
            for _ in range(self._many(count, 8)):
                self._text()
        else:
            size = struct.calcsize(_form(inner))
            self._skip(self._many(count, size) * size)
        return None

    def _many(self, count: int, least: int) -> int:
        """`count` parts of at least that many bytes, each of which the library makes an object of."""
        if count * least > len(self._raw) - self._at:
            raise ValueError(f"it claims {count:,} parts, and ends before")
        self._budget.spend(count)
        return count

    def _text(self) -> str:
        (size,) = self._read("Q")
        start = self._at
        self._skip(size)
        return self._raw[start : self._at].decode("utf-8", "replace")

    def _read(self, form: str) -> tuple[Any, ...]:
        values = struct.unpack_from(f"<{form}", self._raw, self._at)
        self._at += struct.calcsize(f"<{form}")
        return values

    def _skip(self, count: int) -> None:
        if count > len(self._raw) - self._at:
            raise ValueError(f"it claims {count:,} bytes more, and ends before")
        self._at += count


def _form(kind: int) -> str:
    if kind not in FORMS:
        raise ValueError(f"it holds a value of type {kind}, which is not known")
    return FORMS[kind]
