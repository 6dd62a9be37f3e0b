"""What Transformers itself offers to go on from: its cache classes, and `generate` over a cache of one's own.

Each name here is a case that `task.cases` may ask for. Every request builds a cache of its own, so that
nothing of an earlier one is left in it.
"""

import inspect
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any

from harness.engine.base import Answer
from harness.engine.local import answer, most_probable
from harness.errors import UnsupportedModel

QUANTO = "optimum.quanto"
AT_ONCE = 4  # tokens that `several_at_once` feeds onto a past
# name: (class, arguments, package that it needs)
CACHES: dict[str, tuple[str, dict[str, Any], str | None]] = {
    "library_dynamic": ("DynamicCache", {}, None),
    "library_offloaded": ("DynamicCache", {"offloading": True}, None),
    "library_static": ("StaticCache", {}, None),
    "library_offloaded_static": ("StaticCache", {"offloading": True}, None),
    "library_quanto": ("QuantizedCache", {"backend": "quanto"}, QUANTO),
    "library_hqq": ("QuantizedCache", {"backend": "hqq"}, "hqq"),
    "library_fp8": ("QuantizedCache", {"backend": "fp8"}, None),
}
# name: what of the prompt the cache holds beforehand, and what is handed to `generate`
GENERATE = {
    "generate": "a cache of all tokens but the last, all ids handed over",
    "generate_new_ids": "a cache of all tokens but the last, that one id and a mask over all handed over",
    "generate_whole": "a cache of all tokens, all ids handed over: the last is fed again, one place late",
    "generate_twice": "a cache that an earlier generate() went on with: it holds that answer's tokens",
}
ONTO = "several_at_once"
FAILURES = (ValueError, TypeError, RuntimeError, ImportError, AttributeError, NotImplementedError, AssertionError,
            IndexError, KeyError)  # fmt: skip


class Library:
    """Over a model. ours: see `harness.engine.transformers`. top: log-probabilities per step."""

    def __init__(self, ours: Any, top: int):
        self._ours, self._model, self._top = ours, ours.loaded.model, top
        self._beyond = ours.loaded.text_config.vocab_size  # an id that is never generated: no end

    def offered(self) -> tuple[dict[str, str], dict[str, str]]:
        """What can be asked of this model, as case and description; and what cannot, with the reason."""
        there = {ONTO: f"{AT_ONCE} tokens fed in one call onto what came before"}
        absent: dict[str, str] = {}
        if "past_key_values" in inspect.signature(self._model.forward).parameters:
            there |= GENERATE
        else:
            absent |= dict.fromkeys(GENERATE, "the model takes no past_key_values")
        for name, (_, _, package) in CACHES.items():
            if package and find_spec(package.partition(".")[0]) is None:
                absent[name] = f"it needs the package {package}"
                continue
            try:
                cache = self._cache(name, 16)
                with _uncompiled(package):
                    self._ours.cold(None, cache)([1, 2, 3, 4])
                    self._ours.cold(None, cache, start=4)([5])
            except (*FAILURES, UnsupportedModel) as problem:
                said = (str(problem) or type(problem).__name__).splitlines()[0]
                absent[name] = f"the library does not make or use it here: {said[:160]}"
                continue
            kinds = sorted({type(layer).__name__ for layer in cache.layers})
            there[name] = f"{CACHES[name][0]} of {', '.join(kinds)}"
            if "Quantized" in there[name]:
                there[name] += ": codes, compared with keys and values in full"
        return there, absent

    def answer(self, case: str, prompt: Sequence[int], kept: int, steps: int) -> Answer:
        """`steps` tokens after `prompt`, the first `kept` of it (or what the case says) in a cache.
        Raises UnsupportedModel where the library fails."""
        try:
            if case in GENERATE:
                return self._generated(case, prompt, kept, steps)
            if case == ONTO:
                kept = min(kept, len(prompt) - AT_ONCE)
                cache, forward = None, self._ours.loaded.once
            else:
                cache, forward = self._cache(case, len(prompt) + steps), None
            feed = self._ours.cold(None, cache, forward)
            with _uncompiled(CACHES.get(case, ("", {}, None))[2]):
                feed(prompt[:kept])
                return answer(feed, prompt[kept:], steps, self._top, kept)
        except FAILURES as problem:
            said = (str(problem) or type(problem).__name__).splitlines()[0]
            raise UnsupportedModel(f"{case}: the library fails: {said[:200]}") from problem

    def _cache(self, name: str, tokens: int) -> Any:
        from transformers import cache_utils

        kind, arguments, _ = CACHES[name]
        if kind == "StaticCache":
            arguments = arguments | {"max_cache_len": tokens}
        return getattr(cache_utils, kind)(config=self._model.config, **arguments)

    def _generated(self, case: str, prompt: Sequence[int], kept: int, steps: int) -> Answer:
        import torch

        ids = torch.tensor([list(prompt)], device=self._model.device)
        cache = self._cache("library_dynamic", 0)
        if case == "generate_whole":
            kept = len(prompt)
        self._ours.cold(None, cache)(prompt[:kept])
        if case == "generate_twice":
            self._generate(ids, torch.ones_like(ids), cache, steps)
        reused = int(cache.get_seq_length())
        start = time.perf_counter()
        new = ids[:, kept:] if case == "generate_new_ids" else ids
        rows = self._generate(new, torch.ones_like(ids), cache, steps)
        tops = tuple(most_probable(row[0].float().cpu().numpy(), self._top) for row in rows)
        tokens = tuple(next(iter(top)) for top in tops)
        return Answer(tokens, tops, reused, None, time.perf_counter() - start)

    def _generate(self, ids: Any, mask: Any, cache: Any, steps: int) -> Sequence[Any]:
        """Logits `[1, vocab]` of each step; no token ends it. Mutates `cache`."""
        from transformers import GenerationConfig

        greedy = GenerationConfig(
            max_new_tokens=steps, do_sample=False, pad_token_id=0, eos_token_id=self._beyond, use_cache=True,
            return_dict_in_generate=True, output_logits=True,
        )  # fmt: skip
        made = self._model.generate(
            ids, attention_mask=mask, past_key_values=cache, generation_config=greedy
        )
        return made.logits


@contextmanager
def _uncompiled(package: str | None) -> Iterator[None]:
    """quanto's codes unpacked in Python: its compiled code for that is built in site-packages at first use,
    which takes minutes and waits for whoever began it."""
    if package != QUANTO:
        yield
        return
    import torch
    from optimum.quanto.tensor.packed import PackedTensor

    def unpack(packed: Any) -> Any:
        bits, data = packed._bits, packed._data
        rows = [(data >> place) & (2**bits - 1) for place in range(0, 8, bits)]
        return torch.cat(rows)[: packed.shape[0]]

    compiled, PackedTensor.unpack = PackedTensor.unpack, unpack
    try:
        yield
    finally:
        PackedTensor.unpack = compiled
