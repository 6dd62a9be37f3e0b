"""The keys of the group `engine`: who is judged by `task=referee`."""

from dataclasses import dataclass, field
from typing import Any

from harness.config.key import ONLY, Open, only
from harness.errors import ConfigProblem

FLASH = ("auto", "on", "off")


@dataclass
class EngineConfig(Open):
    """An engine that is judged, ours or somebody else's."""

    name: str = "transformers"  # also in records older than the group
    model: str | None = only(None)  # a file, a folder or a served name
    weights: str | None = only(None)  # of the float64 oracle: save_pretrained directory, GGUF file
    url: str | None = only(None)  # openai: http://HOST:PORT/v1
    evict: str | None = only(None)  # openai: commands of the user's own
    restart: str | None = only(None)
    flush: str | None = only(None)
    top: int = only(20)  # log-probabilities per step
    context: int = only(4096)  # llamacpp: tokens a slot holds
    type_k: str = only("f16")  # llamacpp: what keys and values are kept in
    type_v: str = only("f16")
    flash: str = only("auto")  # llamacpp: flash attention
    threads: int | None = only(None)  # llamacpp; None: one per core
    # llamacpp: parameters by its own names
    options: dict[str, Any] = field(default_factory=dict, metadata=ONLY)
    key_variable: str = only("OPENAI_API_KEY")  # where the key is read from; it is never recorded
    timeout: float = only(600)  # seconds for one request

    def __post_init__(self) -> None:
        for key in ("top", "context", "threads", "timeout"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ConfigProblem(f"engine.{key}={value} is too small: give 1 or more.")
        if self.flash not in FLASH:
            raise ConfigProblem(f"engine.flash={self.flash} is not possible: {', '.join(FLASH)}.")
