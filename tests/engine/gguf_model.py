"""A small random Llama as a GGUF file, weights in float32, and the same in the library's own form."""

from pathlib import Path

import numpy as np

LAYERS, WIDTH, INNER, HEADS, KV_HEADS, VOCAB = 4, 128, 352, 4, 2, 512


def write(
    path: Path,
    context: int = 4096,
    scale: float = 0.09,
    seed: int = 0,
    heads: int = HEADS,
    kv_heads: int = KV_HEADS,
    codes: str | None = None,
) -> Path:
    """Write the file; tokens go by their ids (`<17>`), nothing is trained. codes: of the matrices, `Q4_0`."""
    import gguf

    chance = np.random.default_rng(seed)
    file = gguf.GGUFWriter(str(path), "llama")
    file.add_context_length(context)
    file.add_embedding_length(WIDTH)
    file.add_block_count(LAYERS)
    file.add_feed_forward_length(INNER)
    file.add_head_count(heads)
    file.add_head_count_kv(kv_heads)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_dimension_count(WIDTH // heads)
    file.add_rope_freq_base(10000.0)
    file.add_vocab_size(VOCAB)
    file.add_file_type(0)
    file.add_tokenizer_model("llama")
    file.add_token_list([f"<{i}>".encode() for i in range(VOCAB)])
    file.add_token_scores([0.0] * VOCAB)
    file.add_token_types([1] * VOCAB)
    file.add_bos_token_id(1)
    file.add_eos_token_id(2)
    file.add_unk_token_id(0)

    def random(name: str, *shape: int) -> None:
        numbers = (chance.standard_normal(shape) * scale).astype(np.float32)
        kind = gguf.GGMLQuantizationType[codes or "F32"]
        file.add_tensor(name, gguf.quantize(numbers, kind), raw_dtype=kind if codes else None)

    def ones(name: str) -> None:
        file.add_tensor(name, np.ones(WIDTH, np.float32))

    narrow = kv_heads * WIDTH // heads
    random("token_embd.weight", VOCAB, WIDTH)
    for layer in range(LAYERS):
        at = f"blk.{layer}."
        ones(at + "attn_norm.weight")
        ones(at + "ffn_norm.weight")
        random(at + "attn_q.weight", WIDTH, WIDTH)
        random(at + "attn_k.weight", narrow, WIDTH)
        random(at + "attn_v.weight", narrow, WIDTH)
        random(at + "attn_output.weight", WIDTH, WIDTH)
        random(at + "ffn_gate.weight", INNER, WIDTH)
        random(at + "ffn_up.weight", INNER, WIDTH)
        random(at + "ffn_down.weight", WIDTH, INNER)
    ones("output_norm.weight")
    random("output.weight", VOCAB, WIDTH)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()
    return path
