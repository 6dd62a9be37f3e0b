"""A model of the library's as a GGUF file: the same numbers in the same dtype, for llama.cpp to run.

Written for measuring speed and comparing numbers, so its tokens have no text: `<17>`.
"""

from pathlib import Path
from typing import Any

import torch

from harness import extras
from harness.engine.llamacpp.families import FAMILIES, Family, ropes
from harness.errors import UnsupportedModel

VOCABULARY = "llama"  # the kind of tokenizer that the file claims
NORMAL, BYTE = 1, 6  # gguf.TokenType
FIRST = 3  # id of the first byte, behind <unk>, <bos> and <eos>


def write(model: Any, path: Path) -> None:
    """Write `model`, a causal language model that is only read, to `path`. Vectors become float32, as
    llama.cpp wants them. Raises UnsupportedModel for what is in no row of `FAMILIES`."""
    extras.need("llamacpp", "a GGUF file")
    import gguf

    config = model.config.get_text_config(decoder=True)
    family = FAMILIES.get(config.model_type)
    names = [name for name, _ in model.named_parameters()]
    problem = "its family" if family is None else family.problem(config, names)
    if family is None or problem:
        raise UnsupportedModel(
            f"'{config.model_type}' as it is here is not written as a GGUF file ({problem}). Written "
            f"are {', '.join(FAMILIES)}, plain ones; give engine.model=FILE.gguf for others."
        )
    if family.architecture == "gemma3" and config.query_pre_attn_scalar != _size(model):
        raise UnsupportedModel(
            "llama.cpp scales a Gemma 3's attention by head_dim, this one by another."
        )
    file = gguf.GGUFWriter(str(path), family.architecture)
    _shape(file, model, config, family)
    _vocabulary(file, model.get_input_embeddings().num_embeddings)
    kind = next(k for k, v in gguf.MODEL_ARCH_NAMES.items() if v == family.architecture)
    table = gguf.get_tensor_name_map(kind, config.num_hidden_layers)
    state = {
        k: v
        for k, v in model.state_dict().items()
        if not k.endswith((".attn.bias", ".masked_bias"))
    }
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    for name, tensor in state.items():
        if family.neighbours and name.endswith((".q_proj.weight", ".k_proj.weight")):
            tensor = _neighbours(tensor, _heads(config)[".k_proj." in name])
        kind, numbers = _numbers(family.change(name, tensor), gguf.GGMLQuantizationType)
        file.add_tensor(table.get_name(name, (".weight", ".bias")), numbers, raw_dtype=kind)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def _shape(file: Any, model: Any, config: Any, family: Family) -> None:
    """Sizes and constants of the architecture, by llama.cpp's names."""
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_block_count(config.num_hidden_layers)
    inner = getattr(config, "intermediate_size", None) or getattr(config, "n_inner", None)
    file.add_feed_forward_length(inner or 4 * config.hidden_size)
    heads, kv_heads = _heads(config)
    file.add_head_count(heads)
    file.add_head_count_kv(kv_heads)
    if family.architecture == "gpt2":
        file.add_layer_norm_eps(config.layer_norm_epsilon)
        return
    size = _size(model)
    file.add_key_length(size)
    file.add_value_length(size)
    file.add_rope_dimension_count(size)
    by_kind = ropes(config)
    rope = by_kind.get("full_attention") or by_kind.get("") or {}
    file.add_rope_freq_base(float(rope.get("rope_theta", 10000.0)))
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    if family.architecture == "gemma3":
        file.add_sliding_window(config.sliding_window)


def _vocabulary(file: Any, rows: int) -> None:
    """Placeholders: ids are what is sent. Where they fit, bytes among them, without which llama.cpp's
    tokenizer fails at the first text it is given."""
    names, kinds = [f"<{i}>" for i in range(rows)], [NORMAL] * rows
    if rows >= FIRST + 256:
        names[FIRST : FIRST + 256] = [f"<0x{byte:02X}>" for byte in range(256)]
        kinds[FIRST : FIRST + 256] = [BYTE] * 256
    file.add_vocab_size(rows)
    file.add_tokenizer_model(VOCABULARY)
    file.add_token_list([name.encode() for name in names])
    file.add_token_scores([0.0] * rows)
    file.add_token_types(kinds)
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)


def _heads(config: Any) -> tuple[int, int]:
    """Heads of queries, and of keys and values."""
    heads = config.num_attention_heads
    return heads, getattr(config, "num_key_value_heads", None) or heads


def _size(model: Any) -> int:
    return model.model.layers[0].self_attn.head_dim


def _neighbours(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows `[heads * head_dim, width]` in llama.cpp's order: it turns neighbours, the library halves."""
    split = weight.reshape(heads, 2, weight.shape[0] // heads // 2, weight.shape[1])
    return split.transpose(1, 2).reshape(weight.shape)


def _numbers(tensor: torch.Tensor, kinds: Any) -> tuple[Any, Any]:
    """`(type, array)`; numpy knows no bfloat16, so that its bytes are handed over."""
    tensor = tensor.detach().cpu().contiguous()
    if tensor.dim() == 1 or tensor.dtype == torch.float32:
        return kinds.F32, tensor.float().numpy()
    if tensor.dtype == torch.float16:
        return kinds.F16, tensor.numpy()
    return kinds.BF16, tensor.to(torch.bfloat16).view(torch.uint8).numpy()
