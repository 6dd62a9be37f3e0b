"""What is wrong with a config.json of which the library makes no model: it says so in many ways, or not at all."""

import re
from pathlib import Path
from typing import Any

import torch

from harness.errors import suggestion

TYPE = re.compile(r"has model type `(.*?)` but Transformers does not recognize")
LONGEST = 300


def wrong(place: str, config: Any, problem: Exception) -> str | None:
    """What to mend in the config.json at `place`; None where `problem` is of something else.

    config: what was read of it, or None where reading it was the `problem`. Builds the model without its weights,
    which is how it is known whose fault a load is.
    """
    from huggingface_hub.errors import StrictDataclassError

    hub = not Path(place).is_dir()
    file = f"the config.json of {place}" if hub else str(Path(place) / "config.json")
    if unknown := TYPE.search(str(problem)):
        return f"{file}: its model_type is '{unknown[1]}', {_nobody_knows(unknown[1])}"
    if config is None:  # of a hub, much else can go wrong
        mistold = StrictDataclassError if hub else Exception
        told_well = isinstance(problem, OSError | ValueError)
        cause = problem if isinstance(problem, mistold) and not told_well else None
    else:
        cause = _unbuilt(config)
    if cause is None:
        return None
    told = cause.__cause__ or cause
    kind = "" if isinstance(told, TypeError | ValueError) else f"{type(told).__name__}: "
    return f"{file} cannot be used: {kind}{first_line(told)} Correct it, or save the model again with `save_pretrained`."


def first_line(problem: BaseException) -> str:
    """The first line of what `problem` says, as a sentence; a long one ends at a word."""
    line = (str(problem).strip() or type(problem).__name__).splitlines()[0]
    if len(line) > LONGEST:
        line = f"{line[:LONGEST].rpartition(' ')[0]} ..."
    return line if line.endswith((".", ":", "?")) else line + "."


def _nobody_knows(kind: str) -> str:
    import transformers

    near = suggestion(kind, list(transformers.CONFIG_MAPPING))
    meant = near if near.startswith(" Did") else ""
    return (
        f"which Transformers {transformers.__version__} does not know.{meant} Correct it, or upgrade the library "
        "(pip install --upgrade transformers)."
    )


def _unbuilt(config: Any) -> Exception | None:
    """Why no model of `config` can be built, by the class that a load takes; None where one can, or where the
    library has no such class."""
    from transformers import MODEL_FOR_CAUSAL_LM_MAPPING, AutoModelForCausalLM

    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING:
        return None
    try:
        with torch.device("meta"):
            AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception as problem:  # every family checks its config in its own way
        return problem
    return None
