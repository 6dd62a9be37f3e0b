"""Where a decode step of `cache=manual` spends its time on a GPU, kernel by kernel, with the decode kernels
and with the library's flash kernel in their place: TinyLlama's shape, random weights, bfloat16.

    python tests/cache/step_profile.py [--tokens 32768] [--branches 1] [--device cuda]
"""

import argparse
import time
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile

from harness.attention.kernels.cuda import decode
from harness.cache.registry import decoder
from harness.config import ModelConfig, option
from harness.model.loaded import load
from harness.task.bench import PROBE_BYTES, weight_bytes
from harness.task.bench.synthetic import synthetic_state

SHAPE = {"num_hidden_layers": 22, "hidden_size": 2048, "intermediate_size": 5632, "num_attention_heads": 32,
         "num_key_value_heads": 4, "head_dim": 64, "vocab_size": 32000, "max_position_embeddings": 262144}  # fmt: skip
RUNS, PROFILED, MOST = 31, 5, 16


def timed(work, wait) -> float:
    """Median seconds of `RUNS` calls, after three that are not counted."""
    taken = []
    for _ in range(RUNS + 3):
        wait()
        start = time.perf_counter()
        work()
        wait()
        taken.append(time.perf_counter() - start)
    return median(taken[3:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--tokens", type=int, default=32768)
    parser.add_argument("--branches", type=int, default=1)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--layers", type=int, default=SHAPE["num_hidden_layers"])
    asked = parser.parse_args()
    cuda = asked.device == "cuda"
    wait = torch.cuda.synchronize if cuda else lambda: None
    config = {**SHAPE, "num_hidden_layers": asked.layers}
    settings = ModelConfig(name="shape", architecture="llama", config=config, on_device=cuda)
    loaded = load(settings, "bfloat16", asked.device)
    state = synthetic_state(loaded, asked.tokens)
    probe = torch.ones(PROBE_BYTES[asked.device] // 4, device=asked.device)
    bandwidth = probe.nbytes / timed(probe.sum, wait)
    limit = (weight_bytes(loaded.model) + state.kv_bytes) / bandwidth
    print(f"{bandwidth / 1e9:.0f} GB/s read; weights and K/V once: {limit * 1e3:.2f} ms")
    ids = torch.randint(0, SHAPE["vocab_size"], (asked.branches, 1))
    with torch.no_grad():
        for name, ours in (
            (("decode kernels", True), ("flash", False)) if cuda else (("CPU", True),)
        ):
            decode._usable = ours
            steps = decoder(loaded, state, option("cache", "manual", branches=asked.branches))
            took = timed(lambda: steps.step(ids), wait)  # noqa: B023
            print(f"{name}: {took * 1e3:.2f} ms a step, {limit / took:.2f} of what memory allows")
            with profile(
                activities=[ProfilerActivity.CUDA if cuda else ProfilerActivity.CPU]
            ) as seen:
                for _ in range(PROFILED):
                    steps.step(ids)
                wait()
            spent = [
                (e.self_device_time_total if cuda else e.self_cpu_time_total, e)
                for e in seen.key_averages()
            ]
            for total, event in sorted(spent, key=lambda row: -row[0])[:MOST]:
                each = total / PROFILED
                print(f"  {each:9.1f} us {event.count / PROFILED:6.1f} times  {event.key[:90]}")


if __name__ == "__main__":
    main()
