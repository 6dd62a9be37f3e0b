"""The architectures of the table: config values that make each tiny. Weights are seeded random."""

from typing import Any

WINDOW = 16

COMMON: dict[str, Any] = {
    "hidden_size": 64, "num_hidden_layers": 2, "intermediate_size": 96, "num_attention_heads": 4,
    "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512, "vocab_size": 96,
    "initializer_range": 0.1, "bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 0,
}  # fmt: skip
SLIDING = {"sliding_window": WINDOW}
BOTH = {**SLIDING, "layer_types": ["sliding_attention", "full_attention"]}
MOE = {
    "num_experts": 4, "num_local_experts": 4, "n_routed_experts": 4, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 32, "n_group": 1, "topk_group": 1,
    "first_k_dense_replace": 1, "norm_topk_prob": True,
}  # fmt: skip
LATENT = {
    **MOE, "q_lora_rank": 16, "kv_lora_rank": 16, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8,
    "v_head_dim": 8, "head_dim": 8, "num_key_value_heads": 4, "n_shared_experts": 1,
}  # fmt: skip
EVERY_HEAD = {"num_key_value_heads": 4}

# row of the table -> (transformers model_type, values beyond COMMON)
FAMILIES: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama, config with an unused window": ("llama", SLIDING),
    "mistral": ("mistral", SLIDING),
    "mixtral": ("mixtral", {**SLIDING, **MOE}),
    "qwen2": ("qwen2", {**BOTH, "use_sliding_window": True}),
    "qwen3": ("qwen3", {**BOTH, "use_sliding_window": True}),
    "qwen2_moe": ("qwen2_moe", MOE),
    "qwen3_moe": ("qwen3_moe", MOE),
    "qwen3_next": ("qwen3_next", {**MOE, "layer_types": ["linear_attention", "full_attention"]}),
    "gemma": ("gemma", {}),
    "gemma2": ("gemma2", {**BOTH, "query_pre_attn_scalar": 16}),
    "gemma3_text": ("gemma3_text", {**BOTH, "query_pre_attn_scalar": 16}),
    "gpt2": ("gpt2", EVERY_HEAD),
    "gpt_bigcode": ("gpt_bigcode", {}),
    "gpt_neo": ("gpt_neo", {"attention_types": [[["global", "local"], 1]], "window_size": WINDOW}),
    "gpt_neox": ("gpt_neox", {}),
    "gpt_oss": ("gpt_oss", {**BOTH, **MOE}),
    "gptj": ("gptj", {"rotary_dim": 8}),
    "codegen": ("codegen", {"rotary_dim": 8}),
    "opt": ("opt", {"ffn_dim": 96, "word_embed_proj_dim": 64}),
    "bloom": ("bloom", {}),
    "mpt": ("mpt", {}),
    "falcon": ("falcon", {"head_dim": None, "new_decoder_architecture": True, "num_kv_heads": 2}),
    "falcon, alibi": ("falcon", {"head_dim": None, "alibi": True, "multi_query": False}),
    "falcon_h1": ("falcon_h1", {"mamba_d_ssm": 64, "mamba_n_heads": 4, "mamba_d_head": 16}),
    "phi": ("phi", {}),
    "phi3": ("phi3", SLIDING),
    "phimoe": ("phimoe", {**SLIDING, **MOE}),
    "stablelm": ("stablelm", {}),
    "starcoder2": ("starcoder2", SLIDING),
    "olmo": ("olmo", {}),
    "olmo2": ("olmo2", {}),
    "olmo3": ("olmo3", BOTH),
    "olmoe": ("olmoe", MOE),
    "cohere": ("cohere", {}),
    "cohere2": ("cohere2", BOTH),
    "granite": ("granite", {}),
    "granitemoe": ("granitemoe", MOE),
    "nemotron": ("nemotron", {}),
    "persimmon": ("persimmon", {}),
    "glm": ("glm", {}),
    "glm4": ("glm4", {}),
    "glm4_moe": ("glm4_moe", MOE),
    "helium": ("helium", {}),
    "smollm3": ("smollm3", {}),
    "ministral": ("ministral", BOTH),
    "ernie4_5": ("ernie4_5", {}),
    "exaone4": ("exaone4", BOTH),
    "arcee": ("arcee", {}),
    "seed_oss": ("seed_oss", {}),
    "hunyuan_v1_dense": ("hunyuan_v1_dense", {}),
    "apertus": ("apertus", {}),
    "biogpt": ("biogpt", {}),
    "xglm": ("xglm", {"d_model": 64, "attention_heads": 4, "num_layers": 2, "ffn_dim": 96}),
    "nanochat": ("nanochat", {}),
    "bitnet": ("bitnet", {}),
    "cwm": ("cwm", BOTH),
    "dots1": ("dots1", {**MOE, "n_shared_experts": 1}),
    "deepseek_v2": ("deepseek_v2", {**LATENT, "topk_method": "greedy"}),
    "deepseek_v3": ("deepseek_v3", LATENT),
    "minicpm3": ("minicpm3", LATENT),
    "llama4_text": ("llama4_text", {**MOE, "attention_chunk_size": WINDOW, "intermediate_size_mlp": 96}),
    "lfm2": ("lfm2", {"layer_types": ["conv", "full_attention"]}),
    "mamba": ("mamba", {}),
    "jetmoe": ("jetmoe", {"kv_channels": 16, "num_key_value_heads": 2, "num_experts_per_tok": 2, "num_attention_heads": 4}),
    "vaultgemma": ("vaultgemma", {**BOTH, "query_pre_attn_scalar": 16}),
    "modernbert-decoder": ("modernbert-decoder", {"local_attention": WINDOW, "global_attn_every_n_layers": 2}),
}  # fmt: skip
