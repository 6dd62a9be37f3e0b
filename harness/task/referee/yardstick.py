"""What comes out of an engine without a cache, and how far its own cold runs lie apart."""

import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from harness.engine import Answer, Engine
from harness.engine.base import ALONE, IN_COMMON, Prompt, extended, forced
from harness.task.referee import tops
from harness.task.referee.reasons import Reason, impossible

NEVER_SENT = 12  # leading tokens (or words) that make a prompt new to the server
AT_ONCE = 3  # requests at the same time, where a cold run cannot be had twice
FROM_HITS = "from the cache, again"  # for want of a second cold run
TOGETHER = "at the same time"
PREFILL = "prefilled instead of decoded"
PREFILLED = 6  # steps whose decoding is checked against a prefill


Exact = Callable[[Sequence[int], Sequence[int]], np.ndarray]  # prompt, tokens -> `[tokens, vocab]`


@dataclass(frozen=True)
class Yardstick:
    """One prompt, its cold run, and the comparisons of other cold runs with it, by composition.

    exact: `[steps, vocab]` float64 log-probabilities along the cold run's tokens, where the weights can
    be read; the cold runs' comparisons then have their `errors` against it, and so has `alone`.
    """

    prompt: Prompt
    reference: Answer
    others: dict[str, dict[str, Any]]
    least: float  # one rounding
    exact: np.ndarray | None = None
    alone: tuple[float, ...] = ()
    cut: tuple[
        str, ...
    ] = ()  # of the others, those that cut the sums otherwise, which no repeat does

    @property
    def plain(self) -> float | None:
        """The largest error of a cold run against float64, in nats; None without an oracle."""
        return self._plain([*self.others])

    def plain_without(self, name: str) -> float | None:
        """The same, of every cold run but `name`."""
        return self._plain([n for n in self.others if n != name])

    def _plain(self, names: Sequence[str]) -> float | None:
        if self.exact is None:
            return None
        others = (e for n in names for e in self.others[n].get("errors", ()))
        return max([self.least, *self.alone, *others])

    def compare(self, answer: Answer) -> dict[str, Any]:
        """Metrics of `answer` against the cold run, and its errors against float64."""
        return _metrics(answer, self.reference, self.exact)

    @property
    def narrow(self) -> bool:
        """Whether the floor has seen one composition of the sums alone: nothing was cold a second time."""
        return all(name.startswith((FROM_HITS, TOGETHER)) for name in self.others)

    @property
    def floor(self) -> dict[str, float]:
        return tops.worst(list(self.others.values()), self.least)

    def without(self, name: str) -> float:
        """The floor in nats that the comparison `name` did not help to make."""
        rest = [m for n, m in self.others.items() if n != name]
        return tops.worst(rest, self.least)["max_abs_diff"]

    @property
    def repeats(self) -> float:
        """How far runs lie apart, in nats, that were cut into calls alike, to the bit of what is listed."""
        rest = [m for n, m in self.others.items() if n not in self.cut]
        return tops.worst(rest, tops.rounding(self.reference))["max_abs_diff"]


def measure(
    engine: Engine, prompt: Prompt, steps: int, oracle: Exact | None = None
) -> Yardstick | Reason:
    """The yardstick for `prompt` (where cold runs repeat) or for it behind a head that was never sent.
    A Reason says why there is none. oracle: float64 of the engine's weights."""
    if not engine.repeatable:
        return _at_once(engine, fresh(prompt), steps, oracle)
    reference = engine.evaluate(prompt, steps)
    if not reference.tokens:
        return Reason("ended_at_once")
    exact = _exact(oracle, prompt, reference)
    answers = {ALONE.name: reference}
    others = {}
    for composition in engine.compositions:
        cold = partial(engine.evaluate, composition=composition)
        answer = forced(cold, prompt, reference)
        answers[composition.name] = answer
        others[composition.name] = _metrics(answer, reference, exact)
    if prefilled := _prefilled(engine, prompt, reference, exact):
        others[PREFILL] = prefilled
    if wrong := impossible([*answers.values()], prompt):
        return wrong
    if warm := [f"{n} ({a.reused})" for n, a in answers.items() if (a.reused or 0) > IN_COMMON]:
        return Reason("not_cold", {"runs": ", ".join(warm)})
    cut = (PREFILL, *(c.name for c in engine.compositions if c.chunk))
    return _yardstick(engine, prompt, reference, others, exact, cut)


def _yardstick(
    engine: Engine,
    prompt: Prompt,
    reference: Answer,
    others: dict[str, Any],
    exact: np.ndarray | None,
    cut: tuple[str, ...] = (),
) -> Yardstick:
    alone = () if exact is None else tuple(tops.errors(reference, exact))
    least = tops.rounding(reference, engine.roundoff)
    return Yardstick(prompt, reference, others, least, exact, alone, cut)


def _exact(oracle: Exact | None, prompt: Prompt, reference: Answer) -> np.ndarray | None:
    """None also where tokens go by their text: float64 of what, nobody can say."""
    ids = [t for t in (reference.ids or reference.tokens) if isinstance(t, int)]
    listed = all(isinstance(t, int) for top in reference.tops for t in top)
    if oracle is None or isinstance(prompt, str) or len(ids) < len(reference.tokens) or not listed:
        return None
    return oracle(prompt, ids)


def _metrics(answer: Answer, reference: Answer, exact: np.ndarray | None) -> dict[str, Any]:
    metrics = tops.compare(answer, reference)
    return metrics if exact is None else metrics | {"errors": tops.errors(answer, exact)}


