"""Shared pieces of the manual forwards. Shapes: hidden `[batch, new, width]`, heads
`[batch, heads, new, head_dim]`. Nothing here mutates its arguments."""

from typing import Any

import torch


def split_heads(projected: torch.Tensor, head_dim: int) -> torch.Tensor:
    """`[batch, new, heads * head_dim]` to `[batch, heads, new, head_dim]`, a view."""
    return projected.unflatten(-1, (-1, head_dim)).transpose(1, 2)


def merge_heads(heads: torch.Tensor) -> torch.Tensor:
    """`[batch, heads, new, head_dim]` to `[batch, new, heads * head_dim]`."""
    return heads.transpose(1, 2).flatten(2)


def rotate(heads: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """RoPE, half-split layout: cos and sin are `[batch, new, head_dim]`."""
    half = heads.shape[-1] // 2
    turned = torch.cat((-heads[..., half:], heads[..., :half]), dim=-1)
    return heads * cos[:, None] + turned * sin[:, None]


def gated_mlp(mlp: Any, hidden: torch.Tensor) -> torch.Tensor:
    """`down(act(gate(x)) * up(x))`, with the module's own projections and activation."""
    return mlp.down_proj(mlp.act_fn(mlp.gate_proj(hidden)) * mlp.up_proj(hidden))


def rms_norm(norm: Any, hidden: torch.Tensor) -> torch.Tensor:
    """The Llama norm of module `norm`: fused where it works in its own dtype, else the module."""
    if hidden.dtype == norm.weight.dtype == torch.float32:
        return torch.rms_norm(hidden, norm.weight.shape, norm.weight, norm.variance_epsilon)
    return norm(hidden)
