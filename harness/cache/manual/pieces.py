"""Shared pieces of the manual forwards. Shapes: hidden `[batch, new, width]`, heads
`[batch, heads, new, head_dim]`. Nothing here mutates its arguments."""

from typing import Any

import torch

from harness.cache.kernels import stream

_FEW = 4  # tokens; with more, the library reads a weight once for all of them as well as we do
_LARGE = 2**18  # numbers in a weight; smaller ones stay in the processor's own memory


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
    return linear(
        mlp.down_proj, mlp.act_fn(linear(mlp.gate_proj, hidden)) * linear(mlp.up_proj, hidden)
    )


def rms_norm(norm: Any, hidden: torch.Tensor) -> torch.Tensor:
    """The Llama norm of module `norm`: written out where it works in its own dtype, else the module."""
    if not (hidden.dtype == norm.weight.dtype == torch.float32):
        return norm(hidden)
    mean_square = hidden.square().mean(-1, keepdim=True)
    return torch.rsqrt(mean_square.add_(norm.variance_epsilon)).mul(hidden).mul_(norm.weight)


def linear(module: torch.nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """`module(hidden)` for a linear layer: `[batch, new, in]` to `[batch, new, out]`. Few tokens meet
    large weights streamed; anything but a plain `nn.Linear` is called as it is."""
    rows = hidden.flatten(0, -2)
    if type(module) is not torch.nn.Linear or module._forward_hooks or module._forward_pre_hooks:
        return module(hidden)
    weight = module.weight
    worth = len(rows) <= _FEW and weight.numel() >= _LARGE and hidden.dtype == weight.dtype
    if not (worth and stream.serves(rows, weight)):
        return module(hidden)
    out = stream.scores(rows[None], weight[None]).view(*hidden.shape[:-1], -1)
    out = out if module.bias is None else out + module.bias
    return out.to(hidden.dtype)
