"""What `task=resume` costs beside fifteen lines that do the same by hand: `make cost`.

Random models of real sizes in `save_pretrained` folders. Each side loads the model and a paused
state of N tokens, reads a text, generates eight tokens and writes the next state, in a process of its
own whose CPU seconds and peak memory are taken from the operating system. Nothing is judged in it.

    python tests/task/session_cost.py [NAME ...] [--tokens 300 2000] [--pairs 3] [--where DIR]
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from statistics import median
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "harness" / "model" / "assets" / "tiny"
SENTENCE = "let k be 5 . the bird sang in the tree . the man put the stone by the bank . "
EACH = 23  # tokens of SENTENCE in the shipped tokenizer
# threads that wait asleep: spinning ones count as CPU seconds on a busy machine, on either side
QUIET = {"HF_HUB_OFFLINE": "1", "OMP_WAIT_POLICY": "PASSIVE"}
SPECIAL = {"bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2}

# name -> (transformers model_type, dtype, config)
MODELS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gpt2 124M": ("gpt2", "float32", {"n_positions": 4096}),
    "qwen3 0.6B": ("qwen3", "bfloat16", {
        "hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 28, "head_dim": 128,
        "num_attention_heads": 16, "num_key_value_heads": 8, "vocab_size": 151936,
        "tie_word_embeddings": True,
    }),
    "llama 1.1B": ("llama", "bfloat16", {
        "hidden_size": 2048, "intermediate_size": 5632, "num_hidden_layers": 22,
        "num_attention_heads": 32, "num_key_value_heads": 4, "vocab_size": 32000,
        "max_position_embeddings": 4096,
    }),
}  # fmt: skip

BUILD = """
import sys, json, torch
from transformers import AutoConfig, AutoModelForCausalLM
kind, dtype, values, folder = sys.argv[1:]
torch.manual_seed(0)
torch.set_default_dtype(getattr(torch, dtype))
AutoModelForCausalLM.from_config(AutoConfig.for_model(kind, **json.loads(values))).save_pretrained(folder)
"""

PAUSE = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
folder, dtype, text, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
ids = tokenizer(text, return_tensors="pt").input_ids
cache = DynamicCache(config=model.config)
with torch.no_grad():
    last = model(ids, past_key_values=cache, logits_to_keep=1).logits[:, -1]
torch.save({"ids": ids, "last": last, "kv": [(x.keys, x.values) for x in cache.layers]}, out)
"""

BY_HAND = """
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer, DynamicCache
folder, dtype, text, saved, out = sys.argv[1:]
tokenizer = AutoTokenizer.from_pretrained(folder)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype)).eval()
state = torch.load(saved)
cache = DynamicCache(state["kv"], config=model.config)
ids, feed = state["ids"], tokenizer(text, return_tensors="pt").input_ids
with torch.no_grad():
    for step in range(9):
        ids = torch.cat([ids, feed], 1)
        last = model(feed, past_key_values=cache, logits_to_keep=1).logits[:, -1]
        feed = last.argmax(-1, keepdim=True)
        print(tokenizer.decode(feed[0]), end="", flush=True)
torch.save({"ids": ids, "last": last, "kv": [(x.keys, x.values) for x in cache.layers]}, out)
"""


def main() -> None:
    """Print one row per model and length, as Markdown."""
    asked = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    asked.add_argument("names", nargs="*", default=list(MODELS))
    asked.add_argument("--tokens", nargs="+", type=int, default=[300, 2000])
    asked.add_argument("--pairs", type=int, default=3)
    asked.add_argument("--where", type=Path, default=ROOT / "runs" / "cost")
    given = asked.parse_args()
    print(
        "| model | tokens | CPU s, by hand | `task=resume` | ratio | peak, by hand | ours | ratio |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for name in given.names:
        folder = built(name, given.where)
        for tokens in given.tokens:
            print(row(name, folder, tokens, given.pairs), flush=True)


def built(name: str, where: Path) -> Path:
    """The folder of the random model `name`, made once."""
    kind, dtype, values = MODELS[name]
    folder = where / name.replace(" ", "_")
    if not (folder / "config.json").is_file():
        run("-c", BUILD, kind, dtype, json.dumps({**SPECIAL, **values}), str(folder))
        for file in ("tokenizer.json", "tokenizer_config.json"):
            shutil.copy(TINY / file, folder)
    return folder


def row(name: str, folder: Path, tokens: int, pairs: int) -> str:
    """Both sides, turn by turn, `pairs` times after one turn that is not counted."""
    dtype, text, more = MODELS[name][1], SENTENCE * (tokens // EACH), " what is k ?"
    there = folder.parent / f"{folder.name}_{tokens}"
    shutil.rmtree(there, ignore_errors=True)
    there.mkdir()
    common = (
        "-m",
        "harness",
        "name=cost",
        "track=none",
        f"runs_dir={there}/runs",
        f"dtype={dtype}",
    )
    model = ("model=path", f"model.path={folder}")
    run("-c", PAUSE, str(folder), dtype, text, f"{there}/a.pt")
    run(*common, *model, "task=save", f"text={text}", f"out={there}/a")
    ours = (*common, *model, "task=resume", f"snapshot={there}/a", f"text={more}", "steps=8",
            f"out={there}/b", "overwrite=true", "compare.budget_s=0")  # fmt: skip
    hand = ("-c", BY_HAND, str(folder), dtype, more, f"{there}/a.pt", f"{there}/b.pt")
    turns = [(run(*hand), run(*ours)) for _ in range(pairs + 1)][1:]
    cpu = [median(turn[side][0] for turn in turns) for side in (0, 1)]
    peak = [median(turn[side][1] for turn in turns) for side in (0, 1)]
    ratio = [median(turn[1][i] / turn[0][i] for turn in turns) for i in (0, 1)]
    if not (there / "b" / "manifest.json").is_file():
        raise SystemExit(f"{name}: task=resume wrote no snapshot")
    shutil.rmtree(there)
    return (
        f"| {name}, {dtype} | {tokens} | {cpu[0]:.1f} | {cpu[1]:.1f} | {ratio[0]:.2f} "
        f"| {peak[0] / 2**30:.2f} GiB | {peak[1] / 2**30:.2f} GiB | {ratio[1]:.2f} |"
    )


def run(*arguments: str) -> tuple[float, int]:
    """`(CPU seconds, peak bytes)` of a Python process. Raises SystemExit with what it said."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **QUIET}
    child = subprocess.Popen(
        [sys.executable, *arguments], env=environment, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    assert child.stdout is not None
    said = child.stdout.read()
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1) or "Traceback" in said:  # 1: nothing was compared
        raise SystemExit(said[-2000:])
    return usage.ru_utime + usage.ru_stime, usage.ru_maxrss << 10


if __name__ == "__main__":
    main()
