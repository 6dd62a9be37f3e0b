"""A continuation from Python: iterate to generate, row by row of a batch."""

import warnings
from collections.abc import Iterator
from typing import Any

import torch

from harness.api_errors import as_api
from harness.cache.base import Decoder
from harness.model.loaded import Loaded
from harness.model.sampler import Sampler
from harness.pipeline.argument import check_precision
from harness.snapshot.state import State
from harness.tokenizer.shown import wordless
from harness.tokenizer.stream import Stream


class Resumed(Iterator[Any]):
    """Iterate to generate: yields text as it grows, a `str`; of a batch a tuple, one `str` per row.
    `ids`, `text` and `state` hold the outcome so far.

    rows: the generated ids of each row, its end included; a row that ended before the others is
    frozen: padding is fed to it, as by `generate`, which `rows` and texts leave out. state: a new
    State with everything fed so far, that padding too; the State it started from is untouched.
    sampler: one line, whether the saved sampler goes on. Like an open file it has one place: a loop
    that was left early goes on, in the next loop, with the token after the last one.
    """

    def __init__(
        self,
        model: Loaded,
        decoder: Decoder,
        sampler: Sampler,
        prompt: torch.Tensor | None,
        steps: int,
        line: str = "",
    ):
        """prompt: `[batch, n]`, fed before the first token. steps: how many tokens at most."""
        self._model, self._decoder, self._sampler = model, decoder, sampler
        self._prompt, self._left, self.sampler = prompt, steps, line
        self._seen, self._logits = decoder.state.token_ids.cpu(), decoder.state.logits
        self.rows: list[list[int]] = [[] for _ in self._seen]
        last = (self._seen if prompt is None else prompt)[:, -1].tolist()
        self._streams = [Stream(model.tokenizer, token) for token in last]
        self._warned = self._lost = False
        sampler.begin(decoder.state, 0 if prompt is None else prompt.shape[1])

    def __repr__(self) -> str:
        return f"Resumed({self._left} tokens to go at most, so far: {self.text!r})"

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Nothing to copy or to pickle: a model in the middle of a step, as an open file is one place in it."""
        raise TypeError(
            "a Resumed cannot be copied or pickled, it holds the model and one place in its continuation: take its "
            "`state`, and go on from that with harness.resume."
        )

    @property
    def ids(self) -> list[Any]:
        """The generated ids; of a batch one list per row."""
        return self.rows[0] if len(self.rows) == 1 else self.rows

    @property
    def text(self) -> Any:
        """What was generated; of a batch a tuple, one `str` per row."""
        return self._one_or_all([stream.whole for stream in self._streams])

    @property
    def state(self) -> State:
        """Old segments plus one new; its generator continues where this one stands."""
        return self._sampler.paused(self._decoder.commit())

    @as_api
    def __next__(self) -> Any:
        check_precision(self._model)
        if self._prompt is not None:
            self._feed(self._prompt)
            self._prompt = None
        while self._left > 0 and not bool((ended := self._sampler.ended(self._seen)).all()):
            over = ended.tolist()
            self._warn_of_nothing()
            token = self._sampler.choose(self._logits, self._seen)
            self._feed(token)
            self._left -= 1
            pieces = [""] * len(over)
            for number, new in enumerate(token[:, 0].tolist()):
                if not over[number]:
                    self.rows[number].append(new)
                    pieces[number] = self._streams[number].add(new)
            if any(pieces):  # else there is no whole character yet
                return self._one_or_all(pieces)
        if any(rest := [stream.rest() for stream in self._streams]):
            return self._one_or_all(rest)
        self._warn_of_wordless()
        raise StopIteration

    def _warn_of_wordless(self) -> None:
        """Say once, at the end, that some ids are in `ids` alone."""
        every = [token for row in self.rows for token in row]
        without = sum(wordless(self._model.tokenizer, token) for token in every)
        if without and not self._warned:
            self._warned = True
            warnings.warn(
                f"{without} of {len(every)} generated ids have no text in this tokenizer: `ids` holds them all.",
                stacklevel=4,
            )

    def _warn_of_nothing(self) -> None:
        """Say once that what is chosen from here on is chosen from no numbers."""
        if not self._lost and bool(self._logits.isnan().any()):
            self._lost = True
            warnings.warn(
                "the logits are not numbers (NaN), so what is generated from here on means nothing: "
                "harness.judge(model, state) says where it begins.",
                stacklevel=4,
            )

    def _one_or_all(self, texts: list[str]) -> Any:
        return texts[0] if len(texts) == 1 else tuple(texts)

    def _feed(self, ids: torch.Tensor) -> None:
        self._logits = self._decoder.step(ids)[:, -1]
        self._seen = torch.cat([self._seen, ids], dim=1)
