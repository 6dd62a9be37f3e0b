"""`task=format_bench`: every save format on the same K/V, beside what the disk itself can do.

One real prefill of the configured model gives the K/V; each figure is a median of runs that take
turns with the raw writes and reads they are compared with.
"""

import gzip
import os
import pickle
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness import machine
from harness.cache.registry import decoder
from harness.config import DTYPES, Config, SaveConfig, at_least, one_of, option
from harness.model.loaded import Loaded
from harness.pipeline.drive import recompute_seconds
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.session import Session
from harness.report import format_bench as report
from harness.report.terminal.console import Say
from harness.save import store
from harness.save.registry import format_of
from harness.snapshot.digest import tensor_bytes
from harness.snapshot.result import UNJUDGED, write_json
from harness.snapshot.state import State
from harness.task.format_bench import payload, protection
from harness.task.format_bench.memory import watched

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
COLUMNS = ["format", "dtype", "save_s", "load_s", "save_of_raw", "load_of_raw"]
COLUMNS += ["ratio", "peak_extra_bytes"]
SLOW = {"gzip"}  # timed once
TOKENS, NEW_TOKENS = 4096, 128


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Leaves `bench.json` (one row per format and dtype) and `claims.json` (the founding claim about
    formats). The verdict is `exact` when every format gave back every byte."""
    if cfg.task.tokens is not None:
        at_least("task.tokens", cfg.task.tokens, 1)
    at_least("task.repeats", cfg.task.repeats, 1)
    for dtype in cfg.task.dtypes:
        one_of("task.dtypes", dtype, DTYPES)
    session = Session.open(cfg, folder, say)
    place = folder / "snapshot"
    say.stage("prefill")
    tokens = cfg.task.tokens or _usual(session.loaded)
    whole = payload.prefilled(session, 2 * tokens)
    say.done(f"{machine.many(whole.tokens, 'token')}, {whole.kv_bytes >> 20} MiB of K/V")
    rows = []
    for dtype in cfg.task.dtypes:
        state = payload.halves(whole, getattr(torch, dtype))
        rows += _formats(state, dtype, place, cfg.task.repeats, say)
    say.stage("toolkit")
    claim = _claim(payload.halves(whole, torch.bfloat16), place, cfg.task.repeats, session)
    say.done(claim["verdict"])
    say.stage("commit and restore")
    figures = _small(payload.first(whole, torch.bfloat16, tokens), place, cfg.task.repeats)
    figures |= _commit_and_restore(session, payload.first(whole, whole.dtype), place)
    say.done(f"{figures['restore_speedup']:.1f}x")
    say.stage("signed and encrypted")
    figures |= protection.measured(
        payload.halves(whole, torch.bfloat16), place / "p", cfg.task.repeats
    )
    say.done()
    shutil.rmtree(place, ignore_errors=True)
    write_json(folder / "claims.json", [claim])
    reason = (
        f"{len(rows)} formats and dtypes, every byte back; the founding claim: {claim['verdict']}"
    )
    sections = report.sections(rows, claim, figures)
    record = {"figures": figures, "claims": [claim]}
    return finish_table(session, "bench", rows, sections, UNJUDGED, reason, COLUMNS, record=record)


def _formats(state: State, dtype: str, place: Path, repeats: int, say: Say) -> list[dict[str, Any]]:
    rows = []
    for name, settings in VARIANTS.items():
        if dtype != "bfloat16" and getattr(settings, "codec", "lz4") != "lz4":
            continue  # the search for the best ratio is made once
        say.stage(f"{name} {dtype}")
        times: dict[str, list[float]] = {
            k: [] for k in ("save", "load", "map", "raw_write", "raw_read")
        }
        target = place / "s"
        if name in SLOW:
            peak = _peak(state, place, settings, times)
        else:
            peak = _peak(state, place, settings, {k: [] for k in times})  # warms what is cached
            for _ in range(repeats):
                _timed(state, place, settings, times)
        middle = {k: median(v) for k, v in times.items()}
        stored = store.stored_bytes(target)
        tokenizer_bytes = sum(p.stat().st_size for p in (target / "tokenizer").iterdir())
        rows.append(
            {
                "format": name,
                "dtype": dtype,
                "runs": len(times["save"]),
                **{f"{k}_s": v for k, v in middle.items()},
                "save_of_raw": middle["raw_write"] / middle["save"],
                "load_of_raw": middle["raw_read"] / middle["load"],
                "kv_bytes": state.kv_bytes,
                "stored_bytes": stored,
                "ratio": (stored - tokenizer_bytes) / state.kv_bytes,
                "peak_extra_bytes": peak,
                "layer_bytes": state.layers[0].nbytes,
            }
        )
        say.done(
            f"save {middle['save']:.3f} s, load {middle['load']:.3f} s, {rows[-1]['ratio']:.3f}"
        )
    return rows


def _timed(state: State, place: Path, settings: SaveConfig, times: dict[str, list[float]]) -> None:
    """One round: ours and the raw one take turns, so that both meet the same disk."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    target, raw = place / "s", place / "raw"
    data = [tensor_bytes(t) for _, t in state.tensors()]
    times["save"].append(_seconds(lambda: store.save(state, target, settings)))
    times["raw_write"].append(_seconds(lambda: _raw_write(raw, data)))
    manifest = store.read_manifest(target)
    times["map"].append(_seconds(lambda: store.unverified(target, manifest)))
    times["load"].append(_seconds(lambda: store.load(target)))
    times["raw_read"].append(_seconds(raw.read_bytes))


