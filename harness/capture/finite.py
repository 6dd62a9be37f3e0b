"""Whether a prefill left numbers: of NaN and infinity nothing can be continued, compared or proven."""

from collections.abc import Iterator
from typing import Any

import torch

from harness.errors import InputProblem
from harness.snapshot.codes import dense
from harness.snapshot.state import State

WIDER = {torch.bfloat16: "float32", torch.float32: "float64"}


def check_finite(loaded: Any, state: State) -> None:
    """Raise InputProblem for a state, as its capture left it, that holds NaN or infinity: where first, in which
    dtype, and what to do. One pass over it, without a copy; padding may hold anything."""
    for what, tensor, real in _parts(state):
        if _finite(tensor):
            continue
        if real is not None:
            tensor = tensor.transpose(1, 2)[real]  # without padding
        if not _finite(tensor):
            kind = str(loaded.dtype).removeprefix("torch.")
            raise InputProblem(
                f"{what} not finite after the prefill in {kind} ({_called(tensor)}), so there is nothing to save or "
                f"to judge: {_why(loaded)}"
            )


def _parts(state: State) -> Iterator[tuple[str, torch.Tensor, torch.Tensor | None]]:
    """In the order of the forward: what it is, its numbers, and of keys and values `[batch, kv_heads, tokens,
    head_dim]` which tokens `[batch, tokens]` are no padding."""
    for layer in state.layers:
        for segment in layer.segments:
            real = state.attention_mask[:, -segment.tokens :] != 0
            yield f"the keys of layer {layer.index} are", dense(segment.key), real
            yield f"the values of layer {layer.index} are", dense(segment.value), real
        for tensor in layer.recurrent.values():
            yield f"the recurrent state of layer {layer.index} is", tensor, None
    yield "the logits of the last token are", state.logits, None


def _finite(tensor: torch.Tensor) -> bool:
    if not tensor.is_floating_point() or not tensor.numel():
        return True
    tensor = tensor.float() if tensor.dtype.itemsize == 1 else tensor  # float8 knows no order
    return bool(torch.stack(tensor.detach().aminmax()).isfinite().all())  # NaN comes through


def _called(tensor: torch.Tensor) -> str:
    return "NaN" if bool(tensor.isnan().any()) else "infinity"


def _why(loaded: Any) -> str:
    """Whether it is the weights or what is computed of them, and the remedy."""
    short = loaded.dtype == torch.float16
    overflow = "beyond 65,504 there is no number in float16. Use dtype=bfloat16 or dtype=float32"
    broken = ((n, w) for n, w in loaded.model.named_parameters() if not _finite(w))
    name, weight = next(broken, ("", None))
    if weight is None:
        if short:
            return f"the weights are finite, and what is computed of them overflows: {overflow}."
        return (
            f"the weights are finite, and what is computed of them is not. Use dtype={WIDER.get(loaded.dtype, 'float32')}, "
            "or check what the model's config.json says of norms and positions."
        )
    held = f"the weights hold {_called(weight)}, first in {name}"
    if short and _called(weight) == "infinity":
        return f"{held}; {overflow}, unless their file holds infinity itself."
    return f"{held}. No dtype helps: give weights that are whole."
