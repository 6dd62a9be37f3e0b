"""The keys of the group `sampling`, by the names that the library's `GenerationConfig` has for them."""

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from harness.config.key import ONLY, at_least, only
from harness.errors import ConfigProblem

_SHARES = ("top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff")
_CHOICE = ("name", "seed", "stop", "eos_token_id")  # not about scores


@dataclass
class SamplingConfig:
    """How the next token is chosen, and where a continuation ends."""

    name: str = "???"
    temperature: float = only(1.0)
    top_k: int = only(0)
    top_p: float = only(1.0)
    repetition_penalty: float = only(1.0)
    seed: int | None = None  # None: the run's seed, or the restored generator state
    stop: list[str] = field(default_factory=list)  # texts that end a continuation
    eos_token_id: Any = None  # ids that end it; None: the model's own, []: none
    min_p: float | None = only(None)
    top_h: float | None = only(None)
    typical_p: float | None = only(None)
    epsilon_cutoff: float | None = only(None)
    eta_cutoff: float | None = only(None)
    no_repeat_ngram_size: int = only(0)
    bad_words_ids: list[list[int]] = field(default_factory=list, metadata=ONLY)
    suppress_tokens: list[int] = field(default_factory=list, metadata=ONLY)
    begin_suppress_tokens: list[int] = field(default_factory=list, metadata=ONLY)
    sequence_bias: list[Any] = field(default_factory=list, metadata=ONLY)  # [[[ids], bias], ...]
    min_length: int = only(0)
    min_new_tokens: int = only(0)
    # [from token, factor]
    exponential_decay_length_penalty: Any = field(default=None, metadata=ONLY)
    remove_invalid_values: bool = only(False)
    renormalize_logits: bool = only(False)

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigProblem("sampling.temperature must be above 0; use sampling=greedy for 0.")
        if self.repetition_penalty <= 0:
            raise ConfigProblem("sampling.repetition_penalty must be above 0 (1 switches it off).")
        for key in ("top_k", "no_repeat_ngram_size", "min_length", "min_new_tokens"):
            at_least(f"sampling.{key}", getattr(self, key), 0)
        for key in _SHARES:
            value = getattr(self, key)
            if value is not None and not 0 < value <= 1:
                raise ConfigProblem(f"sampling.{key}={value} is not possible: give 0 < {key} <= 1.")
        if type(self.eos_token_id) is int:
            self.eos_token_id = [self.eos_token_id]
        for key in ("eos_token_id", "suppress_tokens", "begin_suppress_tokens"):
            _check_ids(key, getattr(self, key) or [])
        for words in self.bad_words_ids:
            _check_ids("bad_words_ids", words, empty=False)
        if any(not isinstance(text, str) or not text for text in self.stop):
            raise ConfigProblem("sampling.stop: each entry is a text of one character or more.")
        self.sequence_bias = [_biased(pair) for pair in self.sequence_bias]
        decay = self.exponential_decay_length_penalty
        if decay is not None and not _decaying(decay):
            raise ConfigProblem(
                "sampling.exponential_decay_length_penalty: give [tokens, factor], as [16, 1.05]."
            )

    def told(self) -> dict[str, Any]:
        """The keys that say something else than their default, `name` and `seed` left out."""
        default = SamplingConfig()
        every = {f.name: getattr(self, f.name) for f in fields(SamplingConfig)}
        return {
            key: value
            for key, value in every.items()
            if key not in ("name", "seed") and value != getattr(default, key)
        }

    def scores(self) -> dict[str, Any]:
        """Those of them that move scores: arguments of the library's `GenerationConfig`."""
        return {key: value for key, value in self.told().items() if key not in _CHOICE}


def most_likely(document: Mapping[str, Any]) -> bool:
    """Whether a sampler, as a record tells it, chooses the most likely token whatever went before."""
    default = SamplingConfig()
    moved = any(v != getattr(default, k, None) for k, v in document.items() if k not in _CHOICE)
    return document.get("name", "greedy") == "greedy" and not moved


def _check_ids(key: str, ids: Any, empty: bool = True) -> None:
    plain = isinstance(ids, list) and all(type(i) is int and i >= 0 for i in ids)
    if not plain or not (ids or empty):
        raise ConfigProblem(f"sampling.{key} holds {ids}: give token ids, as [5, 17].")


def _decaying(pair: Any) -> bool:
    match pair:
        case [int() as start, int() | float() as factor]:
            return start >= 0 and factor > 0
    return False


def _biased(pair: Any) -> list[Any]:
    """`[[ids], bias]` with the bias as the library takes it."""
    match pair:
        case [[*ids], int() | float() as bias] if not isinstance(bias, bool):
            _check_ids("sequence_bias", ids, empty=False)
            return [ids, float(bias)]
    raise ConfigProblem(
        f"sampling.sequence_bias holds {pair}: give pairs of ids and bias, as [[[5], -2.0]]."
    )
