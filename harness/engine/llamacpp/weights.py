"""A Llama of the library's as a GGUF file: the same numbers in the same dtype, for llama.cpp to run.

Written for measuring speed and comparing numbers, so its tokens have no text: `<17>`.
"""

from pathlib import Path
from typing import Any

import torch

from harness import extras
from harness.errors import UnsupportedModel

FAMILY = "llama"


def write(model: Any, path: Path) -> None:
    """Write `model`, a causal language model that is only read, to `path`. Vectors become float32, as
    llama.cpp wants them. Raises UnsupportedModel for another family, a scaled RoPE or biases."""
    extras.need("llamacpp", "a GGUF file")
    import gguf

    config = model.config.get_text_config(decoder=True)
    rope = getattr(config, "rope_parameters", None) or {}
    biased = any(name.endswith(".bias") for name, _ in model.named_parameters())
    if config.model_type != FAMILY or rope.get("rope_type", "default") != "default" or biased:
        raise UnsupportedModel(
            f"'{config.model_type}' as it is here is not written as a GGUF file: only a Llama without "
            "biases and without a scaled RoPE is."
        )
    layers, heads = config.num_hidden_layers, config.num_attention_heads
    kv_heads, size = config.num_key_value_heads, model.model.layers[0].self_attn.head_dim
    file = gguf.GGUFWriter(str(path), FAMILY)
    file.add_context_length(config.max_position_embeddings)
    file.add_embedding_length(config.hidden_size)
    file.add_block_count(layers)
    file.add_feed_forward_length(config.intermediate_size)
    file.add_head_count(heads)
    file.add_head_count_kv(kv_heads)
    file.add_key_length(size)
    file.add_value_length(size)
    file.add_rope_dimension_count(size)
    file.add_rope_freq_base(float(rope.get("rope_theta", 10000.0)))
    file.add_layer_norm_rms_eps(config.rms_norm_eps)
    file.add_vocab_size(config.vocab_size)
    file.add_tokenizer_model(FAMILY)
    file.add_token_list([f"<{i}>".encode() for i in range(config.vocab_size)])
    file.add_token_scores([0.0] * config.vocab_size)
    file.add_token_types([1] * config.vocab_size)
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LLAMA, layers)
    state = model.state_dict()
    if config.tie_word_embeddings:
        state.pop("lm_head.weight", None)
    for name, tensor in state.items():
        if name.endswith((".q_proj.weight", ".k_proj.weight")):
            tensor = _neighbours(tensor, heads if ".q_proj." in name else kv_heads)
        kind, numbers = _numbers(tensor, gguf.GGMLQuantizationType)
        file.add_tensor(names.get_name(name, (".weight",)), numbers, raw_dtype=kind)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


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
