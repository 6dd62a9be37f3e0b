"""A GGUF file as a model of the library: its config, weights and tokenizer read by the library's own table
of names, opened from their codes to float32, keys and queries turned to the library's order of RoPE.

What the table leaves out is refused, not guessed: factors of RoPE that are a tensor, or a scaling.
"""

from contextlib import redirect_stderr
from io import StringIO
from pathlib import Path
from typing import Any

import torch

from harness import extras
from harness.errors import InputProblem
from harness.model.configured import first_line

MAGIC = b"GGUF"
UNREAD = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
OTHERWISE = "Give the save_pretrained directory that it was made from."


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
    from gguf import GGUFReader
    from transformers import AutoConfig, AutoModelForCausalLM
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    try:
        reader = GGUFReader(path)
        _check(path, reader)
        config = AutoConfig.from_pretrained(path.parent, gguf_file=path.name, local_files_only=True)
        with torch.random.fork_rng(devices=[]):
            model = AutoModelForCausalLM.from_config(config, dtype=dtype, **attention)
        with redirect_stderr(StringIO()):  # its progress bar
            read = load_gguf_checkpoint(str(path), return_tensors=True, model_to_load=model)
    except (OSError, ValueError, KeyError, IndexError, NotImplementedError) as problem:
        raise InputProblem(f"{path} cannot be read as a model: {first_line(problem)}") from None
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
            path.parent, gguf_file=path.name, local_files_only=True
        )
    except Exception as problem:  # whatever its table of tokens makes the library raise
        raise InputProblem(
            f"no tokenizer could be read from {path}: {first_line(problem)} Give model.tokenizer=DIR."
        ) from problem


def _check(path: Path, reader: Any) -> None:
    unread = [t.name for t in reader.tensors if t.name in UNREAD]
    unread += [k for k in reader.fields if k.endswith(".rope.scaling.type")]
    if unread:
        raise InputProblem(
            f"{path} has {unread[0]}, which the library does not read from a GGUF file. {OTHERWISE}"
        )
