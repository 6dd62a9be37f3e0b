"""A GGUF file in a real llama.cpp server (extra `llamacpp`), started and stopped here.

`restored`: its slot saved to a file, erased, read back. `restarted`: read back by a new server.
`host_cache`: pushed out of the slots by other prompts into llama.cpp's own prompt cache in RAM.
`shifted` (where `+engine.options.ctx_shift=true`): the server dropped half of a full window; the prompt
is then what it still holds, against a cold run of those very tokens.
"""

import random
import shutil
import struct
import tempfile
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from harness import extras
from harness.config import EngineConfig
from harness.engine.base import ALONE, Answer, Composition, Engine, Prompt
from harness.engine.llamacpp import weights
from harness.engine.llamacpp.server import Server, threads
from harness.engine.shape import COUNT, FLAG, LOGPROB, OBJECT, TOKEN, hold
from harness.errors import InputProblem

SLOTS = 2  # one is judged, one is beside it
HOST_MIB = 1024
SHIFTED = "shifted"
PAST = 8  # tokens generated after a context shift
IDS = {"tokens": [TOKEN]}
WINDOWS = [{"n_ctx": COUNT}]
OVERRUN = {**IDS, "truncated": FLAG}
LISTED = {"id": TOKEN, "logprob": LOGPROB}
COMPLETION = {
    "completion_probabilities?": [{"id": TOKEN, "top_logprobs": [LISTED]}],
    "tokens_evaluated": COUNT, "timings": {"prompt_n": COUNT, "cache_n?": COUNT},
}  # fmt: skip


