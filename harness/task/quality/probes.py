"""Probes of a pruned state: what is read on, what is answered, and how sure the averages are.

A probe is a context, which is captured and pruned, and what follows, which is fed with the true
tokens: greedy decoding says an answer if and only if each of its tokens is the most likely one
after the true tokens before it, so one pass decides.
"""

import random
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from math import exp, sqrt
from typing import Any

import torch

from harness.cache.registry import decoder as build_decoder
from harness.capture import capture
from harness.capture.observe import observing, received
from harness.errors import InputProblem
from harness.pipeline.prompt import prompt_text
from harness.snapshot.state import State
from harness.tokenizer.policy import continuation, encode

Z = 1.96  # 95%


@dataclass(frozen=True)
class Probe:
    """context and follow: ids. scored: how many tokens at the end of `follow` count.

    where: what the averages are split by: measure, asked, distance, depth, seed.
    """

    context: tuple[int, ...]
    follow: tuple[int, ...]
    scored: int
    where: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Answer:
    """nll: nats per scored token; right: whether every scored token is the most likely one;
    logits: `[scored, vocab]`."""

    nll: float
    right: bool
    logits: torch.Tensor


def prose_probes(session: Any) -> Iterator[Probe]:
    """Held-out texts: the tiny model's prose, or windows of the text or file that was given."""
    cfg, task = session.cfg, session.cfg.task
    length = task.context + task.follow
    own = cfg.text is not None or cfg.prompt.name == "file"
    given = _ids(session, prompt_text(cfg)[0]) if own else ()
    if own and len(given) < length + task.samples:
        raise InputProblem(
            f"the text has {len(given)} tokens, but task.context + task.follow + task.samples are "
            f"{length + task.samples}. Give a longer text or smaller numbers."
        )
    for seed in range(task.samples):
        if own:
            start = 1 + (len(given) - length) * seed // task.samples
            ids = given[:1] + given[start : start + length - 1]
        else:
            ids = _ids(session, _prose(session, random.Random(f"held out/{seed}"), length))[:length]
        yield Probe(ids[: task.context], ids[task.context :], task.follow - 1, {"measure": "text", "seed": seed})  # fmt: skip


def _prose(session: Any, rng: random.Random, length: int) -> str:
    """Prose of at least `length` words. The corpus keeps to words of one token each; a sentence with
    a word that this tokenizer splits was not of that kind when the model learned, and is left out,
    unless that leaves too little (any other model's tokenizer)."""
    from harness.model.assets import corpus

    told = corpus.prose(rng, length).removesuffix(" .").split(" . ")
    sentences = [sentence + " ." for sentence in told]
    split = session.loaded.tokenizer
    known = [s for s in sentences if len(split(" " + s, add_special_tokens=False)["input_ids"]) == len(s.split())]  # fmt: skip
    enough = sum(len(s.split()) for s in known) >= length
    return " ".join(known if enough else sentences)


def recall_probes(session: Any) -> Iterator[Probe]:
    """Held-out dialogues, each asked twice: the question after pruning, and before it.

    Half of the dialogues begin with prose, so that distance and depth do not say the same.
    """
    from harness.model.assets import corpus

    task, tokenizer = session.cfg.task, session.loaded.tokenizer
    policy = session.cfg.tokenizer
    for distance in task.distances:
        for seed in range(task.samples):
            rng = random.Random(f"recall/{distance}/{seed}")
            spare = task.context - distance - 40
            lead = spare if seed % 2 and spare >= 8 else 0
            told = corpus.recall_dialogue(rng, distance, 4, lead=lead)
            question = f" what is {told.name} ?"
            context = _ids(session, told.text.removesuffix(question))
            asks = continuation(policy, tokenizer, question).ids
            says = continuation(policy, tokenizer, told.answer).ids
            depth = 1 - distance / max(len(told.text.split()) - 4, 1)
            where = {"measure": "recall", "distance": distance, "depth": depth, "seed": seed}
            yield Probe(context, asks + says, len(says), {**where, "asked": "after pruning"})
            yield Probe(context + asks, says, len(says) - 1, {**where, "asked": "before pruning"})


def captured(session: Any, probe: Probe, observes: Iterable[int]) -> dict[int | None, State]:
    """The probe's context as a State: without scores (None), and with each of what `observes` names
    (see `Policy.observes`), all from one prefill."""
    loaded = session.loaded
    ids = torch.tensor([probe.context])
    documents = {"prompt_meta": {"prefix_ids": list(probe.context[:1])}}
    with ExitStack() as stack:
        watched = {n: stack.enter_context(observing(loaded, n)) for n in observes}
        state = capture(loaded, ids, torch.ones_like(ids), documents).state
    return {None: state, **{n: received(state, what) for n, what in watched.items()}}


def answered(session: Any, state: State, probe: Probe) -> Answer:
    """Feed what follows after `state`, which is only read, and score the last tokens of it."""
    follow = torch.tensor([probe.follow], device=session.loaded.device)
    runner = build_decoder(session.loaded, state, session.cfg.cache)
    logits = runner.step(follow[:, :-1])[0, -probe.scored :].double()
    wanted = follow[0, -probe.scored :]
    nll = -logits.log_softmax(-1).gather(-1, wanted[:, None]).mean()
    return Answer(float(nll), bool((logits.argmax(-1) == wanted).all()), logits)


def divergence(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Mean KL(expected || found) in nats per token."""
    a, b = found.log_softmax(-1), expected.log_softmax(-1)
    return float((b.exp() * (b - a)).sum(-1).mean())


def mean(values: Sequence[float], seed: int = 0) -> dict[str, Any]:
    """Mean with a 95% interval: percentiles of 2000 bootstrap samples over the seeds."""
    held = torch.tensor(values, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    drawn = torch.randint(len(held), (2000, len(held)), generator=generator)
    low, high = held[drawn].mean(1).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    return {"value": float(held.mean()), "low": float(low), "high": float(high), "n": len(held)}


def geometric(values: Sequence[float]) -> dict[str, Any]:
    """`mean` of logarithms, given back as exponentials: perplexities and their ratios."""
    found = mean(values)
    return {**found, **{k: exp(found[k]) for k in ("value", "low", "high")}}


def share(hits: Sequence[bool]) -> dict[str, Any]:
    """Share of hits with Wilson's 95% interval, which is honest at 0 and at 1."""
    n, p = len(hits), sum(hits) / len(hits)
    middle, spread = p + Z * Z / (2 * n), Z * sqrt(p * (1 - p) / n + Z * Z / (4 * n * n))
    scale = 1 + Z * Z / n
    return {
        "value": p,
        "low": max((middle - spread) / scale, 0.0),
        "high": min((middle + spread) / scale, 1.0),
        "n": n,
    }


def _ids(session: Any, text: str) -> tuple[int, ...]:
    cfg = session.cfg.tokenizer
    policy = "explicit" if cfg.name == "chat" else cfg
    return encode(policy, session.loaded.tokenizer, text).ids
