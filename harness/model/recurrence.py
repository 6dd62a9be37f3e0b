"""The one rule for feeding recurrent layers.

Some models of the library start their recurrence anew when several tokens are fed onto a past, and
continue it only when one token is fed. Which do is measured, not listed: a release that mends it is
fed in chunks again.
"""

from collections.abc import Callable
from typing import Any

import torch

PROBE = 12  # tokens before and after the cut
APART = 2e-5  # of the largest logit: float64 explains 3e-7, a recurrence begun anew 1e-3 and more


def continues(cache: Any) -> bool:
    """Whether `cache` holds recurrent state of tokens that came before."""
    return any(
        any(started.values())
        for layer in getattr(cache, "layers", ())
        if isinstance(started := getattr(layer, "has_previous_state", None), dict)
    )


def one_by_one(
    once: Callable[..., torch.Tensor],
    ids: torch.Tensor,
    positions: torch.Tensor,
    mask: torch.Tensor | None,
    cache: Any,
    keep: int,
) -> torch.Tensor:
    """Feed `ids` `[batch, new]` one token at a time; logits of the last `keep` (0: all). Grows `cache`."""
    count = ids.shape[1]
    past = 0 if mask is None else mask.shape[1] - count
    logits = [
        once(
            ids[:, i : i + 1],
            positions[:, i : i + 1],
            None if mask is None else mask[:, : past + i + 1],
            cache,
        )
        for i in range(count)
    ]
    return torch.cat(logits[-keep:] if keep else logits, dim=1)


def starts_anew(oracle: Any) -> bool:
    """Whether the model must be fed one token at a time onto a past.

    True when several tokens at once are further from an uncached float64 pass than rounding explains,
    and the same tokens one by one are not.
    """
    draw = torch.Generator().manual_seed(0)
    vocab = min(oracle.loaded.text_config.vocab_size, 1000)
    ids = torch.randint(3, vocab, (1, 2 * PROBE), generator=draw).to(oracle.loaded.device)
    whole = oracle.once(ids, PROBE)

    def apart(chunk: int) -> bool:
        cache = oracle.new_cache()
        oracle.once(ids[:, :PROBE], 1, cache)
        parts = [
            oracle.once(part, 0, cache, at=PROBE + i * chunk)
            for i, part in enumerate(ids[:, PROBE:].split(chunk, 1))
        ]
        gap = (torch.cat(parts, 1) - whole).abs().max()
        return not bool(gap <= APART * whole.abs().max())

    return apart(PROBE) and not apart(1)
