"""Do recurrent layers of the library go on from the state they stored when several tokens are fed?

The whole of it in plain Transformers (5.23: 0.0 for one token at a time, about 0.1 and more for four
at once; see its issues 45513, 46084, 46190):

    import torch
    from transformers import DynamicCache, MambaConfig, MambaForCausalLM

    torch.manual_seed(0)
    config = MambaConfig(vocab_size=64, hidden_size=32, num_hidden_layers=2, initializer_range=0.5)
    model, ids = MambaForCausalLM(config).double().eval(), torch.arange(16)[None]
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits[:, -1]
        for step in (1, 4):
            cache = DynamicCache(config=config)
            for at in range(0, 16, step):
                out = model(ids[:, at : at + step], cache_params=cache, use_cache=True)
            print(step, float((out.logits[:, -1] - whole).abs().max()))
"""

import inspect
from typing import Any

import torch

from harness.capture import new_cache
from harness.config import ModelConfig
from harness.model.loaded import load
from harness.report.claims import Layout
from harness.task.claims.bench import HOLDS, REFUTED, Bench, Settled, claim

CLAIM = "Several tokens fed at once go on from the stored recurrent state, as single tokens do."
TOKENS, STEP = 16, 4
SMALL = {"hidden_size": 32, "num_hidden_layers": 2, "initializer_range": 0.5}
ATTENTION = {"num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 32}
JAMBA = {"attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 64,
         "expert_layer_offset": 63, "num_experts": 1, "num_experts_per_tok": 1,
         "use_mamba_kernels": False}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "mamba": {},
    "falcon_mamba": {},
    "jamba": {**ATTENTION, **JAMBA},
}

LAYOUT = Layout(
    {"families_that_start_anew": "families that start anew"},
    "family",
    {family: family for family in FAMILIES},
    {
        "{}_error_1_at_a_time": "error, fed one at a time",
        f"{{}}_error_{STEP}_at_a_time": f"error, fed {STEP} at a time",
    },
)


@claim(CLAIM, LAYOUT)
def recurrent_chunk(bench: Bench) -> Settled:
    figures: dict[str, Any] = {}
    for family, values in FAMILIES.items():
        for step in (1, STEP):
            figures[f"{family}_error_{step}_at_a_time"] = error(bench, family, values, step)
    ratio = 1e3  # what float64 rounds and what is another function lie far further apart
    once = max(v for k, v in figures.items() if k.endswith("_1_at_a_time"))
    most = ratio * max(once, 1e-15)
    broken = [f for f in FAMILIES if figures[f"{f}_error_{STEP}_at_a_time"] > most]
    figures["families_that_start_anew"] = named = ", ".join(broken) or "none"
    return Settled(
        REFUTED if broken else HOLDS,
        figures,
        f"{named} forget their stored state where several tokens are fed at once."
        if broken
        else f"{', '.join(FAMILIES)} go on from the stored state.",
        f"Fed one by one, {TOKENS} tokens give what one pass without a cache gives. Fed {STEP} at a "
        + (
            f"time, {', '.join(broken)} start their recurrence anew at every call: the stored state "
            "is read only where one token is fed. This harness feeds them one at a time."
            if broken
            else "time as well: this release goes on from the stored state."
        ),
        "the library's own forward; largest error of a logit, relative",
        f"{', '.join(FAMILIES)}: small and seeded, in float64",
    )


def error(bench: Bench, family: str, values: dict[str, Any], step: int) -> float:
    """Largest error of the last logits, relative to their size, when `step` tokens are fed at a time."""
    cfg = bench.session.cfg
    settings = ModelConfig(
        "shape", architecture=family, config={**SMALL, **values}, tokenizer="tiny"
    )
    loaded = load(settings, "float64", cfg.device)
    model = loaded.model
    ids = torch.arange(5, 5 + TOKENS, device=model.device)[None]
    name = "past_key_values"
    if name not in inspect.signature(model.forward).parameters:
        name = "cache_params"
    with torch.no_grad():
        whole = model(ids, use_cache=False).logits[:, -1]
        cache = new_cache(loaded)
        for at in range(0, TOKENS, step):
            out = model(ids[:, at : at + step], **{name: cache}, use_cache=True)
    return float((out.logits[:, -1] - whole).abs().max() / whole.abs().max())
