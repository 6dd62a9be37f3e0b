"""The facts of a run: what `result.json` holds."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from harness.results.fact import Fact, block, fact, facts
from harness.results.metric import registered


@dataclass(frozen=True)
class Metrics:
    """Restored against uninterrupted, over every step. The noise floor has the same fields."""

    bitwise_equal: bool | None = fact(
        "bit-equal logits", compare="noise", track="tag", better="higher"
    )
    max_abs_diff: float | None = fact("largest logit difference", compare="noise", track="metric", better="lower",
                                      meaning="largest difference of any logit at any step")  # fmt: skip
    mean_abs_diff: float | None = fact(
        "mean logit difference", compare="noise", track="metric", better="lower"
    )
    max_ulp: int | None = fact("largest difference", unit="ULP", compare="noise", track="metric", better="lower",
                               meaning="units in the last place: representable numbers between the two")  # fmt: skip
    kl_mean: float | None = fact("KL, mean", unit="nats", compare="noise", track="metric", better="lower",
                                 meaning="KL(uninterrupted || restored) of the next-token distribution, mean over steps")  # fmt: skip
    kl_max: float | None = fact("KL, largest", unit="nats", compare="noise", track="metric", better="lower",
                                meaning="KL(uninterrupted || restored), the largest step")  # fmt: skip
    top1_agreement: float | None = fact("same top token", format=".1%", compare="noise", track="metric", better="higher",
                                        meaning="share of steps with the same most likely token")  # fmt: skip
    top5_overlap: float | None = fact("top-5 overlap", format=".1%", compare="noise", track="metric", better="higher",
                                      meaning="share of the five most likely tokens in common, mean over steps")  # fmt: skip
    first_divergence: int | None = fact("first other token at step", compare="noise", track="metric", better="higher",
                                        meaning="first step whose most likely token differs, from 0; none: -")  # fmt: skip
    nll_delta: float | None = fact("change of NLL", unit="nats", compare="noise", track="metric", better="lower",
                                   meaning="restored minus uninterrupted, of the tokens that follow, mean")  # fmt: skip


@dataclass(frozen=True)
class Oracle:
    """Errors against the same weights in float64, uncached."""

    restored: float | None = fact("error, restored", compare="noise", track="metric", better="lower",
                                  meaning="largest logit error of the restored run against float64")  # fmt: skip
    plain: float | None = fact("error, plain path", compare="noise", track="metric",
                               meaning="the same of the model run without a cache: rounding's own")  # fmt: skip
    ratio: float | None = fact("error / rounding", compare="noise", track="metric", better="lower",
                               meaning="restored over plain; equivalent allows 2")  # fmt: skip
    restored_mean: float | None = fact(
        "mean error, restored", compare="noise", track="metric", better="lower"
    )
    plain_mean: float | None = fact("mean error, plain path", compare="noise", track="metric")


@dataclass(frozen=True)
class Mutation:
    """What became of the cache that was handed in."""

    mutated: bool | None = fact("caller's cache written", track="tag")
    length_before: int | None = fact("cache length before")
    length_after: int | None = fact("cache length after")
    digest_before: str | None = fact("cache digest before", compare="noise")
    digest_after: str | None = fact("cache digest after", compare="noise")
    bytes_copied_per_token: float | None = fact("copied per token", unit="bytes", format=",.0f", track="metric", better="lower")  # fmt: skip


@dataclass(frozen=True)
class Size:
    tokens: int | None = fact("tokens", track="metric")
    kept_tokens: int | None = fact("tokens kept", track="metric", better="lower")
    kv_bytes: int | None = fact("K/V", unit="bytes", track="metric", better="lower")
    stored_bytes: int | None = fact("on disk", unit="bytes", compare="noise", track="metric", better="lower",
                                    meaning="K/V, tokenizer, documents and manifest")  # fmt: skip


def _seconds(label: str) -> Any:
    return fact(label, unit="s", format=".2g", compare="time", track="metric", better="lower")


@dataclass(frozen=True)
class Times:
    load_model: float | None = _seconds("load the model")
    prefill: float | None = _seconds("prefill")
    prune: float | None = _seconds("prune")
    save: float | None = _seconds("save")
    load: float | None = _seconds("load, verified")
    verify: float | None = _seconds("identity and proof")
    restore: float | None = _seconds("restore into a cache")
    first_token: float | None = _seconds("first token")
    per_token: float | None = _seconds("per token")
    recompute: float | None = _seconds("recompute")


@dataclass(frozen=True)
class Run:
    """Every block of a judged run that has facts of its own."""

    verdict: str = fact("verdict", compare="noise", track="tag", default="unjudged")
    against: str | None = fact("against", track="tag")
    metrics: Metrics | None = block(Metrics)
    noise_floor: Metrics | None = block(Metrics)
    oracle: Oracle | None = block(Oracle)
    mutation: Mutation | None = block(Mutation)
    size: Size | None = block(Size)
    time_s: Times | None = block(Times)


FACTS: dict[str, Fact] = dict(facts(Run))


def fact_of(path: str) -> Fact:
    """The Fact of a dotted path in `result.json`; of a metric of somebody's own too. One without metadata is named by its key."""
    known = FACTS.get(path)
    if known is None:
        key = path.rpartition(".")[2]
        known = registered().get(key)
    return known or Fact(path.rpartition(".")[2].replace("_", " "), compare="skip")


def values(result: Mapping[str, Any]) -> dict[str, Any]:
    """`dotted path -> value` of every fact that `result` has."""
    found = {}
    for path in [
        *FACTS,
        *(f"{where}.{name}" for where in ("metrics", "noise_floor") for name in registered()),
    ]:
        block_name, _, inner = path.partition(".")
        value = result.get(block_name)
        if inner:
            value = value.get(inner) if isinstance(value, Mapping) else None
        if value is not None:
            found[path] = value
    return found
