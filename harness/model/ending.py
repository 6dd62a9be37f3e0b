"""Where a continuation ends: at an id that ends sequences, or where its text holds a stop text."""

from dataclasses import dataclass
from typing import Any

import torch

from harness.config import SamplingConfig
from harness.model.loaded import Loaded


@dataclass(frozen=True)
class Ending:
    """ids: that end a sequence. texts: that end it once they stand in what was generated, across
    the borders of tokens. tokenizer: the library's. pad: what a row that ended goes on with."""

    ids: frozenset[int] = frozenset()
    texts: tuple[str, ...] = ()
    tokenizer: Any = None
    pad: int = 0

    @classmethod
    def of(cls, settings: SamplingConfig, loaded: Loaded) -> "Ending":
        """What `settings`, a SamplingConfig, says about it; the model's own ids where that is silent."""
        declared = settings.eos_token_id
        ids = end_tokens(loaded) if declared is None else declared
        pad = loaded.tokenizer.pad_token_id
        if pad is None:
            pad = min(end_tokens(loaded), default=0)
        return cls(frozenset(ids), tuple(settings.stop), loaded.tokenizer, pad)

    def spelled(self, row: torch.Tensor, begun: int) -> bool:
        """Whether a stop text stands in the last tokens of what was generated, `row[begun:]`: in as
        many as its bytes, and some without any. They are read behind the token before them, as a
        tokenizer may drop a first space."""
        window = max(len(text.encode()) for text in self.texts) + 8
        start = max(begun, len(row) - window)
        ids, head = row[max(start - 1, 0) :].tolist(), 1 if start else 0
        said = self._text(ids).removeprefix(self._text(ids[:head]).rstrip("\ufffd"))
        return any(text in said for text in self.texts)

    def _text(self, ids: list[int]) -> str:
        return self.tokenizer.decode(
            ids, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )


class Ended:
    """Which rows of a growing `[batch, tokens]` have ended since `begun`. Every id is read once."""

    def __init__(self, ending: Ending, begun: int):
        self._ending, self.begun, self._read = ending, begun, begun
        self._ids = torch.tensor(sorted(ending.ids), dtype=torch.int64)
        self._rows = torch.zeros(0, dtype=torch.bool)

    def rows(self, ids: torch.Tensor) -> torch.Tensor:
        """`[batch]` bool. ids: `[batch, tokens]`, those of the last call and more behind them."""
        if len(self._rows) != len(ids):
            self._rows, self._read = torch.zeros(len(ids), dtype=torch.bool), self.begun
        for length in range(self._read + 1, ids.shape[1] + 1):
            self._rows = self._rows | torch.isin(ids[:, length - 1].cpu(), self._ids)
            if self._ending.texts:
                for number in (~self._rows).nonzero()[:, 0].tolist():
                    self._rows[number] = self._ending.spelled(ids[number, :length], self.begun)
        self._read = max(self._read, ids.shape[1])
        return self._rows


def end_tokens(loaded: Loaded) -> set[int]:
    """Every id that ends an answer: those of the generation config, and the tokenizer's own."""
    config = getattr(loaded.model, "generation_config", None)
    declared = getattr(config, "eos_token_id", None)
    end = loaded.tokenizer.eos_token_id
    listed = declared if isinstance(declared, list) else [declared]
    return {t for t in (*listed, end) if t is not None}
