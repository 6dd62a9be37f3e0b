"""Shared pieces of the manual forwards. Shapes: hidden `[batch, new, width]`, heads
`[batch, heads, new, head_dim]`. Nothing here mutates its arguments."""

from typing import Any

import torch

from harness.cache.kernels import stream

_FEW = 4  # tokens; with more, the library reads a weight once for all of them as well as we do


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
    """The Llama norm of module `norm`: in float32, then rounded, then scaled."""
    size = hidden.shape[-1:]
    normed = torch.rms_norm(hidden.float(), size, None, norm.variance_epsilon)
    return norm.weight * normed.to(hidden.dtype)


def linear(module: torch.nn.Module, hidden: torch.Tensor) -> torch.Tensor:
    """`module(hidden)` for a linear layer: `[batch, new, in]` to `[batch, new, out]`."""
    return linears(hidden, module)[0]


def linears(hidden: torch.Tensor, *modules: torch.nn.Module) -> list[torch.Tensor]:
    """Each linear layer's output for the same `hidden` `[batch, new, in]`. Few tokens meet large
    weights streamed, all in one go; anything but a plain `nn.Linear` is called as it is."""
    rows = hidden.reshape(-1, hidden.shape[-1])
    if rows.shape[0] > _FEW or not all(map(is_linear, modules)):
        return [module(hidden) for module in modules]
    weights: list[Any] = [module.weight for module in modules]
    numbers = sum(weight.numel() for weight in weights)
    if hidden.dtype != weights[0].dtype or not stream.serves(rows.shape[0], numbers, *weights):
        return [module(hidden) for module in modules]
    made = []
    for module, out in zip(modules, stream.project(rows, weights), strict=True):
        out = out if module.bias is None else out + module.bias
        made.append(out.view(*hidden.shape[:-1], -1).to(hidden.dtype))
    return made


def is_linear(module: torch.nn.Module) -> bool:
    """Whether `module` is a plain linear layer that nobody listens to or has wrapped."""
    hooked = module._forward_hooks or module._forward_pre_hooks
    return type(module) is torch.nn.Linear and not hooked and "forward" not in module.__dict__
