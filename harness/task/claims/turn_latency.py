"""Time per turn, cached beside naive."""

from statistics import median

import torch

from harness.errors import UnsupportedModel
from harness.model.ending import end_tokens
from harness.pipeline.dialogue import Dialogue, answered_anew
from harness.report.claims import Layout
from harness.task.claims.bench import DEPENDS, HOLDS, REFUTED, Bench, Settled, claim

CLAIM = "Cached turns answer in constant time while naive re-processing grows."
TURNS, CHATS = 40, 3
QUARTER = TURNS // 4
SPREADS = 2.0  # of the clock: a growth up to so many of them is not told apart from constant
FINE = 0.2  # a clock that tells no smaller growth than that shows no constant time
COARSE = 0.5  # of the naive growth: a clock that cannot tell so much settles nothing
LAYOUT = Layout(
    {
        "template": "the model has a chat template",
        "turns": "turns of a chat",
        "chats": "chats, of which each turn has its median",
        "tokens_at_the_end": "tokens at the end",
        "naive_over_cached_at_the_end": "naive over cached, last quarter",
        "spread_of_cached_turns": "spread of cached turns within a quarter",
        "growth_the_clock_can_tell": "growth that the clock can tell: twice that",
    },
    "turns",
    {"cached": "cached", "naive": "naive"},
    {
        "{}_seconds_last_quarter": "median seconds, last quarter",
        "{}_last_quarter_over_first": "that over the first quarter",
        "{}_growth": "growth: that less 1",
    },
)


@claim(CLAIM, LAYOUT)
def turn_latency(bench: Bench) -> Settled:
    try:
        chats = [_chat(bench) for _ in range(CHATS)]
    except UnsupportedModel as problem:
        return Settled(DEPENDS, {"template": False}, "On the model: no chat.", str(problem))
    cached, plain = (
        [median(turn) for turn in zip(*(chat[way] for chat in chats), strict=True)]
        for way in (0, 1)
    )
    figures = {"turns": TURNS, "chats": CHATS, "tokens_at_the_end": chats[0][2]}
    return settled(cached, plain, figures)


def settled(cached: list[float], plain: list[float], figures: dict[str, int]) -> Settled:
    """What the seconds of each turn come to. figures: measured beside them."""
    ours, theirs = growth(cached), growth(plain)
    least, naive_least = (SPREADS * spread(seconds) for seconds in (cached, plain))
    grew = f"cached turns grew {ours:.0%}, naive ones {theirs:.0%}"
    if theirs <= naive_least:
        verdict, short = REFUTED, f"Naive turns grew {theirs:.0%}, not beyond the clock's spread."
    elif ours >= theirs:
        verdict, short = REFUTED, f"It grows as fast: {grew}."
    elif least > COARSE * theirs:
        verdict = DEPENDS
        short = f"On the clock: too coarse here, it tells a growth beyond {least:.0%} only; {grew}."
    elif ours > least:
        verdict = DEPENDS
        short = f"On how long the chat is: {grew}, and the clock tells a growth beyond {least:.0%}."
    elif least > FINE:
        verdict = DEPENDS
        short = f"On the clock: turns this short do not tell, {grew}, and it tells only a growth beyond {least:.0%}."
    else:
        verdict = HOLDS
        short = f"Not told apart from constant: {grew}, and the clock tells a growth beyond {least:.0%}."
    last = {"cached": median(cached[-QUARTER:]), "naive": median(plain[-QUARTER:])}
    return Settled(
        verdict,
        {
            **figures,
            "cached_last_quarter_over_first": 1 + ours,
            "naive_last_quarter_over_first": 1 + theirs,
            "cached_growth": ours,
            "naive_growth": theirs,
            "cached_seconds_last_quarter": last["cached"],
            "naive_seconds_last_quarter": last["naive"],
            "naive_over_cached_at_the_end": last["naive"] / last["cached"],
            "spread_of_cached_turns": spread(cached),
            "growth_the_clock_can_tell": least,
        },
        short,
        "Per turn the cached path sends only new ids, and each of them attends to a longer past. Naive "
        "re-processing reads the whole chat again.",
        f"the same question every turn, both ways side by side; a quarter is {QUARTER} turns, the first one "
        "begins after the prefill; the spread of the clock is the interquartile range of a quarter's turns over "
        "their median, of the two quarters the larger, and a growth up to twice that is not told apart from "
        f"constant; where that is more than {FINE:.0%}, or {COARSE:.0%} of the naive growth, nothing is settled",
    )


def growth(seconds: list[float]) -> float:
    """By what share the median turn of the last quarter takes longer than that of the first, whose prefill is left out."""
    return median(seconds[-QUARTER:]) / median(seconds[1 : QUARTER + 1]) - 1


def spread(seconds: list[float]) -> float:
    """How far turns of one quarter lie apart: interquartile range over median, the first or the last, whichever is more."""
    return max(_spread(seconds[1 : QUARTER + 1]), _spread(seconds[-QUARTER:]))


def _spread(seconds: list[float]) -> float:
    ordered = sorted(seconds)
    return (ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]) / median(ordered)


def _chat(bench: Bench) -> tuple[list[float], list[float], int]:
    loaded = bench.loaded
    chat = Dialogue(bench.session, bench.session.sampler())
    cached, plain, ends = [], [], end_tokens(loaded)
    for _ in range(TURNS):
        before = len(chat.buffer)
        turn = chat.ask("what is k ? the old man walked to the river .", 6)
        history = torch.tensor([chat.buffer[: before + turn.sent]])
        _, seconds = answered_anew(loaded, history, len(turn.ids), ends)
        cached.append(turn.seconds)
        plain.append(seconds + turn.rendering)
    return cached, plain, len(chat.buffer)
