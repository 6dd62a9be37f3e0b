"""Choose the next token: greedy, or drawn through the library's own logits processors.

Drawing happens on CPU in float32 from a generator of its own, so that its whole state is a few
thousand bytes that travel with the snapshot and continue bit-identically on any device.
"""

from typing import Any

import torch


class Sampler:
    """settings: a SamplingConfig; rng: generator state `[n]` uint8, or None to start from `seed`."""

    def __init__(self, settings: Any, seed: int = 0, rng: torch.Tensor | None = None):
        self.settings = settings
        self.greedy = settings.name == "greedy"
        self._generator = torch.Generator().manual_seed(
            settings.seed if settings.seed is not None else seed
        )
        if rng is not None:
            self._generator.set_state(rng.cpu().clone())
        self._processors = _processors(settings, self.greedy)

    @property
    def rng(self) -> torch.Tensor:
        """State of the generator, `[n]` uint8; a copy."""
        return self._generator.get_state()

    def probabilities(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """`[batch, vocab]` float32 on CPU, after penalty, temperature, top-k and top-p.

        logits: `[batch, vocab]`; ids: `[batch, tokens]`, everything so far (for the penalty).
        """
        scores = logits.detach().float().cpu()
        if self._processors is not None:
            scores = self._processors(ids.cpu(), scores.clone())
        return scores.softmax(-1)

    def choose(self, logits: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        """Next ids `[batch, 1]` int64 on CPU. Advances the generator unless greedy."""
        if self.greedy:
            if self._processors:  # a penalty moves the most probable token as well
                logits = self._processors(ids.cpu(), logits.detach().float().cpu().clone())
            return logits.argmax(-1, keepdim=True).cpu()
        return torch.multinomial(self.probabilities(logits, ids), 1, generator=self._generator)

    def document(self) -> dict[str, Any]:
        """JSON-able sampler settings, part of element 13."""
        keys = ("name", "temperature", "top_k", "top_p", "repetition_penalty")
        return {key: getattr(self.settings, key) for key in keys}


def _processors(settings: Any, greedy: bool) -> Any:
    """The library's processors, in its order; greedy has no use for those that keep the maximum."""
    if greedy and settings.repetition_penalty == 1.0:
        return None
    from transformers import (
        LogitsProcessorList,
        RepetitionPenaltyLogitsProcessor,
        TemperatureLogitsWarper,
        TopKLogitsWarper,
        TopPLogitsWarper,
    )

    chosen = []
    if settings.repetition_penalty != 1.0:
        chosen.append(RepetitionPenaltyLogitsProcessor(settings.repetition_penalty))
    if greedy:
        return LogitsProcessorList(chosen)
    if settings.temperature != 1.0:
        chosen.append(TemperatureLogitsWarper(settings.temperature))
    if settings.top_k:
        chosen.append(TopKLogitsWarper(settings.top_k))
    if settings.top_p < 1.0:
        chosen.append(TopPLogitsWarper(settings.top_p))
    return LogitsProcessorList(chosen)
