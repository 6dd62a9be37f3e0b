"""Time per turn, cached beside naive."""

from statistics import median

import torch

from harness.errors import UnsupportedModel
from harness.model.ending import end_tokens
from harness.pipeline.dialogue import Dialogue, answered_anew
from harness.task.claims.bench import DEPENDS, HOLDS, REFUTED, Bench, Settled

CLAIM = "Cached turns answer in constant time while naive re-processing grows."
TURNS = 40


def settle(bench: Bench) -> Settled:
    try:
        cached, plain, tokens = _chat(bench)
    except UnsupportedModel as problem:
        return Settled(DEPENDS, {"template": False}, str(problem))
    tenth = TURNS // 4
    ours = median(cached[-tenth:]) / median(cached[1 : tenth + 1])
    theirs = median(plain[-tenth:]) / median(plain[1 : tenth + 1])
    spread = _spread(cached)
    flat, grows = ours <= 1 + 2 * spread, theirs > 1 + 2 * _spread(plain) and theirs > ours
    return Settled(
        HOLDS if flat and grows else DEPENDS if grows else REFUTED,
        {
            "turns": TURNS,
            "tokens_at_the_end": tokens,
            "cached_last_quarter_over_first": ours,
            "naive_last_quarter_over_first": theirs,
            "cached_seconds_last_quarter": median(cached[-tenth:]),
            "naive_seconds_last_quarter": median(plain[-tenth:]),
            "naive_over_cached_at_the_end": median(plain[-tenth:]) / median(cached[-tenth:]),
            "spread_of_cached_turns": spread,
        },
        "Per turn the cached path sends only new ids; what grows is one attention row over the past, "
        "which stays below the spread of the clock here. Naive re-processing grows with the chat.",
        "the same question every turn, measured side by side; `flat` means within twice the spread "
        "(interquartile range over median) of the cached turns",
    )


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


def _spread(seconds: list[float]) -> float:
    ordered = sorted(seconds[1:])
    return (ordered[3 * len(ordered) // 4] - ordered[len(ordered) // 4]) / median(ordered)
