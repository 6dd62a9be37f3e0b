"""mlx-lm in this process (extra `mlx`): its own prompt cache, grown, saved and loaded, trimmed.

`engine.model=DIR` is a folder that mlx-lm loads. `engine.options`: `max_kv_size=N` (a rotating cache),
`kv_bits=4|8` (a quantized one, `kv_group_size=64`), which cold runs then use as well.
"""

import shutil
import tempfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, Self

from harness import extras, folder
from harness.engine.base import ALONE, Answer, Composition, Engine, Prompt
from harness.engine.local import answer, in_chunks
from harness.errors import ConfigProblem, InputProblem
from harness.foreign import opening

WHOLE = 2048  # tokens of a prefill at once, mlx-lm's own choice
BEYOND = 8  # tokens read too far, to be trimmed
OPTIONS = {"max_kv_size", "kv_bits", "kv_group_size"}


class Mlx(Engine):
    cases, alike = ("hit", "restored", "trimmed"), ("restored",)
    compositions = (Composition("again"), Composition("in chunks of 16", chunk=16))

    def __enter__(self) -> Self:
        extras.need("mlx", "engine=mlx")
        path = self.settings.model
        if not path or not (Path(path).expanduser() / "config.json").is_file():
            raise InputProblem(
                f"engine.model={path} has no config.json. engine=mlx needs engine.model=DIR."
            )
        if unknown := set(self.settings.options) - OPTIONS:
            known, others = (", ".join(sorted(keys)) for keys in (OPTIONS, unknown))
            raise ConfigProblem(f"engine.options: mlx knows {known}, not {others}.")
        from mlx_lm import utils

        with (
            opening(f"engine.model={path}", "cannot be loaded"),
            folder.opened(Path(path).expanduser()),
        ):
            self._model, self._config = utils.load_model(Path(path).expanduser())
        import mlx.core as mx

        half = {mx.bfloat16: 2.0**-8, mx.float16: 2.0**-11}
        self.roundoff = half.get(self._model(mx.array([[0]])).dtype, self.roundoff)
        self._folder = Path(tempfile.mkdtemp(prefix="harness-mlx-"))
        self._cache: Any = None
        self._tokens: list[int] = []
        return self

    def __exit__(self, *problem: object) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def versions(self) -> dict[str, str]:
        named = {k: metadata.version(k) for k in ("mlx", "mlx-lm")}
        options = {k: str(v) for k, v in self.settings.options.items()}
        return named | {"model": Path(self.settings.model).name, **options}

    @property
    def weights(self) -> Path | None:
        """None where they are in mlx's own codes."""
        return None if "quantization" in self._config else Path(self.settings.model).expanduser()

    def encode(self, text: str) -> Prompt:
        from transformers import AutoTokenizer

        place = Path(self.settings.model).expanduser()
        with opening(f"the tokenizer of engine.model={place}"), folder.opened(place) as keywords:
            return AutoTokenizer.from_pretrained(place, **keywords)(text).input_ids

    def evaluate(self, prompt: Prompt, steps: int, composition: Composition = ALONE) -> Answer:
        feed = in_chunks(self._feed(self._fresh()), composition.chunk or WHOLE)
        return answer(feed, prompt, steps, self.settings.top, 0)

    def resume(self, prompt: Prompt, steps: int) -> Answer:
        """As mlx-lm's own server: what is cached beyond the common prefix is trimmed; a cache that
        cannot be trimmed is not reused."""
        from mlx_lm.models import cache as library

        pairs = enumerate(zip(self._tokens, prompt))
        most = min(len(self._tokens), len(prompt) - 1)
        same = next((i for i, (a, b) in pairs if a != b), most)
        excess = len(self._tokens) - same
        if excess and not library.can_trim_prompt_cache(self._cache):
            return self.evaluate(prompt, steps)
        library.trim_prompt_cache(self._cache, excess)
        reply = answer(self._feed(self._cache), prompt[same:], steps, self.settings.top, same)
        self._tokens = [*prompt, *(int(t) for t in reply.tokens[:-1])]
        return reply

    def save(self, prompt: Prompt) -> None:
        from mlx_lm.models import cache as library

        self._read(prompt[:-1])
        library.save_prompt_cache(str(self._folder / "cache.safetensors"), self._cache)

    def restore(self, case: str) -> None:
        from mlx_lm.models import cache as library

        if case == "restored":
            self._cache = library.load_prompt_cache(str(self._folder / "cache.safetensors"))
        if case == "trimmed":
            tokens = self._tokens
            self._read([*tokens, *tokens[:BEYOND]])
            if library.can_trim_prompt_cache(self._cache):
                library.trim_prompt_cache(self._cache, len(self._tokens) - len(tokens))
                self._tokens = tokens

    def forge(self, prompt: Prompt, other: Prompt) -> bool:
        self._read(other[:-1])
        self._tokens = list(prompt[:-1])
        return True

    def _read(self, ids: Sequence[Any]) -> None:
        """A cache with `ids` in it."""
        self._cache, self._tokens = self._fresh(), list(ids)
        in_chunks(self._feed(self._cache), WHOLE)(ids)

    def _fresh(self) -> Any:
        from mlx_lm.models import cache as library

        # models with a cache of their own ignore it
        if size := self.settings.options.get("max_kv_size"):
            return [library.RotatingKVCache(size, keep=4) for _ in self._model.layers]
        return library.make_prompt_cache(self._model)

    def _feed(self, cache: Any) -> Any:
        import mlx.core as mx
        import numpy as np
        from mlx_lm.generate import maybe_quantize_kv_cache

        options = self.settings.options
        group = options.get("kv_group_size", 64)

        def feed(ids: Sequence[int]) -> Any:
            logits = self._model(mx.array([list(ids)]), cache=cache)[0, -1].astype(mx.float32)
            mx.eval(logits)
            maybe_quantize_kv_cache(cache, 0, group, options.get("kv_bits"))
            return np.array(logits)

        return feed
