"""torch.save, pickle and gzip on the same K/V, in memory, so that no disk blurs the comparison."""

import gzip
import io
import pickle

import torch

from harness.report.claims import Layout
from harness.task.claims.bench import DEPENDS, HOLDS, REFUTED, Bench, Settled, claim, seconds

CLAIM = "torch.save is faster and smaller than pickle; gzip is smaller and slower."

LAYOUT = Layout(
    {
        "kv_bytes": "bytes of keys and values",
        "torch_faster_than_pickle": "torch.save is faster than pickle",
        "torch_smaller_than_pickle": "torch.save is smaller than pickle",
        "gzip_smaller_than_both": "gzip is smaller than both",
        "gzip_slower_than_both": "gzip is slower than both",
    },
    "way",
    {"torch": "torch.save", "pickle": "pickle", "gzip": "gzip of pickle"},
    {
        "{}_bytes": "bytes",
        "{}_seconds": "seconds",
        "{}_over_torch_time": "time over torch.save's",
    },
)


@claim(CLAIM, LAYOUT)
def save_formats(bench: Bench) -> Settled:
    limit = bench.loaded.max_positions or 1024
    state = bench.state(bench.ids(min(1024, limit - 1)))
    tensors = dict(t for layer in state.layers for t in layer.tensors())

    def by_torch() -> bytes:
        buffer = io.BytesIO()
        torch.save(tensors, buffer)
        return buffer.getvalue()

    def by_pickle() -> bytes:
        return pickle.dumps(tensors, protocol=pickle.HIGHEST_PROTOCOL)

    def by_gzip() -> bytes:
        return gzip.compress(by_pickle(), compresslevel=6)

    ways = {"torch": by_torch, "pickle": by_pickle, "gzip": by_gzip}
    time = {name: seconds(way) for name, way in ways.items()}
    size = {name: len(way()) for name, way in ways.items()}
    parts = {
        "torch_faster_than_pickle": time["torch"] < time["pickle"],
        "torch_smaller_than_pickle": size["torch"] < size["pickle"],
        "gzip_smaller_than_both": size["gzip"] < min(size["torch"], size["pickle"]),
        "gzip_slower_than_both": time["gzip"] > max(time["torch"], time["pickle"]),
    }
    wrong = [LAYOUT.names[part] for part, true in parts.items() if not true]
    return Settled(
        HOLDS if all(parts.values()) else DEPENDS if any(parts.values()) else REFUTED,
        {
            "kv_bytes": state.kv_bytes,
            **{f"{name}_bytes": value for name, value in size.items()},
            **{f"{name}_seconds": value for name, value in time.items()},
            **{f"{name}_over_torch_time": value / time["torch"] for name, value in time.items()},
            **parts,
        },
        f"On the part: not that {' nor that '.join(wrong)}."
        if wrong
        else "Every part of it, as measured here.",
        conditions=f"{state.tokens} tokens, medians of 5 runs, in memory",
    )
