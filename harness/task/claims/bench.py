"""What every claim is settled with: a model, a text of any length, one noise floor, small steps."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from harness.capture import capture, new_cache, positions_of, prefill
from harness.model.loaded import Loaded
from harness.pipeline import clock
from harness.pipeline.noise import noise
from harness.pipeline.session import Session
from harness.report.claims import BEYOND as BEYOND
from harness.report.claims import Layout
from harness.snapshot.digest import digest_named
from harness.snapshot.state import State
from harness.tokenizer.policy import encode

HOLDS, REFUTED, DEPENDS = "holds", "refuted", "depends"
TEXT = (
    "let k be 5 . the bird sang . the old man walked to the river . let m be 42 . "
    "what is k ? k is 5 . the rain fell on the house . let x be 7 . "
)


@dataclass(frozen=True)
class Settled:
    """verdict: holds, refuted or depends. figures: measured, flat. answer, because, conditions: where they
    hang on the figures; else the claim's own. model: what it was measured with, where that is not the run's."""

    verdict: str
    figures: dict[str, Any]
    answer: str = ""
    because: str = ""
    conditions: str = ""
    model: str = ""


@dataclass(frozen=True)
class Claim:
    """says: the claim. layout: its figures' labels. answers: the verdict in a line, by verdict. because: one or
    two sentences. conditions: under which it was measured. measure: the experiment and its rule."""

    says: str
    layout: Layout
    answers: Mapping[str, str]
    because: str
    conditions: str
    measure: Callable[["Bench"], Settled]

    def settle(self, bench: "Bench") -> Settled:
        made = self.measure(bench)
        return replace(
            made,
            answer=made.answer or self.answers[made.verdict],
            because=made.because or self.because,
            conditions=made.conditions or self.conditions,
        )


CLAIMS: dict[str, Claim] = {}


def claim(
    says: str,
    layout: Layout,
    answers: Mapping[str, str] | None = None,
    because: str = "",
    conditions: str = "",
) -> Callable[[Callable[["Bench"], Settled]], Callable[["Bench"], Settled]]:
    """Register the decorated experiment as the claim of its name."""

    def register(measure: Callable[["Bench"], Settled]) -> Callable[["Bench"], Settled]:
        row = Claim(says, layout, answers or {}, because, conditions, measure)
        CLAIMS[measure.__name__] = row
        return measure

    return register


@dataclass
class Bench:
    """session: its model is only read."""

    session: Session
    _cache: dict[int, Any] = field(default_factory=dict, repr=False)

    @property
    def loaded(self) -> Loaded:
        return self.session.loaded

    @property
    def tokenizer(self) -> Any:
        return self.loaded.tokenizer

    def ids(self, tokens: int, start: int = 0) -> torch.Tensor:
        """`[1, tokens]` ids of running text, one BOS in front where the model knows one."""
        one = encode("raw", self.tokenizer, TEXT).ids
        text = one * ((tokens + start) // len(one) + 2)
        bos = self.tokenizer.bos_token_id
        head = [] if bos is None else [bos]
        return torch.tensor([(head + list(text[start:]))[:tokens]]).to(self.loaded.device)

    def prefilled(
        self, ids: torch.Tensor, mask: torch.Tensor | None = None
    ) -> tuple[Any, torch.Tensor]:
        """`(cache, logits [batch, vocab])` after `ids` `[batch, tokens]` in one pass."""
        mask = torch.ones_like(ids) if mask is None else mask
        cache = new_cache(self.loaded)
        logits = prefill(self.loaded, ids, mask, positions_of(mask), cache)
        return cache, logits[:, -1]

    def step(
        self, cache: Any, ids: torch.Tensor, position: int, mask: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Logits `[batch, new, vocab]` of `ids` at `position` and on. `cache` grows."""
        at = position + torch.arange(ids.shape[1], device=ids.device)
        return self.loaded.forward(ids, at.expand(ids.shape), mask, cache)

    def state(self, ids: torch.Tensor) -> State:
        """The immutable State after `ids` `[batch, tokens]`."""
        documents = {**self.session.documents, "prompt_meta": {}, "generation": {}}
        return capture(self.loaded, ids, torch.ones_like(ids), documents).state

    @cached_property
    def noise(self) -> float:
        """What another split of the same prefill does to a logit."""
        return noise(self.loaded, self.ids(64)).last

    def shift(self, logits: torch.Tensor, expected: torch.Tensor) -> float:
        """Largest difference of any logit in units of the noise floor; infinite when not finite."""
        gap = float((logits.double() - expected.double()).abs().max())
        return gap / self.noise if gap == gap else float("inf")

    @staticmethod
    def digest(cache: Any) -> str:
        """Digest of all K/V that a library cache holds now."""
        tensors = [
            (f"{i}.{part}", getattr(layer, part))
            for i, layer in enumerate(cache.layers)
            for part in ("keys", "values")
            if torch.is_tensor(getattr(layer, part, None))
        ]
        return digest_named(tensors)


def same_top(logits: torch.Tensor, expected: torch.Tensor) -> float:
    """Share of rows whose most probable token is the same."""
    return float((logits.argmax(-1) == expected.argmax(-1)).double().mean())


def seconds(work: Callable[[], Any], runs: int = 5) -> float:
    """Median seconds of `work` after one warm-up."""
    return clock.settled(lambda: clock.seconds(work), runs)
