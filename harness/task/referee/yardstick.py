"""What comes out of an engine without a cache, and how far its own cold runs lie apart."""

import os
import random
from dataclasses import dataclass
from typing import Any

from harness.engine import Answer, Engine
from harness.engine.base import ALONE, Prompt, extended, forced
from harness.task.referee import tops

NEVER_SENT = 12  # leading tokens (or words) that make a prompt new to the server
AT_ONCE = 3  # requests at the same time, where a cold run cannot be had twice
UNSAID = "the engine does not say how many tokens it reused"
FROM_HITS = "from the cache, again"  # for want of a second cold run
PREFILLED = 6  # steps whose decoding is checked against a prefill


@dataclass(frozen=True)
class Yardstick:
    """One prompt, its cold run, and the comparisons of other cold runs with it, by composition."""

    prompt: Prompt
    reference: Answer
    others: dict[str, dict[str, Any]]
    least: float  # one rounding

    @property
    def floor(self) -> dict[str, float]:
        return tops.worst(list(self.others.values()), self.least)

    def without(self, name: str) -> float:
        """The floor in nats that the comparison `name` did not help to make."""
        rest = [m for n, m in self.others.items() if n != name]
        return tops.worst(rest, self.least)["max_abs_diff"]


def measure(engine: Engine, prompt: Prompt, steps: int) -> Yardstick | str:
    """The yardstick for `prompt` (where cold runs repeat) or for it behind a head that was never sent.
    A string says why there is none."""
    if not engine.repeatable:
        return _at_once(engine, fresh(prompt), steps)
    reference = engine.evaluate(prompt, steps)
    answers = {ALONE.name: reference}
    others = {}
    for composition in engine.compositions:
        answer = forced(lambda p, n, c=composition: engine.evaluate(p, n, c), prompt, reference)
        answers[composition.name] = answer
        others[composition.name] = tops.compare(answer, reference)
    if prefilled := _prefilled(engine, prompt, reference):
        others["prefilled instead of decoded"] = prefilled
    if warm := [f"{name} ({a.reused})" for name, a in answers.items() if a.reused]:
        return f"runs that should be cold reused tokens: {', '.join(warm)}"
    return Yardstick(prompt, reference, others, tops.rounding(reference))


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


def one_off(prompt: Prompt) -> Prompt:
    """Every token one place later than it should be, the first one doubled."""
    if isinstance(prompt, str):
        return prompt.split(" ")[0] + " " + prompt
    return [prompt[0], *prompt[:-1]]


def over_state_of(other: Prompt, prompt: Prompt) -> Prompt:
    """What an engine has read that took the state of `other` for that of `prompt`: it evaluates the
    last token itself."""
    if isinstance(prompt, str):
        return f"{other.rpartition(' ')[0]} {prompt.rpartition(' ')[2]}"
    return [*other[:-1], prompt[-1]]


def _prefilled(engine: Engine, prompt: Prompt, reference: Answer) -> dict[str, Any]:
    """Some steps of the reference again, its tokens read as part of the prompt."""
    count = len(reference.tokens)
    chosen = sorted({round(i * (count - 1) / PREFILLED) for i in range(1, PREFILLED + 1)} - {0})
    tokens, found = [], []
    for step in chosen:
        if (longer := extended(prompt, reference, step)) is None:
            return {}
        answer = engine.evaluate(longer, 1)
        tokens.append(answer.tokens[0])
        found.append(answer.tops[0])
    if not chosen:
        return {}
    expected = Answer(tuple(reference.tokens[s] for s in chosen), tuple(reference.tops[s] for s in chosen), None)  # fmt: skip
    return tops.compare(Answer(tuple(tokens), tuple(found), None), expected)


def _at_once(engine: Engine, prompt: Prompt, steps: int) -> Yardstick | str:
    """The yardstick of a prompt that can be cold only once: several runs at the same time, before any
    is cached. Where the engine shares even those, the floor is how far answers from its cache lie
    apart among themselves: weaker, but a cache that is wrong each time alike does not widen it."""
    answers = engine.together(prompt, steps, AT_ONCE)
    if any(a.reused is None for a in answers):
        return UNSAID
    cold = [a for a in answers if (a.reused or 0) < NEVER_SENT]
    if not cold:
        return "no cold run can be had: a prompt that was never sent before was reported as reused"
    reference, *rest = cold
    others = {
        f"at the same time, {i}": tops.compare(until_other(a, reference), reference)
        for i, a in enumerate(rest, 1)
    }
    if not others:
        hits = [forced(engine.resume, prompt, reference) for _ in range(1 + AT_ONCE)]
        apart = [tops.compare(until_other(h, hits[0]), hits[0]) for h in hits[1:]]
        others = {FROM_HITS: sorted(apart, key=lambda m: m["max_abs_diff"])[len(apart) // 2]}
    return Yardstick(prompt, reference, others, tops.rounding(reference))


def until_other(answer: Answer, reference: Answer) -> Answer:
    """`answer` up to its first token that is not the reference's."""
    count = 1 + next((i for i, (a, b) in enumerate(zip(answer.tokens, reference.tokens)) if a != b), len(answer.tokens))  # fmt: skip
    return Answer(answer.tokens[:count], answer.tops[:count], answer.reused)