def fresh(prompt: Prompt) -> Prompt:
    """`prompt` behind tokens of its own in an order that nobody has sent before."""
    chance = random.Random(os.urandom(16))
    if isinstance(prompt, str):
        return f"{chance.getrandbits(64):x} {prompt}"
    return [*chance.choices(prompt, k=NEVER_SENT), *prompt]


def bare(prompt: Prompt) -> Prompt:
    """What `fresh` was given."""
    return prompt.partition(" ")[2] if isinstance(prompt, str) else prompt[NEVER_SENT:]


def other_prompt(prompt: Prompt) -> Prompt:
    """The same tokens (or words) in another order: as long, and about something else."""
    parts: list[Any] = prompt.split(" ") if isinstance(prompt, str) else list(prompt)
    mixed = random.Random(0).sample(parts, len(parts))
    return " ".join(mixed) if isinstance(prompt, str) else mixed


def half_shared(prompt: list[int]) -> tuple[list[int], int]:
    """The first half of `prompt`, then the other backwards; and how many tokens they have in common."""
    half = len(prompt) // 2
    turned = [*prompt[:half], *reversed(prompt[half:])]
    return turned, next((i for i, (a, b) in enumerate(zip(prompt, turned)) if a != b), len(prompt))


def one_off(prompt: Prompt) -> Prompt:
    """Every token one place later than it should be, the first one doubled."""
    if isinstance(prompt, str):
        return prompt.split(" ")[0] + " " + prompt
    return [prompt[0], *prompt[:-1]]


def over_state_of(other: Prompt, prompt: Prompt) -> Prompt:
    """What an engine has read that took the state of `other` for that of `prompt`: it evaluates the
    last token itself."""
    if isinstance(prompt, str):
        assert isinstance(other, str)  # an engine takes one kind of prompt
        return f"{other.rpartition(' ')[0]} {prompt.rpartition(' ')[2]}"
    return [*other[:-1], prompt[-1]]


def wrong(engine: Engine, prompt: Prompt, other: Prompt, reference: Answer) -> Answer:
    """What the engine says that took the state of `other` for that of `prompt`: of the very tokens
    that it has read then."""
    ask = engine.evaluate if engine.repeatable else engine.resume
    return until_other(ask(over_state_of(other, prompt), len(reference.tokens)), reference)


CONTROLS: dict[str, Callable[[Prompt], Prompt]] = {
    "other_prompt": other_prompt,
    "one_token_off": one_off,
}


def _prefilled(
    engine: Engine, prompt: Prompt, reference: Answer, exact: np.ndarray | None
) -> dict[str, Any]:
    """Some steps of the reference again, its tokens read as part of the prompt."""
    count = len(reference.tokens)
    steps = sorted({round(i * (count - 1) / PREFILLED) for i in range(1, PREFILLED + 1)} - {0})
    chosen, tokens, listed = [], [], []
    for step in steps:
        if (longer := extended(prompt, reference, step)) is None:
            return {}
        answer = engine.evaluate(longer, 1)
        if not answer.tokens:
            continue  # a tie with the end of the sequence, which lists nothing
        chosen.append(step)
        tokens.append(answer.tokens[0])
        listed.append(answer.tops[0])
    if not chosen:
        return {}
    ids = tuple(reference.tokens[s] for s in chosen)
    expected = Answer(ids, tuple(reference.tops[s] for s in chosen), None)
    rows = None if exact is None else exact[chosen]
    return _metrics(Answer(tuple(tokens), tuple(listed), None), expected, rows)


def _at_once(
    engine: Engine, prompt: Prompt, steps: int, oracle: Exact | None
) -> Yardstick | Reason:
    """The yardstick of a prompt that can be cold only once: several runs at the same time, before any
    is cached. Where the engine shares even those, the floor is how far answers from its cache lie
    apart among themselves: weaker, but a cache that is wrong each time alike does not widen it."""
    answers = engine.together(prompt, steps, AT_ONCE)
    if any(a.reused is None for a in answers):
        return Reason("cold_unsaid")
    if wrong := impossible(answers, prompt):
        return wrong
    cold = [a for a in answers if (a.reused or 0) < NEVER_SENT]
    if not cold:
        counts = ", ".join(str(a.reused) for a in answers)
        return Reason("never_cold", {"head": NEVER_SENT, "counts": counts})
    reference, *rest = cold
    if not reference.tokens:
        return Reason("ended_at_once")
    exact = _exact(oracle, prompt, reference)
    others = {
        f"{TOGETHER}, {i}": _metrics(until_other(a, reference), reference, exact)
        for i, a in enumerate(rest, 1)
    }
    if not others:
        hits = [forced(engine.resume, prompt, reference) for _ in range(1 + AT_ONCE)]
        apart = [tops.compare(until_other(h, hits[0]), hits[0]) for h in hits[1:]]
        others = {FROM_HITS: sorted(apart, key=lambda m: m["max_abs_diff"])[len(apart) // 2]}
    return _yardstick(engine, prompt, reference, others, exact)


def until_other(answer: Answer, reference: Answer) -> Answer:
    """`answer` up to its first token that is not the reference's."""
    pairs = enumerate(zip(answer.tokens, reference.tokens))
    count = 1 + next((i for i, (a, b) in pairs if a != b), len(answer.tokens))
    return Answer(answer.tokens[:count], answer.tops[:count], answer.reused)
