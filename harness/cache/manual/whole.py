"""The Llama decode step on a CPU as one program: every layer's norms, projections, RoPE and attention
are phases that the same threads work through, with no operator to start in between.

It computes what llama.py writes out, which stays its oracle, and rounds less: the residual stream is
float64, everything else float32 until K and V are stored. Whatever it was not made for (padding, rows
at different positions, wrapped or unusual modules) it leaves to llama.py.
"""

from typing import Any

import torch

from harness.attention.kernels.cpu import stream, team
from harness.attention.kernels.cpu.layout import ADD, GATE, SET
from harness.attention.kernels.cpu.program import KINDS, Program, dense, floats
from harness.cache.projections import is_plain, untouched


def step(model: Any, ids: torch.Tensor, positions: torch.Tensor, memory: Any) -> Any:
    """Logits `[rows, 1, vocab]` of `ids` `[rows, 1]` at `positions` `[rows, 1]`, or None, with nothing
    touched, where this is no step for one program. Only the tails of `memory` grow."""
    if not _serves(model, ids, memory):
        return None
    body, head = model.get_decoder(), model.get_output_embeddings()
    hidden = body.embed_tokens(ids)[:, 0].double()
    turn = [t[:, 0].contiguous() for t in body.rotary_emb(floats(0), positions)]
    rows, width = hidden.shape
    program, normed = Program(head.weight.dtype), floats(rows, width)
    for index, layer in enumerate(body.layers):
        attention, mlp = layer.self_attn, layer.mlp
        three = (attention.q_proj, attention.k_proj, attention.v_proj)
        ends = [one.weight.shape[0] for one in three]
        made = floats(rows, sum(ends))
        program.norm(hidden, *_scaled(layer.input_layernorm), normed)
        program.project(normed, *(
            (out, SET, one.weight, one.bias, None)
            for out, one in zip(made.split(ends, dim=1), three, strict=True)
        ))  # fmt: skip
        dim = attention.head_dim
        key, value = memory.slot(index, rows, ends[1] // dim, dim, head.weight.dtype)
        parts = memory.in_sight(index)
        queries = _folded(rows, ends[0] // dim, parts)
        norms = None
        if hasattr(attention, "q_norm"):
            norms = (attention.q_norm.weight, *_scaled(attention.k_norm))
        program.prepare(
            made.view(rows, -1, dim), turn, queries, key, value, attention.scaling, norms
        )
        mixed = floats(rows, ends[0])
        program.attend(queries, [(part.key, part.value) for part in parts], mixed)
        out = attention.o_proj
        program.project(mixed, (hidden, ADD, out.weight, out.bias, None))
        program.norm(hidden, *_scaled(layer.post_attention_layernorm), normed)
        gated = floats(rows, mlp.gate_proj.weight.shape[0])
        program.project(normed, (gated, GATE, mlp.gate_proj.weight, None, mlp.up_proj.weight))
        out = mlp.down_proj
        program.project(gated, (hidden, ADD, out.weight, out.bias, None))
    program.norm(hidden, *_scaled(body.norm), normed)
    logits = floats(rows, head.weight.shape[0])
    program.project(normed, (logits, SET, head.weight, head.bias, None))
    program.run()
    return logits[:, None].to(head.weight.dtype)


def _serves(model: Any, ids: torch.Tensor, memory: Any) -> bool:
    body, head = model.get_decoder(), model.get_output_embeddings()
    if ids.shape[1] != 1 or len(ids) > stream.ROWS or ids.device.type != "cpu":
        return False
    if not (is_plain(head) and memory.unmasked() and team.available()):
        return False
    dtype = head.weight.dtype
    if dtype not in KINDS or not memory.kinds <= {(dtype, 1, 1)} or not _rows(head, dtype):
        return False
    return dense(body.norm.weight, dtype) and all(_plain(one, dtype) for one in body.layers)


def _plain(layer: Any, dtype: torch.dtype) -> bool:
    attention, mlp = layer.self_attn, layer.mlp
    norms = [layer.input_layernorm, layer.post_attention_layernorm]
    if hasattr(attention, "q_norm"):
        norms += [attention.q_norm, attention.k_norm]
        if attention.q_norm.variance_epsilon != attention.k_norm.variance_epsilon:
            return False
    linears = (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj,
               mlp.gate_proj, mlp.up_proj, mlp.down_proj)  # fmt: skip
    if not all(is_plain(one) and _rows(one, dtype) for one in linears):
        return False
    silu = type(mlp.act_fn).__name__ in ("SiLU", "SiLUActivation") and untouched(mlp.act_fn)
    pair = [mlp.gate_proj, mlp.up_proj]  # read side by side
    alike = pair[0].weight.stride() == pair[1].weight.stride()
    unbiased = all(one.bias is None for one in pair)
    return silu and alike and unbiased and all(dense(norm.weight, dtype) for norm in norms)


def _rows(linear: Any, dtype: torch.dtype) -> bool:
    """Whether each row of the weight, and the bias, lie in memory as compiled code reads them."""
    weight = linear.weight
    on_cpu = weight.dtype == dtype and weight.stride(1) == 1 and weight.device.type == "cpu"
    return on_cpu and dense(linear.bias, dtype)


def _scaled(norm: Any) -> tuple[torch.Tensor, float]:
    return norm.weight, norm.variance_epsilon


def _folded(rows: int, heads: int, parts: list[Any]) -> torch.Tensor:
    """Room for queries `[base, kv_heads, branches, group, head_dim]` (see `Program.attend`)."""
    base = min(len(part.key) for part in parts)
    kv_heads, dim = parts[0].key.shape[1], parts[0].key.shape[3]
    return floats(base, kv_heads, rows // base, heads // kv_heads, dim)
