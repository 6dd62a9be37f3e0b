"""Whether the caches of a row computed the same (a step that did less is no faster), and the spread of their times."""

from statistics import median, quantiles

import torch

from harness.report.bench import HIGH, LOW


class Likeness:
    """How far each cache's logits lie from `dynamic`'s (the first one's, without it), turn by turn."""

    def __init__(self) -> None:
        self.reference: str | None = None
        self._apart: dict[str, list[float]] = {}
        self._eps = 0.0

    def turn(self, logits: dict[str, torch.Tensor]) -> None:
        """logits `[rows, 1, vocab]` by cache, of the same ids at the same place."""
        if not logits:
            return
        self.reference = name = "dynamic" if "dynamic" in logits else next(iter(logits))
        self._eps = torch.finfo(logits[name].dtype).eps
        wanted = logits[name].float()
        for cache, given in logits.items():
            alike = given.shape == wanted.shape
            gap = float((given.float() - wanted).norm() / wanted.norm()) if alike else float("inf")
            self._apart.setdefault(cache, []).append(gap)

    def faults(self) -> dict[str, str]:
        """A reason for each cache whose logits share fewer than half of the dtype's digits with the
        reference's, by the median of turns (an expert chosen otherwise for a tie is no fault)."""
        middle = {cache: median(gaps) for cache, gaps in self._apart.items()}
        return {
            cache: f"its logits are not those of {self.reference} (apart by {gap:.2g} of their size): "
            "the time of another computation, not compared"
            for cache, gap in middle.items()
            if cache != self.reference and not gap <= self._eps**0.5
        }


def quartiles(seconds: list[float]) -> dict[str, float | None]:
    """The middle half of the times, as a row of `bench.json` has it; None for a single time."""
    low, high = None, None
    if len(seconds) > 1:
        low, _, high = quantiles(seconds, n=4, method="inclusive")
    return {LOW: low, HIGH: high}
