"""The contradiction about pad priming: neutral or poison?"""

from typing import Any

import torch

from harness.capture import static_cache
from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, DEPENDS, HOLDS, REFUTED, Bench, Settled, same_top

CLAIM = "Priming a cache with pad tokens is neutral, or poisons it: the notes say both."

LAYOUT = Layout(
    {"pads": "pad tokens", "prompt_tokens": "tokens of the prompt"},
    "pads before the prompt",
    {
        "attended": "attended to, positions go on",
        "attended_positions_from_zero": "attended to, positions from zero",
        "masked_positions_go_on": "masked out, positions go on",
        "masked_positions_from_zero": "masked out, positions from zero",
        "reset_after_priming": "wiped by reset()",
    },
    {
        "{}_shift_in_noise_floors": "shift, noise floors",
        "{}_top1_agreement": "tokens with the same most likely next one, share",
    },
)


def settle(bench: Bench) -> Settled:
    limit = bench.loaded.max_positions or 4096
    pads, tokens = (
        min(getattr(bench.session.cfg.cache, "pad_prime", 0) or 1024, limit // 2 - 64),
        48,
    )
    ids = bench.ids(tokens)
    pad = bench.tokenizer.pad_token_id or bench.tokenizer.eos_token_id or 0
    prime = torch.full((1, pads), pad, dtype=ids.dtype, device=ids.device)
    clean = bench.step(static_cache(bench.loaded, tokens), ids, 0)
    ways = {
        "attended": _primed(bench, prime, ids, offset=pads, masked=False),
        "attended_positions_from_zero": _primed(bench, prime, ids, offset=0, masked=False),
        "masked_positions_go_on": _primed(bench, prime, ids, offset=pads, masked=True),
        "masked_positions_from_zero": _primed(bench, prime, ids, offset=0, masked=True),
        "reset_after_priming": _reset(bench, prime, ids),
    }
    figures: dict[str, Any] = {"pads": pads, "prompt_tokens": tokens}
    for name, logits in ways.items():
        figures[f"{name}_shift_in_noise_floors"] = bench.shift(logits[:, -1], clean[:, -1])
        figures[f"{name}_top1_agreement"] = same_top(logits, clean)
    shifts = [v for k, v in figures.items() if k.endswith("floors")]
    poisons, neutral = max(shifts) > BEYOND, min(shifts) <= BEYOND
    verdict = DEPENDS if poisons and neutral else REFUTED if poisons else HOLDS
    return Settled(
        verdict,
        figures,
        {
            DEPENDS: "On the mask: pads that are attended to poison it; masked out or wiped they change nothing.",
            REFUTED: "In every way tried here the pads change the logits.",
            HOLDS: "In no way tried here do the pads change the logits.",
        }[verdict],
        "Both notes are right about their own case. Pads that stay in the cache and may be "
        "attended to poison it, wherever the positions start. Pads that are masked out, with the "
        "prompt at its own positions, or that are wiped by reset() before the prompt, change "
        "nothing beyond the noise: then priming only allocates memory.",
        "a static cache, primed as the script in those notes does it",
    )


def _primed(
    bench: Bench, prime: torch.Tensor, ids: torch.Tensor, offset: int, masked: bool
) -> torch.Tensor:
    pads, tokens = prime.shape[1], ids.shape[1]
    cache = static_cache(bench.loaded, pads + tokens)
    bench.step(cache, prime, 0)
    mask = torch.ones(1, pads + tokens, dtype=torch.int64, device=ids.device)
    if masked:
        mask[:, :pads] = 0
    return bench.step(cache, ids, offset, mask)


def _reset(bench: Bench, prime: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
    cache = static_cache(bench.loaded, prime.shape[1] + ids.shape[1])
    bench.step(cache, prime, 0)
    cache.reset()
    return bench.step(cache, ids, 0)