class LlamaCpp(Engine):
    """`engine.model=FILE.gguf`, else the declared model as such a file; `engine.type_k`, `engine.type_v`,
    `engine.flash`, `engine.context`, and any other of llama.cpp's parameters by its name in
    `engine.options`."""

    cases = ("hit", "restored", "restarted", "host_cache")
    alike = ("restored", "restarted")
    compositions = (
        Composition("again"),
        Composition("beside another request", beside=True),
        Composition("in chunks of 32", chunk=32),
    )

    exports = True

    def __init__(self, settings: EngineConfig, ours: Callable[[], Any] | None = None):
        """ours: gives the declared model, to be written as a GGUF file where no file is named."""
        super().__init__(settings)
        self._ours = ours
        self.declared = ours is not None

    def __enter__(self) -> Self:
        extras.need("llamacpp", "engine=llamacpp")
        path = self.settings.model
        if self._ours is None and not (path and Path(path).expanduser().is_file()):
            raise InputProblem(
                f"engine.model={path} is no file. engine=llamacpp needs engine.model=FILE.gguf; of a "
                "directory of the library's, model=path model.path=DIR makes one."
            )
        self._folder = Path(tempfile.mkdtemp(prefix="harness-llamacpp-"))
        self._slot: int | None = 0
        try:
            self._model = str(self._written() if self._ours else Path(path).expanduser().resolve())
            self._server = self._start()
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise
        return self

    def __exit__(self, *problem: object) -> None:
        self._server.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    @property
    def further(self) -> Mapping[str, str]:  # type: ignore[override]
        about = "the server ran past its window and dropped half of it; against a cold run of what is left"
        return {SHIFTED: about} if self.settings.options.get("ctx_shift") else {}

    @property
    def absent(self) -> Mapping[str, str]:  # type: ignore[override]
        return {} if self.further else {SHIFTED: "it needs +engine.options.ctx_shift=true"}

    def versions(self) -> dict[str, str]:
        settings, build = self.settings, metadata.version("xllamacpp")
        return {
            "xllamacpp": build,
            "llama.cpp": f"b{build.rpartition('.')[2]}",
            "model": self._ours().versions()["model"] if self._ours else Path(self._model).name,
            "K and V": f"{settings.type_k} and {settings.type_v}",
            "flash attention": settings.flash,
            **{k: str(v) for k, v in settings.options.items()},
        }

    @property
    def weights(self) -> Path:
        return Path(self._model)

    def encode(self, text: str) -> Prompt:
        if self._ours is not None:
            return self._ours().encode(text)
        return self._post("/tokenize", {"content": text, "add_special": True}, IDS)["tokens"]

    def evaluate(self, prompt: Prompt, steps: int, composition: Composition = ALONE) -> Answer:
        if composition.chunk:
            other = self._start(n_batch=composition.chunk, n_ubatch=composition.chunk)
            try:
                return self._ask(other, prompt, steps, cached=False)
            finally:
                other.stop()
        if not composition.beside:
            return self._ask(self._server, prompt, steps, cached=False)
        with ThreadPoolExecutor(1) as pool:
            neighbour = pool.submit(self._ask, self._server, prompt[::-1], 4 * steps, False, 1)
            answer = self._ask(self._server, prompt, steps, cached=False)
            neighbour.result()
        return answer

    def resume(self, prompt: Prompt, steps: int) -> Answer:
        return self._ask(self._server, prompt, steps, cached=True, slot=self._slot)

    def save(self, prompt: Prompt) -> None:
        self._slot = 0
        self._ask(self._server, prompt, 0, cached=False)
        self._post("/slots/0?action=save", {"filename": "state"})
        self._prompt = prompt

    def restore(self, case: str) -> None:
        if case == "restored":
            self._post("/slots/0?action=erase", {})
        if case == "restarted":
            self._server.stop()
            self._server = self._start()
        if case in ("restored", "restarted"):
            self._post("/slots/0?action=restore", {"filename": "state"})
        if case == SHIFTED:
            self._overrun(self._begun)
        if case == "host_cache":
            self._slot = None  # it takes the slot that fits, or fills one from its cache
            for turn in range(SLOTS + 1):
                mixed = random.Random(turn).sample(list(self._prompt), len(self._prompt))
                self._ask(self._server, mixed, 1, cached=True, slot=None)

    def prompt_of(self, case: str, prompt: Prompt) -> Prompt:
        """`shifted`: the tokens that the slot holds after the window was full, by the server's own
        account. Raises InputProblem where it did not shift."""
        if case != SHIFTED:
            return prompt
        self._slot, self._begun = 0, prompt
        for first in (1, 0):  # it keeps a BOS, where the model wants one
            ids, window = self._overrun(prompt)
            dropped = (window - 1 - first) // 2
            rest = [*ids[:first], *ids[first + dropped :]]
            if self.resume(rest, 1).reused == len(rest) - 1:
                return rest
        raise InputProblem(
            "llama.cpp shifted, but what its slot holds now is not what was expected."
        )

    def _overrun(self, prompt: Prompt) -> tuple[list[int], int]:
        """Generate past the window: `(all ids, tokens of the window)`; the slot holds what is left."""
        window = self._server.wire.get("/slots", WINDOWS)[0]["n_ctx"]
        count = window - len(prompt) + PAST
        if count < PAST:
            raise InputProblem(f"{len(prompt)} tokens do not fit engine.context={window}.")
        body = {"prompt": prompt, "n_predict": count, "temperature": 0, "cache_prompt": False}
        body |= {"return_tokens": True, "ignore_eos": True, "id_slot": 0}
        said = self._post("/completion", body, OVERRUN)
        if not said["truncated"] or len(said["tokens"]) < count:
            raise InputProblem(f"llama.cpp did not shift its window of {window} tokens.")
        return [*prompt, *said["tokens"]], window

    def forge(self, prompt: Prompt, other: Prompt) -> bool:
        """The file of `other`'s state with the ids of `prompt` written into it."""
        self.save(other)
        file = self._folder / "state"
        raw, ids, false = file.read_bytes(), _packed(other), _packed(prompt)
        if raw.count(ids) != 1 or len(ids) != len(false):
            return False
        file.write_bytes(raw.replace(ids, false))
        self.restore("restored")
        return True

    def _written(self) -> Path:
        assert self._ours is not None
        weights.write(self._ours().loaded.model, self._folder / "model.gguf")
        return self._folder / "model.gguf"

    def _start(self, **params: Any) -> Server:
        return Server(self._model, self._folder, params_of(self.settings) | params)

    def _post(self, path: str, body: dict[str, Any], shape: Any = OBJECT) -> Any:
        return self._server.wire.post(path, body, partial(hold, shape=shape))

    def _ask(
        self, server: Server, prompt: Prompt, steps: int, cached: bool, slot: int | None = 0
    ) -> Answer:
        body = {"prompt": prompt, "n_predict": steps, "n_probs": self.settings.top}
        body |= {"temperature": 0, "cache_prompt": cached}
        body |= {"return_tokens": True, "ignore_eos": True}
        start = time.perf_counter()
        answer = server.wire.post(
            "/completion", body | ({} if slot is None else {"id_slot": slot}), read
        )
        return replace(answer, seconds=time.perf_counter() - start)


def params_of(settings: EngineConfig, slots: int = SLOTS) -> dict[str, Any]:
    """llama.cpp's parameters, by its own names, for the settings of `engine=llamacpp`."""
    count = threads(settings.threads)
    return {
        "n_ctx": settings.context * slots, "n_parallel": slots, "warmup": False, "endpoint_slots": True,
        "cpuparams.n_threads": count, "cpuparams_batch.n_threads": count, "cache_ram_mib": HOST_MIB,
        "cache_type_k": settings.type_k, "cache_type_v": settings.type_v,
        "flash_attn_type": {"auto": -1, "off": 0, "on": 1}[settings.flash], **settings.options,
    }  # fmt: skip


def read(said: Any) -> Answer:
    """The Answer in llama.cpp's own form: every probability before sampling touched it. Raises ShapeError."""
    steps = hold(said, COMPLETION).get("completion_probabilities") or []
    tops = tuple({t["id"]: t["logprob"] for t in s["top_logprobs"]} for s in steps)
    timings = said["timings"]
    reused = timings.get("cache_n")
    if reused is None:
        reused = said["tokens_evaluated"] - timings["prompt_n"]
    return Answer(tuple(s["id"] for s in steps), tops, reused)


def _packed(ids: Prompt) -> bytes:
    return struct.pack(f"<{len(ids)}i", *ids)
