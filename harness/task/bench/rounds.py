"""The formats timed: each once, watched for its memory and not for its time, then in rounds, all of them taking turns."""

import os
import random
import shutil
from pathlib import Path
from statistics import median
from typing import Any

from harness import machine
from harness.config import SaveConfig, option
from harness.pipeline.clock import seconds
from harness.progress import over
from harness.report.terminal.console import Say
from harness.save import store
from harness.save.registry import format_of
from harness.snapshot.digest import tensor_bytes
from harness.snapshot.state import State
from harness.task.bench import payload
from harness.task.bench.memory import watched

VARIANTS = {
    "safetensors": option("save", "safetensors"),
    "torch": option("save", "torch"),
    "pickle": option("save", "pickle"),
    "memory": option("save", "memory"),
    "blosc2": option("save", "blosc2"),
    "blosc2 bit zstd 1": option("save", "blosc2", codec="zstd", level=1, shuffle="bit"),
    "blosc2 byte zstd 1": option("save", "blosc2", codec="zstd", level=1, shuffle="byte"),
    "gzip": option("save", "gzip"),
}
SLOW, LONG = {"gzip"}, 1.0  # timed once where a save takes more seconds
FEW = 16  # tokens of one sequence, by which each format is begun
KINDS = ("save", "raw_write", "map", "load", "raw_read")

Row = dict[str, Any]
Times = dict[str, list[float]]


def formats(state: State, dtype: str, place: Path, repeats: int, say: Say) -> list[Row]:
    """A row per format: medians of `repeats` rounds, and in how many of them it was the fastest of those on a disk."""
    chosen = {
        name: settings
        for name, settings in VARIANTS.items()  # the search for the best ratio is made once
        if dtype == "bfloat16" or getattr(settings, "codec", "lz4") == "lz4"
    }
    times: dict[str, Times] = {name: _blank() for name in chosen}
    rows, small = [], payload.first(state, state.dtype, min(state.tokens, FEW))
    say.stage(f"{dtype}: each of {len(chosen)} formats once")
    for name, settings in over(chosen.items(), "formats", len(chosen)):
        first, begun = _blank(), _blank()
        timed(small, place, settings, begun)  # imports and pools, which are no format's memory
        peak = _peak(state, place, settings, first)  # prepares what is prepared once
        if name in SLOW and first["save"][0] > LONG:
            times[name] = first
        rows.append(_stored(state, place / "s") | {"format": name, "dtype": dtype, "peak_extra_bytes": peak})  # fmt: skip
    say.done("every byte back")
    turns = [name for name in chosen if not times[name]["save"]]
    say.stage(f"{dtype}: {machine.many(repeats, 'round')}, the formats taking turns")
    for number in over(range(repeats), "rounds", repeats):
        for name in order(turns, number):
            timed(state, place, chosen[name], times[name])
    rows = [_timed(row, times[row["format"]]) for row in rows]
    _placed(rows, times, repeats)
    say.done(", ".join(f"{r['format']} {machine.seconds(r['save_s'])}" for r in rows))
    return rows


def order(names: list[str], number: int) -> list[str]:
    """The turns of round `number`: each round has another order, so that nobody always comes behind the slow one."""
    return random.Random(number).sample(names, len(names))


def timed(state: State, place: Path, settings: SaveConfig, times: Times) -> None:
    """One round: ours and the raw one take turns, so that both meet the same disk."""
    target, raw, data = _cleared(state, place)
    times["save"].append(seconds(lambda: store.save(state, target, settings)))
    times["raw_write"].append(seconds(lambda: raw_write(raw, data)))
    manifest = store.read_manifest(target)
    times["map"].append(seconds(lambda: store.unverified(target, manifest)))
    times["load"].append(seconds(lambda: store.load(target)))
    times["raw_read"].append(seconds(raw.read_bytes))


