"""Runs under the Python of kvpress, knows nothing of the harness: which tokens kvpress keeps, and what the
model then answers.

python kvpress_side.py MODEL_DIR DIALOGUES.json OUT.json KEPT.safetensors

DIALOGUES: a list of {"context": ids, "question": ids, "expected": text}. OUT: the answers, per policy,
ratio and dialogue. KEPT: int16 indices `[layers, kv_heads, kept]` of the first dialogues, and what they
were chosen by: `policy/ratio/number`. Policies and their settings are those of SIDES.
"""

import json
import sys
from pathlib import Path

import torch
from kvpress import (
    ExpectedAttentionPress,
    KeyDiffPress,
    KnormPress,
    ObservedAttentionPress,
    RandomPress,
    SnapKVPress,
    StreamingLLMPress,
    TOVAPress,
)
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache

RATIOS = (0.1, 0.25, 0.5)  # of the cache that stay
EXACT = 2  # dialogues whose kept indices are handed over
STEPS = 6
SIDES = {
    "sink_window": lambda r: StreamingLLMPress(r, n_sink=4),
    "knorm": lambda r: KnormPress(r),
    "keydiff": lambda r: KeyDiffPress(r),
    "tova": lambda r: TOVAPress(r),
    "snapkv": lambda r: SnapKVPress(r, window_size=8, kernel_size=5),
    "heavy_hitter": lambda r: ObservedAttentionPress(r),
    "expected_attention": lambda r: ExpectedAttentionPress(r),
    "random": lambda r: RandomPress(r, seed=0),
}


def watched(press, kept):
    """`press` with the sorted indices it keeps, layer by layer, added to `kept`."""
    score = press.score

    def scored(module, hidden, keys, *rest):
        found = score(module, hidden, keys, *rest)
        count = max(1, int(keys.shape[2] * (1 - press.compression_ratio)))
        kept.append(found.topk(count, dim=-1).indices.sort(-1).values[0].short())
        return found

    press.score = scored
    return press


@torch.no_grad()
def answer(model, press, one):
    """Ids of a greedy answer to the question after the context was pruned by `press` (None: not)."""
    cache, context = DynamicCache(), torch.tensor([one["context"]])
    if press is None:
        model(context, past_key_values=cache)
    else:
        with press(model):
            model(context, past_key_values=cache)
    place, ids, chosen = context.shape[1], torch.tensor([one["question"]]), []
    for _ in range(STEPS):
        at = torch.arange(place, place + ids.shape[1])[None]
        logits = model(ids, past_key_values=cache, position_ids=at).logits[0, -1]
        place += ids.shape[1]
        chosen.append(int(logits.argmax()))
        ids = torch.tensor([chosen[-1:]])
    return chosen


def main(folder, dialogues, out, kept_file):
    torch.set_num_threads(1)
    asked = json.loads(Path(dialogues).read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    models = {
        kind: AutoModelForCausalLM.from_pretrained(folder, attn_implementation=kind, dtype=torch.float32)
        for kind in ("sdpa", "eager")
    }  # fmt: skip
    said, kept = {}, {}
    said["none/1.0"] = [tokenizer.decode(answer(models["sdpa"], None, one)) for one in asked]
    for name, made in SIDES.items():
        model = models["eager" if name == "heavy_hitter" else "sdpa"]
        for ratio in RATIOS:
            texts = []
            for number, one in enumerate(asked):
                layers = []
                press = watched(made(1 - ratio), layers)
                texts.append(tokenizer.decode(answer(model, press, one)))
                if number < EXACT:
                    kept[f"{name}/{ratio}/{number}"] = torch.stack(layers)
            said[f"{name}/{ratio}"] = texts
            hits = sum(one["expected"] in text for one, text in zip(asked, texts))
            print(f"{name} {ratio}: {hits / len(asked):.3f}", flush=True)
    save_file(kept, kept_file)
    Path(out).write_text(json.dumps(said))


if __name__ == "__main__":
    main(*sys.argv[1:])
