"""The keys of the group `engine`: who is judged by `task=referee`."""

from dataclasses import dataclass, field
from typing import Any

from harness.errors import ConfigProblem

FLASH = ("auto", "on", "off")


@dataclass
class EngineConfig:
    """An engine that is judged, ours or somebody else's."""

    name: str = "transformers"  # also in records older than the group
    model: str | None = None  # a file, a folder or a served name
    url: str | None = None  # openai: http://HOST:PORT/v1
    evict: str | None = None  # openai: commands of the user's own
    restart: str | None = None
    flush: str | None = None
    top: int = 20  # log-probabilities per step
    context: int = 4096  # llamacpp: tokens a slot holds
    type_k: str = "f16"  # llamacpp: what keys and values are kept in
    type_v: str = "f16"
    flash: str = "auto"  # llamacpp: flash attention
    threads: int | None = None  # llamacpp; None: one per core
    options: dict[str, Any] = field(default_factory=dict)  # llamacpp: parameters by its own names
    key_variable: str = "OPENAI_API_KEY"  # where the key is read from; it is never recorded
    timeout: float = 600  # seconds for one request

    def __post_init__(self) -> None:
        for key in ("top", "context", "threads", "timeout"):
            value = getattr(self, key)
            if value is not None and value < 1:
                raise ConfigProblem(f"engine.{key}={value} is too small: give 1 or more.")
        if self.flash not in FLASH:
            raise ConfigProblem(f"engine.flash={self.flash} is not possible: {', '.join(FLASH)}.")