def one_sequence(state: State, place: Path, repeats: int) -> Row:
    """safetensors with one sequence only, where the two journal commits of an atomic save weigh."""
    times = _blank()
    for _ in range(repeats + 1):
        timed(state, place, VARIANTS["safetensors"], times)
    middle = {kind: median(taken[1:]) for kind, taken in times.items()}
    return {
        "one_sequence_kv_bytes": state.kv_bytes,
        "one_sequence_save_of_raw": middle["raw_write"] / middle["save"],
        "one_sequence_load_of_raw": middle["raw_read"] / middle["load"],
        "one_sequence_map_s": middle["map"],
    }


def raw_write(path: Path, data: list[memoryview]) -> None:
    """What the disk can do: the same bytes into one file, then fsync."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        for part in data:
            written = 0
            while written < len(part):
                written += os.write(handle, part[written:])
        os.fsync(handle)
    finally:
        os.close(handle)


def _blank() -> Times:
    return {kind: [] for kind in KINDS}


def _timed(row: Row, times: Times) -> Row:
    middle = {kind: median(taken) for kind, taken in times.items()}
    ours = {
        "format": row["format"],
        "dtype": row["dtype"],
        "runs": len(times["save"]),
        **{f"{kind}_s": value for kind, value in middle.items()},
        "save_of_raw": middle["raw_write"] / middle["save"],
        "load_of_raw": middle["raw_read"] / middle["load"],
    }
    return ours | row


def _placed(rows: list[Row], times: dict[str, Times], repeats: int) -> None:
    """Adds to each row in how many rounds it was the fastest of those on a disk; what was timed once stands
    beside every round."""
    for kind in ("save", "load"):
        firsts: list[str] = []
        for number in range(repeats):
            met = {
                name: taken[kind][min(number, len(taken[kind]) - 1)]
                for name, taken in times.items()
                if name != "memory"
            }
            firsts.append(min(met, key=met.__getitem__))
        for row in rows:
            row[f"{kind}_first"] = firsts.count(row["format"])


def _stored(state: State, target: Path) -> Row:
    stored = store.stored_bytes(target)
    tokenizer_bytes = sum(p.stat().st_size for p in (target / "tokenizer").iterdir())
    return {
        "kv_bytes": state.kv_bytes,
        "stored_bytes": stored,
        "ratio": (stored - tokenizer_bytes) / state.kv_bytes,
        "layer_bytes": state.layers[0].nbytes,
    }


def _peak(state: State, place: Path, settings: SaveConfig, times: Times) -> int:
    """Largest extra memory of a save and of a load, beyond what the loaded (or kept) tensors take.
    Whether every byte comes back is checked here too."""
    in_memory = settings.name == "memory"
    mapped = format_of(settings).mapped
    tensors = sum(t.nbytes for _, t in state.tensors())
    target, raw, data = _cleared(state, place)
    with watched() as saving:
        times["save"].append(seconds(lambda: store.save(state, target, settings)))
    loads: list[Any] = []
    with watched() as loading:
        times["load"].append(seconds(lambda: loads.append(store.load(target))))
    _assert_equal(state, loads[0][0])
    loads.clear()
    manifest = store.read_manifest(target)
    times["map"].append(seconds(lambda: store.unverified(target, manifest)))
    times["raw_write"].append(seconds(lambda: raw_write(raw, data)))
    times["raw_read"].append(seconds(raw.read_bytes))
    return max(saving.peak - tensors * in_memory, loading.peak - tensors * (not mapped), 0)


def _cleared(state: State, place: Path) -> tuple[Path, Path, list[memoryview]]:
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    return place / "s", place / "raw", [tensor_bytes(t) for _, t in state.tensors()]


def _assert_equal(one: State, two: State) -> None:
    for (name, a), (_, b) in zip(one.tensors(), two.tensors(), strict=True):
        if tensor_bytes(a) != tensor_bytes(b):
            raise AssertionError(f"{name} came back changed")
