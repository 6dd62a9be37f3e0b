"""The system prefix lost, or sent twice."""

from typing import Any

import torch

from harness.pipeline.testbed import QUESTION, SYSTEM, conversation
from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, HOLDS, REFUTED, Bench, Settled, same_top
from harness.tokenizer.policy import encode

CLAIM = "Losing or doubling the system prefix shifts intent and positions."

LAYOUT = Layout(
    {"prefix_tokens": "tokens of the prefix", "tokens": "tokens in all"},
    "the prefix is",
    {"lost": "lost", "doubled": "doubled"},
    {
        "{}_shift_in_noise_floors": "shift, noise floors",
        "{}_top1_agreement": "tokens with the same most likely next one, share",
        "{}_positions_shifted_by": "positions move by",
        "{}_kl_of_the_answer": "KL of the answer's first token, nats",
    },
)


def settle(bench: Bench) -> Settled:
    chat = conversation(bench.tokenizer)
    prefix, question = max(chat.prefix, 1), encode("raw", bench.tokenizer, " " + QUESTION).ids
    whole = torch.tensor([[*chat.ids, *question]]).to(bench.loaded.device)
    ways = {"lost": whole[:, prefix:], "doubled": torch.cat([whole[:, :prefix], whole], dim=1)}
    expected = bench.loaded.forward(whole, torch.arange(whole.shape[1])[None].to(whole.device))
    tail = whole.shape[1] - prefix
    figures: dict[str, Any] = {"prefix_tokens": prefix, "tokens": whole.shape[1]}
    shifts = []
    for name, ids in ways.items():
        logits = bench.loaded.forward(ids, torch.arange(ids.shape[1])[None].to(ids.device))
        shifts.append(bench.shift(logits[:, -tail:], expected[:, -tail:]))
        figures[f"{name}_shift_in_noise_floors"] = shifts[-1]
        figures[f"{name}_top1_agreement"] = same_top(logits[:, -tail:], expected[:, -tail:])
        figures[f"{name}_positions_shifted_by"] = ids.shape[1] - whole.shape[1]
        gap = (logits[:, -1].log_softmax(-1) - expected[:, -1].log_softmax(-1))[0]
        figures[f"{name}_kl_of_the_answer"] = float(-(expected[:, -1].softmax(-1)[0] * gap).sum())
    holds = min(shifts) > BEYOND
    return Settled(
        HOLDS if holds else REFUTED,
        figures,
        "Lost or doubled, it moves every later position and what is said next."
        if holds
        else "Lost or doubled, it leaves the logits where they were.",
        "Every later position moves by the length of the prefix, and the distribution of the answer "
        "moves with it.",
        f"the chat begins with {SYSTEM!r} where the template takes a system turn",
    )