def _usual(loaded: Loaded) -> int:
    """Tokens where none are asked for: twice as many, and a turn, have positions in the model."""
    room = loaded.max_positions or 4 * TOKENS
    return max(min(TOKENS, (room - NEW_TOKENS) // 2), 1)


def _small(state: State, place: Path, repeats: int) -> dict[str, Any]:
    """safetensors with one sequence only, where the two journal commits of an atomic save weigh."""
    times: dict[str, list[float]] = {
        k: [] for k in ("save", "load", "map", "raw_write", "raw_read")
    }
    for _ in range(repeats):
        _timed(state, place, option("save", "safetensors"), times)
    return {
        "one_sequence_kv_bytes": state.kv_bytes,
        "one_sequence_save_of_raw": median(times["raw_write"]) / median(times["save"]),
        "one_sequence_load_of_raw": median(times["raw_read"]) / median(times["load"]),
        "one_sequence_map_s": median(times["map"]),
    }


def _commit_and_restore(session: Session, whole: State, place: Path) -> dict[str, Any]:
    """Bytes of a commit beside a full save; time to the first token restored and recomputed."""
    loaded, cfg = session.loaded, session.cfg
    shutil.rmtree(place, ignore_errors=True)
    settings = option("save", "safetensors")
    store.save(whole, place / "a", settings)
    store.load(place / "a")
    start = time.perf_counter()
    state, _ = store.load(place / "a")
    opened = decoder(loaded, state, cfg.cache)
    opened.step(state.logits.argmax(-1, keepdim=True))
    restored = time.perf_counter() - start
    recomputed = recompute_seconds(loaded, whole)
    opened.step(torch.zeros((1, NEW_TOKENS - 1), dtype=torch.int64))
    store.save(opened.commit(), place / "b", settings)
    full, new = store.stored_bytes(place / "a"), store.stored_bytes(place / "b")
    return {
        "context": whole.tokens,
        "restore_to_first_token_s": restored,
        "recompute_to_first_token_s": recomputed,
        "restore_speedup": recomputed / restored,
        "commit_tokens": NEW_TOKENS,
        "full_save_bytes": full,
        "commit_bytes": new,
        "commit_share": new / full,
    }


def _claim(state: State, place: Path, repeats: int, session: Session) -> dict[str, Any]:
    """The founding toolkit's own three ways, as it wrote them, on the same tensors."""
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
    for number in range(repeats):
        for name, way in ways.items():
            if name == "gzip" and number:
                continue
            times[name].append(_seconds(way))
            sizes[name] = path.stat().st_size
    middle = {name: median(runs) for name, runs in times.items()}
    parts = {
        "torch_faster_than_pickle": middle["torch"] < middle["pickle"],
        "torch_smaller_than_pickle": sizes["torch"] < sizes["pickle"],
        "gzip_smaller_than_both": sizes["gzip"] < min(sizes["torch"], sizes["pickle"]),
        "gzip_slower_than_both": middle["gzip"] > max(middle["torch"], middle["pickle"]),
    }
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
        f"median of {repeats} (gzip once)",
        "model": session.loaded.source["name"],
        "figures": {
            "kv_bytes": state.kv_bytes,
            **{f"{n}_bytes": v for n, v in sizes.items()},
            **{f"{n}_seconds": v for n, v in middle.items()},
            **parts,
        },
    }


def _peak(state: State, place: Path, settings: SaveConfig, times: dict[str, list[float]]) -> int:
    """Largest extra memory of a save and of a load, beyond what the loaded (or kept) tensors take.
    Whether every byte comes back is checked here too."""
    in_memory = settings.name == "memory"
    mapped = format_of(settings).mapped
    payload = sum(t.nbytes for _, t in state.tensors())
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    data = [tensor_bytes(t) for _, t in state.tensors()]
    with watched() as saving:
        times["save"].append(_seconds(lambda: store.save(state, place / "s", settings)))
    loads: list[Any] = []
    with watched() as loading:
        times["load"].append(_seconds(lambda: loads.append(store.load(place / "s"))))
    _assert_equal(state, loads[0][0])
    loads.clear()
    manifest = store.read_manifest(place / "s")
    times["map"].append(_seconds(lambda: store.unverified(place / "s", manifest)))
    times["raw_write"].append(_seconds(lambda: _raw_write(place / "raw", data)))
    times["raw_read"].append(_seconds((place / "raw").read_bytes))
    return max(saving.peak - payload * in_memory, loading.peak - payload * (not mapped), 0)


def _raw_write(path: Path, data: list[memoryview]) -> None:
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


def _seconds(work: Callable[[], Any]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _assert_equal(one: State, two: State) -> None:
    for (name, a), (_, b) in zip(one.tensors(), two.tensors(), strict=True):
        if tensor_bytes(a) != tensor_bytes(b):
            raise AssertionError(f"{name} came back changed")
