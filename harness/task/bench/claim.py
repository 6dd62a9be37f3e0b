"""The founding claim about formats: the toolkit's own three ways, as it wrote them, on the same tensors."""

import gzip
import pickle
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness.pipeline.clock import seconds
from harness.snapshot.state import State
from harness.task.bench.rounds import LONG, SLOW


def settled(state: State, place: Path, repeats: int, model: str) -> dict[str, Any]:
    """The row of `claims.json`. Each way is timed after a first time that is not counted."""
    tensors = {n: t for layer in state.layers for n, t in layer.tensors()}
    place.mkdir(parents=True, exist_ok=True)
    path = place / "toolkit"

    def by(open_: Callable[..., Any]) -> Callable[[], None]:
        def write() -> None:
            with open_(path, "wb") as file:
                pickle.dump(tensors, file)

        return write

    ways = {"torch": lambda: torch.save(tensors, path), "pickle": by(open), "gzip": by(gzip.open)}
    times: dict[str, list[float]] = {name: [] for name in ways}
    sizes = {}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            if name in SLOW and times[name] and times[name][0] > LONG:
                continue
            times[name].append(seconds(way))
            sizes[name] = path.stat().st_size
    middle = {name: median(taken[1:] or taken) for name, taken in times.items()}
    parts = {
        "torch_faster_than_pickle": middle["torch"] < middle["pickle"],
        "torch_smaller_than_pickle": sizes["torch"] < sizes["pickle"],
        "gzip_smaller_than_both": sizes["gzip"] < min(sizes["torch"], sizes["pickle"]),
        "gzip_slower_than_both": middle["gzip"] > max(middle["torch"], middle["pickle"]),
    }
    once = " (gzip once)" * (len(times["gzip"]) == 1)
    verdict = "holds" if all(parts.values()) else "depends" if any(parts.values()) else "refuted"
    return {
        "claim": "save_formats",
        "verdict": verdict,
        "says": "torch.save is faster and smaller than pickle; gzip is smaller and slower.",
        "because": f"torch.save took {middle['torch'] / middle['pickle']:.2f} of pickle's time for "
        f"{sizes['torch'] / sizes['pickle']:.4f} of its size; gzip took "
        f"{middle['gzip'] / middle['pickle']:.0f} times as long for "
        f"{sizes['gzip'] / sizes['pickle']:.3f} of the size.",
        "conditions": f"bfloat16 K/V, {state.tokens} tokens, written to files without fsync, "
        f"median of {repeats}{once}",
        "model": model,
        "figures": {
            "kv_bytes": state.kv_bytes,
            **{f"{n}_bytes": v for n, v in sizes.items()},
            **{f"{n}_seconds": v for n, v in middle.items()},
            **parts,
        },
    }
