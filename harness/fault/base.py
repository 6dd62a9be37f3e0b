"""One damage at one point of the line. A variant declares its element and overrides one hook.

The line calls the hooks in this order: `state` before the save, `disk` after it, `live` on deep
copies of what the snapshot will be restored on, `inputs` on what the decoder is given at last.
"""

import copy
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.config import FaultConfig, SamplingConfig
from harness.errors import ConfigProblem
from harness.fault import edit as edit
from harness.snapshot.state import State as State


@dataclass
class Target:
    """What a restore meets. Deep copies: a fault may write into all of it.

    model: the torch module; tokenizer; sampling: a SamplingConfig; rng: `[n]` uint8, the state that
    the sampler continues from, or None for one that is seeded anew.
    """

    model: Any
    tokenizer: Any
    sampling: SamplingConfig
    rng: torch.Tensor | None


@dataclass(frozen=True)
class Aid:
    """What a fault may ask for.

    capture: ids `[1, n]` int64 -> the State that a prefill of them leaves; with a second argument,
    on a copy of the model that this function has changed. turns: of the chat so far.
    """

    capture: Callable[..., State]
    turns: int = 1


_CAUSES = {
    0: "rounding", 1: "block", 3: "position", 4: "token buffer", 5: "mask", 9: "logits",
    12: "token buffer",
}  # fmt: skip


# what a bed offers beyond `plain` and `sampled`, and what to say of a state that has not got it
_BEDS: dict[str, tuple[Callable[[State], bool], str]] = {
    "padded": (
        lambda state: not bool(state.attention_mask.all()),
        "padding: give prompt.batch=2 or more",
    ),
    "windowed": (
        lambda state: any(layer.window for layer in state.layers),
        "a sliding window, and no layer of this model has one: use model=tiny_gemma3",
    ),
    "quantized": (
        lambda state: state.quantized,
        "the scales of quantized keys and values: give quantize=int8",
    ),
    "hybrid": (
        lambda state: any("recurrent_states_0" in layer.recurrent for layer in state.layers),
        "recurrent state, and no layer of this model has any: use model=tiny_hybrid cache=cloned",
    ),
    "indexed": (
        lambda state: any("indexer_keys_0" in layer.recurrent for layer in state.layers),
        "an index over the keys, and this model keeps none: use model=tiny_sparse cache=cloned",
    ),
}


class Fault:
    """The control: nothing is damaged.

    element: number of the element it damages (1 to 13). bed: what the prompt or model must offer
    for the damage to exist (`plain`, `padded`, `windowed`, `sampled`, `hybrid`, `indexed`,
    `quantized`). why: why it still matters where it moves no logit. field: the class of known bugs it stands for (`harness.fault.field`).
    cause: what a diagnosis should say, where it is not what its element suggests. remembered: the
    model's identity was asked for before the damage. seed: of what is drawn at random.
    """

    name = ""
    element = 0
    bed = "plain"
    why = ""
    field = ""
    cause = ""
    remembered = False
    seed = 0

    def __init_subclass__(cls, **declared: Any) -> None:
        """What a fault says of itself stands in its head: `class Mine(Fault, element=1, bed="hybrid")`."""
        for name, value in declared.items():
            if not hasattr(Fault, name):
                raise TypeError(f"a fault declares no {name}")
            setattr(cls, name, value)
        if cls.element not in range(14):
            raise TypeError(f"a fault damages an element of 1 to 13, not {cls.element}")

    @property
    def expected(self) -> str:
        """The cause that a diagnosis of this damage should name."""
        return self.cause or _CAUSES.get(self.element, "identity")

    def configured(self, settings: FaultConfig) -> "Fault":
        """This fault with the keys of a FaultConfig; itself is not changed."""
        other = copy.copy(self)
        other.seed = settings.seed
        return other

    def rows(self) -> tuple["Fault", ...]:
        """What the fault matrix tries of it."""
        return (self,)

    def state(self, state: State, aid: Aid) -> State:
        """The State that is saved instead of `state`, which is only read."""
        return state

    def disk(self, folder: Path) -> None:
        """Write into the snapshot directory `folder`."""

    def live(self, live: Target) -> None:
        """Write into the model, tokenizer or sampler that the snapshot is restored on."""

    def inputs(self, state: State) -> State:
        """The State the decoder is given, after every check has passed; `state` is only read."""
        return state

    @property
    def touches_live(self) -> bool:
        """Whether deep copies are needed at all."""
        return type(self).live is not Fault.live

    def fits(self, state: State) -> None:
        """Raise ConfigProblem when `state` has not got what this fault damages."""
        offered, remedy = _BEDS.get(self.bed, (lambda state: True, ""))
        if not offered(state):
            raise ConfigProblem(f"fault={self.name} damages {remedy}.")
