"""Recurrent models of Transformers begin anew where several tokens are fed onto a state.

Only PyTorch and Transformers; see its issues 45513, 46084, 46190. Prints the largest difference of a logit
from one pass without a cache: 1e-06 for one token at a time, 2 for four at once.
"""

import torch
from transformers import DynamicCache, MambaConfig, MambaForCausalLM


def main() -> None:
    torch.manual_seed(0)
    config = MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, initializer_range=0.5)
    model, ids = MambaForCausalLM(config).double().eval(), torch.arange(16)[None]
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits[:, -1]
        for step in (1, 4):
            cache = DynamicCache(config=config)
            for at in range(0, 16, step):
                out = model(ids[:, at : at + step], cache_params=cache, use_cache=True)
            print(f"{step} at a time: {float((out.logits[:, -1] - whole).abs().max()):.2g}")


if __name__ == "__main__":
    main()
