"""`generate` over a cache that holds the whole prompt feeds its last token again, one place late.

Only PyTorch and Transformers. Prints the largest difference of a log-probability from `generate` without
a cache, in nats: 0 where the cache holds all tokens but the last, 1.2 where it holds all of them.
"""

import torch
from transformers import DynamicCache, GenerationConfig, LlamaConfig, LlamaForCausalLM


def main() -> None:
    torch.manual_seed(0)
    sizes = {"vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2}
    config = LlamaConfig(**sizes, num_attention_heads=4, initializer_range=0.2)
    model, ids = LlamaForCausalLM(config).double().eval(), torch.randint(3, 256, (1, 40))
    greedy = GenerationConfig(
        max_new_tokens=8, do_sample=False, pad_token_id=0, eos_token_id=256,
        return_dict_in_generate=True, output_logits=True,
    )  # fmt: skip

    def logp(cache: DynamicCache | None) -> torch.Tensor:
        made = model.generate(ids, past_key_values=cache, generation_config=greedy)
        return torch.stack(made.logits).log_softmax(-1)

    plain = logp(None)
    for tokens in (39, 40):
        cache = DynamicCache(config=config)
        with torch.no_grad():
            model(ids[:, :tokens], past_key_values=cache)
        print(f"cache of {tokens} of 40 tokens: {float((logp(cache) - plain).abs()[0].max()):.2g}")


if __name__ == "__main__":
    main()
