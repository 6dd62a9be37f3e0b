"""The Llama decode step on a CPU as one program: every layer's norms, projections, RoPE and attention
are phases that the same threads work through, with no operator to start in between.

It computes what llama.py writes out, which stays its oracle, and rounds less: the residual stream is
float64, everything else float32 until K and V are stored. Whatever it was not made for (padding, rows
at different positions, wrapped or unusual modules) it leaves to llama.py.
"""

from typing import Any

import torch

from harness.attention.kernels.cpu import stream
from harness.attention.kernels.cpu.layout import ADD, GATE, SET
from harness.attention.kernels.cpu.program import Program, available, floats, readable
from harness.cache.projections import is_plain, untouched


def step(model: Any, ids: torch.Tensor, positions: torch.Tensor, memory: Any) -> Any:
    """Logits `[rows, 1, vocab]` of `ids` `[rows, 1]` at `positions` `[rows, 1]`, or None, with nothing
    touched, where this is no step for one program. Only the tails of `memory` grow."""
    if (modules := _served(model, ids, memory)) is None:
        return None
    body, head = modules.body, modules.head
    hidden = body.embed_tokens(ids)[:, 0].double()
    cos, sin = (t[:, 0].contiguous() for t in body.rotary_emb(floats(0), positions))
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
            made.view(rows, -1, dim), (cos, sin), queries, key, value, attention.scaling, norms
        )
        mixed = floats(rows, ends[0])
        program.attend(queries, [part.pair for part in parts], mixed)
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


def _served(model: Any, ids: torch.Tensor, memory: Any) -> "Modules | None":
    """The modules of `model`, where this is a step of one token over unmasked memory, of modules that
    compute what their types say, with numbers that compiled code can read; else None."""
    if ids.shape[1] != 1 or len(ids) > stream.ROWS or not memory.unmasked():
        return None
    known = memory.prepared
    if known is None or not known.unchanged(model):
        known = memory.prepared = Modules(model, memory.stored)
    return known if known.serve else None


class Modules:
    """What a step reads of a model, looked up and questioned once for a continuation, whose past never
    changes. `unchanged` asks before every step, in microseconds, whether the model is still the same:
    modules may be exchanged, wrapped or listened to and weights replaced between two steps.
    """

    def __init__(self, model: Any, stored: Any):
        self.model, self.body, self.head = model, model.get_decoder(), model.get_output_embeddings()
        self._linears, norms, self._acts = [self.head], [self.body.norm], []
        self._pairs: list[Any] = []  # norms of queries and keys
        for layer in self.body.layers:
            attention, mlp = layer.self_attn, layer.mlp
            self._linears += [attention.q_proj, attention.k_proj, attention.v_proj,
                              attention.o_proj, mlp.gate_proj, mlp.up_proj, mlp.down_proj]  # fmt: skip
            norms += [layer.input_layernorm, layer.post_attention_layernorm]
            self._acts.append(mlp.act_fn)
            if hasattr(attention, "q_norm"):
                self._pairs += [attention.q_norm, attention.k_norm]
        parents = [model, self.body, *self.body.layers]
        parents += [part for layer in self.body.layers for part in (layer.self_attn, layer.mlp)]
        parents.append(self.body.layers)
        self._places = [(place._modules, dict(place._modules)) for place in parents]
        self._weighted = [*self._linears, *norms, *self._pairs]
        self._direct = all(
            any(m is c for c in model._modules.values()) for m in (self.body, self.head)
        )
        self._seen = self._numbers()
        weights = [t for m in self._weighted for t in m._parameters.values()]
        self.serve = (
            all(map(is_plain, self._linears))
            and all(map(_as_written, self.body.layers))
            and readable(self.head.weight.dtype, *weights, *stored)
            and available()
        )

    def unchanged(self, model: Any) -> bool:
        """Whether all that was looked up and questioned is as it was."""
        return (
            self.serve  # who does not serve is asked again: a hook may be gone
            and self._direct
            and model is self.model
            and all(place == before for place, before in self._places)
            and all(map(untouched, (*self._linears, *self._acts)))
            and self._numbers() == self._seen
        )

    def _numbers(self) -> list[Any]:
        """Where every weight lies, as what; and the constants that were compared."""
        tensors = [t for m in self._weighted for t in m._parameters.values() if t is not None]
        return [
            [(id(t), t.data_ptr(), t.dtype, t.stride()) for t in tensors],
            [norm.variance_epsilon for norm in self._pairs],
        ]


def _as_written(layer: Any) -> bool:
    """Whether the layer's MLP is a SwiGLU without biases, its gate laid out as the matrix beside it,
    and its heads' norms have one epsilon."""
    attention, mlp = layer.self_attn, layer.mlp
    silu = type(mlp.act_fn).__name__ in ("SiLU", "SiLUActivation") and untouched(mlp.act_fn)
    gate, up = mlp.gate_proj, mlp.up_proj
    alike = gate.weight.stride() == up.weight.stride() and gate.bias is None and up.bias is None
    epsilons = {
        getattr(attention, name).variance_epsilon
        for name in ("q_norm", "k_norm")
        if hasattr(attention, name)
    }
    return silu and alike and len(epsilons) <= 1


def _scaled(norm: Any) -> tuple[torch.Tensor, float]:
    return norm.weight, norm.variance_epsilon


def _folded(rows: int, heads: int, parts: list[Any]) -> torch.Tensor:
    """Room for queries `[base, kv_heads, branches, group, head_dim]` (see `Program.attend`)."""
    base = min(len(part.key) for part in parts)
    kv_heads, dim = parts[0].key.shape[1], parts[0].key.shape[3]
    return floats(base, kv_heads, rows // base, heads // kv_heads, dim)
