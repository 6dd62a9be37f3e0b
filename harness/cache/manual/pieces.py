"""Shared pieces of the manual forwards. Shapes: hidden `[batch, new, width]`, heads
`[batch, heads, new, head_dim]`. Nothing here mutates its arguments."""

from typing import Any

import torch

from harness.cache.projections import linear, linears


def split_heads(projected: torch.Tensor, head_dim: int) -> torch.Tensor:
    """`[batch, new, heads * head_dim]` to `[batch, heads, new, head_dim]`, a view."""
    return projected.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def merge_heads(heads: torch.Tensor) -> torch.Tensor:
    """`[batch, heads, new, head_dim]` to `[batch, new, heads * head_dim]`."""
    return heads.transpose(1, 2).flatten(2)


def turning(cos: torch.Tensor, sin: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """What `rotate` needs, made once for all layers, from cos and sin `[batch, new, head_dim]`."""
    low, high = sin.chunk(2, dim=-1)
    return cos[:, None], torch.cat((-low, high), dim=-1)[:, None]


def rotate(heads: torch.Tensor, turn: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    """RoPE, half-split layout."""
    cos, sin = turn
    return heads * cos + heads.roll(heads.shape[-1] // 2, -1) * sin


def gated_mlp(mlp: Any, hidden: torch.Tensor) -> torch.Tensor:
    """`down(act(gate(x)) * up(x))`, with the module's own projections and activation."""
    gate, up = linears(hidden, mlp.gate_proj, mlp.up_proj)
    return linear(mlp.down_proj, mlp.act_fn(gate) * up)


def rms_norm(norm: Any, hidden: torch.Tensor) -> torch.Tensor:
    """The Llama norm of module `norm`: in float32, then rounded, then scaled. CUDA's own kernel for half
    precision does the first two in one."""
    wide = hidden if hidden.is_cuda else hidden.float()
    normed = torch.rms_norm(wide, hidden.shape[-1:], None, norm.variance_epsilon)
    return norm.weight * normed.to(hidden.dtype)
