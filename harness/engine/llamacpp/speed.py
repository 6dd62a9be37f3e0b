"""llama.cpp timed by its own clock: prefill, decode steps, a slot saved and restored."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from harness import extras
from harness.config.option import option
from harness.engine.llamacpp import params_of
from harness.engine.llamacpp.server import Server
from harness.engine.shape import COUNT, OBJECT, TIME, hold

KEPT = {"float32": "f32", "bfloat16": "bf16", "float16": "f16"}
CLOCK = {"prompt_n": COUNT, "prompt_ms": TIME, "predicted_n": COUNT, "predicted_ms": TIME}
TOKENS = 5  # generated at a time: one fewer are decode steps, the first comes out of the prompt


class Timed:
    """A server with one slot over `model`, K/V in `dtype`. Use as a context manager."""

    def __init__(self, model: Path, folder: Path, ids: Sequence[int], dtype: str, threads: int):
        extras.need("llamacpp", "task.engines=[llamacpp]")
        code = KEPT[dtype]
        values = {"model": str(model), "type_k": code, "type_v": code, "threads": threads}
        settings = option("engine", "llamacpp", context=len(ids) + 4 * TOKENS, **values)
        self._ids = list(ids)
        self._server = Server(
            str(model), folder, params_of(settings, slots=1) | {"cache_ram_mib": 0}
        )
        self._stored = folder / "timed"

    def __enter__(self) -> "Timed":
        return self

    def __exit__(self, *problem: object) -> None:
        self._server.stop()

    def prefill(self) -> float:
        """Seconds to read all tokens, nothing cached; leaves them in the slot."""
        said = self._ask(1, cached=False)
        if said["prompt_n"] != len(self._ids):
            raise ValueError(f"llama.cpp read {said['prompt_n']} of {len(self._ids)} tokens")
        return said["prompt_ms"] / 1e3

    def step(self) -> float:
        """Seconds of a decode step after the prompt, on average over a few."""
        said = self._ask(TOKENS, cached=True)
        if said["predicted_n"] != TOKENS:
            raise ValueError(f"llama.cpp said {said['predicted_n']} of {TOKENS} tokens")
        return said["predicted_ms"] / 1e3 / (said["predicted_n"] - 1)

    def save(self) -> tuple[float, int]:
        """Seconds to write the slot to a file, and its bytes."""
        said = self._post("/slots/0?action=save", {"filename": "timed"}, {"save_ms": TIME})
        return said["save_ms"] / 1e3, self._stored.stat().st_size

    def load(self) -> float:
        """Seconds to read it back into the erased slot."""
        self._server.wire.post("/slots/0?action=erase", {}, partial(hold, shape=OBJECT))
        said = self._post("/slots/0?action=restore", {"filename": "timed"}, {"restore_ms": TIME})
        return said["restore_ms"] / 1e3

    def _ask(self, tokens: int, cached: bool) -> Any:
        body = {"prompt": self._ids, "n_predict": tokens, "cache_prompt": cached}
        body |= {"temperature": 0, "ignore_eos": True, "id_slot": 0}
        return self._post("/completion", body, CLOCK)

    def _post(self, path: str, body: dict[str, Any], clock: dict[str, Any]) -> Any:
        """The `timings` of the answer."""
        read = partial(hold, shape={"timings": clock})
        return self._server.wire.post(path, body, read)["timings"]
