"""Where attention keeps the k best keys and scores tie, Transformers keeps any of them: no cache is needed.

Only PyTorch and Transformers. Doge as it is initialised (`A` is zero, so every key scores 1); DeepSeek V3.2 does
the same where no head of its indexer is above zero (`index_topk=6 index_n_heads=2`). Prints the largest
difference of a logit of 12 tokens when 4 more follow: 0 where scores differ, else 2.
"""

import torch
from transformers import DogeConfig, DogeForCausalLM


def main() -> None:
    torch.manual_seed(0)
    config = DogeConfig(vocab_size=64, hidden_size=64, num_hidden_layers=2, intermediate_size=96,
                        num_attention_heads=4, initializer_range=0.1, keep_window_size=4)  # fmt: skip
    model, ids = DogeForCausalLM(config).double().eval(), torch.arange(16)[None]
    for name, scale in (("scores differ", 1.0), ("scores tie", 0.0)):
        for layer in model.model.layers:
            torch.nn.init.constant_(layer.self_attn.A, scale)
        with torch.no_grad():
            whole, part = model(ids).logits[:, :12], model(ids[:, :12]).logits
        print(f"{name}: {float((whole - part).abs().max()):.2g}")


if __name__ == "__main__":
    main()
