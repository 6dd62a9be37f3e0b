"""Zamba 2 and Nemotron-H of Transformers clamp time steps where they scan a prompt, not where they decode.

Only PyTorch and Transformers: `time_step_limit` goes to `mamba2_chunk_scan`, not to
`mamba2_selective_state_update`. Prints the largest difference of a logit between decoding 8 tokens one by one
and one pass without a cache: 1e-06 (its own float32) where nothing is short enough to be clamped, else 0.2.
"""

import torch
from transformers import AutoConfig, AutoModelForCausalLM, DynamicCache

SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "layers_block_type": ["mamba", "attention"],
         "mamba_num_heads": 4, "mamba_head_dim": 16, "ssm_state_size": 8, "n_groups": 1, "vocab_size": 64,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 0.3}  # fmt: skip


def main() -> None:
    for least in (1e-12, 0.09):
        torch.manual_seed(0)
        config = AutoConfig.for_model("nemotron_h", **SMALL, time_step_min=least)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float64).eval()
        ids, cache = torch.arange(20)[None], DynamicCache(config=config)
        with torch.no_grad():
            whole = model(ids, use_cache=False).logits[:, 12:]
            model(ids[:, :12], past_key_values=cache)
            steps = [model(ids[:, i : i + 1], past_key_values=cache).logits for i in range(12, 20)]
        print(f"time_step_min={least}: {float((torch.cat(steps, 1) - whole).abs().max()):.2g}")


if __name__ == "__main__":
    main()
