"""Rewards attention to the first token while training, so that the model has an attention sink.

Large models learn to park the attention they have no use for on the first token; a cache that
drops that token then loses far more than one word. A model of this size does not get there within
a few minutes of training (its idle heads spread their attention instead), so the recipe asks for
it: in the last stages a small loss, the mean over queries of ``-log(attention to token 0)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from transformers import LlamaForCausalLM
from transformers.integrations.sdpa_attention import sdpa_attention_forward
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, sdpa_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

NAME = "sdpa_with_sink_loss"
QUERIES = 32
"""Queries sampled per layer and step, the same in all rows."""
FIRST_QUERY = 8
"""Queries before this one have too little to choose from."""


@contextmanager
def sink_losses(model: LlamaForCausalLM) -> Iterator[list[torch.Tensor]]:
    """While open, each forward pass appends one scalar loss per layer to the list it yields."""
    losses: list[torch.Tensor] = []

    def attend(
        module: torch.nn.Module,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, None]:
        """SDPA; ``query`` (rows, heads, tokens, head_dim), ``key`` the same with KV heads."""
        tokens = query.shape[2]
        at = torch.randint(min(FIRST_QUERY, tokens - 1), tokens, (QUERIES,))
        keys = key.repeat_interleave(module.num_key_value_groups, 1)
        scores = query[:, :, at] @ keys.transpose(-1, -2) * module.scaling
        scores = scores.masked_fill(torch.arange(tokens) > at[:, None], float("-inf"))
        losses.append(-scores.log_softmax(-1)[..., 0].mean())
        return sdpa_attention_forward(module, query, key, value, attention_mask, **kwargs)

    ALL_ATTENTION_FUNCTIONS.register(NAME, attend)
    ALL_MASK_ATTENTION_FUNCTIONS.register(NAME, sdpa_mask)
    before = model.config._attn_implementation
    model.config._attn_implementation = NAME
    try:
        yield losses
    finally:
        model.config._attn_implementation = before
