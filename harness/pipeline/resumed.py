"""A continuation from Python: iterate to generate, row by row of a batch."""

from collections.abc import Iterator
from typing import Any

import torch

from harness.cache.base import Decoder
from harness.model.loaded import Loaded
from harness.model.sampler import Sampler
from harness.snapshot.state import State


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
        self._texts = [""] * len(self.rows)
        sampler.begin(decoder.state, 0 if prompt is None else prompt.shape[1])

    @property
    def ids(self) -> list[Any]:
        """The generated ids; of a batch one list per row."""
        return self.rows[0] if len(self.rows) == 1 else self.rows

    @property
    def text(self) -> Any:
        """What was generated; of a batch a tuple, one `str` per row."""
        said = tuple(self._decode(row) for row in self.rows)
        return said[0] if len(said) == 1 else said

    @property
    def state(self) -> State:
        """Old segments plus one new; its generator continues where this one stands."""
        return self._sampler.paused(self._decoder.commit())

    def __next__(self) -> Any:
        if self._prompt is not None:
            self._feed(self._prompt)
            self._prompt = None
        while self._left > 0 and not bool((ended := self._sampler.ended(self._seen)).all()):
            before = ended.tolist()
            token = self._sampler.choose(self._logits, self._seen)
            self._feed(token)
            self._left -= 1
            for row, new, over in zip(self.rows, token[:, 0].tolist(), before, strict=True):
                row.extend([] if over else [new])
            pieces = tuple(self._piece(number) for number in range(len(self.rows)))
            if any(pieces):
                return pieces[0] if len(pieces) == 1 else pieces
        raise StopIteration

    def _piece(self, number: int) -> str:
        """What came to a row's text; bytes that are no whole character yet are held back."""
        said, text = self._texts[number], self._decode(self.rows[number])
        if text.endswith("\ufffd") or not text.startswith(said):
            return ""
        self._texts[number] = text
        return text[len(said) :]

    def _decode(self, ids: list[int]) -> str:
        return str(self._model.tokenizer.decode(ids))

    def _feed(self, ids: torch.Tensor) -> None:
        self._logits = self._decoder.step(ids)[:, -1]
        self._seen = torch.cat([self._seen, ids], dim=1)
