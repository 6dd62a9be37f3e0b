"""What a plain script does with the same material: a library cache, a loop, no question asked.

It really runs. It puts the K/V it finds into a library cache, keeps the cursor it finds, sends the
mask it finds, slices the re-rendered chat at the buffer's length, and picks tokens from the logits.
"""

import torch

from harness.cache.library import to_cache
from harness.config import SamplingConfig
from harness.model.loaded import Loaded
from harness.model.sampler import Sampler
from harness.pipeline.testbed import Bed, question, trimmed
from harness.snapshot.state import State

ERROR, WRONG, DRIFT, NOTHING = "error", "silent wrong tokens", "silent drift", "nothing visible"


def script(
    loaded: Loaded, state: State, sampler: Sampler, following: torch.Tensor | None, steps: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """Resume from `state`, feed `following` `[batch, n]` if any, generate `steps` tokens.

    Returns the tokens `[batch, steps]` and the logits they were chosen from `[batch, steps, vocab]`.
    """
    cache, cursor, mask = (
        to_cache(loaded, state),
        state.next_position[:, None],
        state.attention_mask,
    )
    last, history, tokens, rows = state.logits, state.token_ids, [], []

    def feed(ids: torch.Tensor) -> torch.Tensor:
        nonlocal cursor, mask, history
        positions = cursor + torch.arange(ids.shape[1])
        cursor, mask = cursor + ids.shape[1], torch.cat([mask, torch.ones_like(ids)], dim=1)
        history = torch.cat([history, ids], dim=1)
        return loaded.forward(ids, positions, mask, cache)[:, -1]

    if following is not None and following.shape[1]:
        last = feed(following)
    for _ in range(steps):
        token = sampler.choose(last, history)
        tokens.append(token)
        rows.append(last)
        last = feed(token.to(loaded.device))
    vocab = min(row.shape[-1] for row in rows)
    return torch.cat(tokens, dim=1), torch.stack([row[..., :vocab] for row in rows], dim=1)


def resume(
    bed: Bed, loaded: Loaded, state: State, sampling: SamplingConfig, rng: torch.Tensor | None
) -> list[tuple]:
    """The script twice: going on in mid-generation, and with the user's next question."""
    following = question(loaded.tokenizer, state.tokens).repeat(state.batch, 1).to(loaded.device)
    seed = bed.session.cfg.seed
    return [
        script(loaded, state, Sampler(sampling, seed, rng=rng), ids, bed.steps)
        for ids in (None, following)
    ]


def outcome(bed: Bed, healthy: list[tuple], damaged: list[tuple]) -> str:
    """The worst of what can be seen when both runs of the script are laid side by side."""
    worst = NOTHING
    for (tokens, rows), (other, logits) in zip(healthy, damaged, strict=True):
        if not torch.equal(tokens, other):
            return WRONG
        a, b = trimmed(logits.double(), rows.double())
        if not bool((a - b).abs().max() <= 2 * bed.unit):
            worst = DRIFT
    return worst
