"""The memory a model needs, known from its config before a weight is read."""

from typing import Any

import torch

from harness import machine
from harness.errors import InputProblem

PACKED = 4  # parameters in a byte of weights, at most


def check_weights(
    name: str, config: Any, dtype: torch.dtype, device: torch.device, held: int | None = None
) -> None:
    """Raise InputProblem when the weights that `config` declares do not fit in memory as `dtype`, or are far more
    than `held` bytes can be: the library draws at random what no file holds.

    Counted on the meta device, which takes milliseconds; a config that cannot be built that way is
    left to the loader's own errors.
    """
    from transformers import AutoModelForCausalLM

    try:
        with torch.device("meta"):
            model = AutoModelForCausalLM.from_config(config, trust_remote_code=False)
    except Exception:  # remote code, unknown classes: the loader says it better
        return
    count = sum(p.numel() for p in model.parameters())
    if held is not None and count > PACKED * held:
        raise InputProblem(
            f"model={name}: its config asks for {count:,} parameters, and its weights are at most {PACKED * held:,}. "
            "Give the config and the weights that belong together."
        )
    what = f"model={name} ({count / 1e9:.3g} billion parameters)"
    remedy = "Use dtype=bfloat16, a smaller model, or a machine with more memory."
    _refuse_beyond(count * dtype.itemsize, device, what, remedy)


def _refuse_beyond(nbytes: int, device: torch.device, what: str, remedy: str) -> None:
    cuda = device.type == "cuda"
    free = torch.cuda.mem_get_info(device)[0] if cuda else machine.free_memory()
    if free is not None and nbytes > free:
        raise InputProblem(
            f"{what} needs {machine.human(nbytes)} of {'GPU ' if cuda else ''}memory, "
            f"{machine.human(free)} are free. {remedy}"
        )
