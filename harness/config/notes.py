"""What a sweep would do in silence: it is told on the console before the first point, and on the page."""

from collections.abc import Sequence

from harness import variants
from harness.config.choice import chosen, readable, unheeded
from harness.config.grid import jobs, repeated
from harness.config.literal import TEXTS, decoded, texts

EVALUATION = "evaluate"  # a task


def of_sweep(overrides: Sequence[str]) -> list[str]:
    """A sentence for each: a text with a comma is one text, a seed that draws nothing, a point that is run twice, a
    key that is not heeded by all. overrides: all of the sweep."""
    told = []
    for override in overrides:
        key, _, value = decoded(override).partition("=")
        if key.lstrip("+") in TEXTS and "," in value and not texts(override):
            told.append(f"""{key} is one text with a comma, not swept; several: '{key}="a","b"'""")
    several = [o for o in overrides if o.startswith("seed=") and jobs([o]) != 1]
    if several and _greedy(overrides):
        told.append("seed draws nothing with sampling=greedy")
        if "random" in chosen("prune", overrides):
            told[-1] += "; prune=random draws by prune.seed"
        if any("seed" in readable("prompt", option) for option in _questions(overrides)):
            told[-1] += "; the questions are drawn by prompt.seed"
    for key, twice in repeated(overrides).items():
        told.append(f"{key}={', '.join(twice)} is there more than once, and is run as often")
    for key, deaf in unheeded(overrides).items():
        without = ", ".join(f"{key.partition('.')[0]}={option}" for option in deaf)
        told.append(f"{key} is not read by {without}, which runs without it")
    return told


def _greedy(overrides: Sequence[str]) -> bool:
    """Whether no point, of the main line or an evaluation, draws anything by `seed`."""
    tasks, sampling = (chosen(group, overrides) for group in ("task", "sampling"))
    return {*tasks} <= {"experiment", EVALUATION} and sampling == ["greedy"]


def _questions(overrides: Sequence[str]) -> list[str]:
    """The prompts that an evaluation asks; none of another task."""
    known = {*variants.options("prompt")} if EVALUATION in chosen("task", overrides) else set()
    return [option for option in chosen("prompt", overrides) if option in known]
