"""What a pause costs and a restore saves, by context: save, verified load, move to the device and first
token, beside a prefill of the same ids and the disk's own speed."""

import shutil
import time
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness import machine
from harness.cache.registry import decoder as build_decoder
from harness.capture import Captured, capture
from harness.config import Config, at_least
from harness.model.loaded import Loaded
from harness.pipeline.clock import seconds
from harness.pipeline.drive import recompute_seconds
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.session import Session, tokenizer_files
from harness.report import bench as report
from harness.report.terminal.console import Say
from harness.save import store
from harness.snapshot.digest import tensor_bytes
from harness.snapshot.result import UNJUDGED, write_json
from harness.snapshot.state import State
from harness.task.bench.rounds import raw_write

FULL = "out of memory: a prefill of this length does not fit on the device."


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """One row of `bench.json` per context. Every byte that came back is compared; the first token and its
    logits are held against those that the live cache gives."""
    for tokens in cfg.task.contexts:
        at_least("task.contexts", tokens, 2)
    at_least("task.repeats", cfg.task.repeats, 1)
    session = Session.open(cfg, folder, say)
    rows = []
    for tokens in cfg.task.contexts:
        say.stage(f"{tokens} tokens")
        rows.append(measured(session, tokens))
        write_json(folder / "bench.json", rows)  # what is measured stays, whatever comes
        say.done(rows[-1]["reason"] or f"restored {rows[-1]['speedup']:.1f}x as fast as prefilled")
    count = f"{machine.many(len(rows), 'context')} measured, not judged"
    faster = report.speedup(rows)
    reason = "; ".join(filter(None, (faster, count, report.first_tokens(rows))))
    return finish_table(
        session,
        "bench",
        rows,
        report.restore(rows),
        UNJUDGED,
        reason,
        report.RESTORE,
        by=["context"],
        word=faster,
    )


def measured(session: Session, tokens: int) -> dict[str, Any]:
    """The row of one context: medians of `task.repeats`, save and raw write taking turns, after a first time of each
    that is not counted: what is compiled, mapped or prepared once is no part of what a pause costs."""
    cfg, loaded = session.cfg, session.loaded
    row: dict[str, Any] = {"format": cfg.save.name, "dtype": cfg.dtype, "context": tokens}
    blank = dict.fromkeys((*report.RESTORED, *report.FIRST))
    try:
        captured = prefilled(session, tokens)
        prefill: list[float] = []
        while (
            len(prefill) < cfg.task.repeats and captured.prefill_s + sum(prefill) < cfg.task.seconds
        ):
            prefill.append(recompute_seconds(loaded, captured.state))
        prefill = prefill or [captured.prefill_s]  # so long that what is done once is little of it
    except torch.OutOfMemoryError:
        _forget(loaded)
        return row | blank | {"reason": FULL}
    state, place = captured.state, session.folder / "snapshot"
    live = loaded.forward(*_next(state), None, captured.live)[0, -1].double()
    payload, captured = host_bytes(state), None  # type: ignore[assignment]
    times: dict[str, list[float]] = {name: [] for name in report.TIMED}
    apart = 0.0
    for _ in range(cfg.task.repeats + 1):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        times["save_s"].append(seconds(lambda: store.save(state, place / "s", cfg.save)))
        times["raw_write_s"].append(seconds(lambda: raw_write(place / "raw", payload)))
        times["raw_read_s"].append(seconds((place / "raw").read_bytes))
        again = restored(session, state, place / "s", times)
        apart = max(apart, float((again - live).abs().max()))
    middle = {name: median(values[1:]) for name, values in times.items()}
    whole = middle["load_s"] + middle["to_device_s"] + middle["first_token_s"]
    row |= middle | {
        "prefill_s": median(prefill),
        "restored_s": whole,
        "speedup": median(prefill) / whole,
        "save_of_raw": middle["raw_write_s"] / middle["save_s"],
        "kv_bytes": state.kv_bytes,
        "stored_bytes": store.stored_bytes(place / "s"),
        "peak_device_bytes": _peak(loaded),
        "same_first_token": bool(again.argmax() == live.argmax()),
        "first_apart": apart,
        "first_gap": float(-live.topk(2).values.diff()),
        "reason": None,
    }
    shutil.rmtree(place, ignore_errors=True)
    _forget(loaded)
    return row


def prefilled(session: Session, tokens: int) -> Captured:
    """A real prefill of `tokens` random ids `[1, tokens]`."""
    draw = torch.Generator().manual_seed(session.cfg.seed)
    size = int(session.loaded.text_config.vocab_size)
    ids = torch.randint(0, size, (1, tokens), generator=draw)
    documents = {**session.documents, "generation": {"sampler": None, "steps": 0}}
    mask = torch.ones_like(ids)
    files, chunk = tokenizer_files(session.loaded), session.cfg.prompt.chunk
    return capture(session.loaded, ids, mask, documents, files, chunk=chunk)


def restored(
    session: Session, state: State, place: Path, times: dict[str, list[float]]
) -> torch.Tensor:
    """Logits `[vocab]` of the token after the next, by the restored state. Raises AssertionError for a
    changed byte."""
    loaded, cfg = session.loaded, session.cfg
    start = time.perf_counter()
    back, _ = store.load(place)
    times["load_s"].append(time.perf_counter() - start)
    start = time.perf_counter()
    back = back.to(loaded.device)
    times["to_device_s"].append(time.perf_counter() - start)
    for (name, one), (_, two) in zip(state.tensors(), back.tensors(), strict=True):
        if not same_bytes(one, two):
            raise AssertionError(f"{name} came back changed")
    start = time.perf_counter()
    opened = build_decoder(loaded, back, replace(cfg.cache, branches=1))
    logits = opened.step(_next(state)[0])[0, -1]
    logits.argmax().item()  # it is there
    times["first_token_s"].append(time.perf_counter() - start)
    return logits.double()


def same_bytes(one: torch.Tensor, two: torch.Tensor) -> bool:
    """Whether two tensors are alike in dtype, shape and every byte, compared where they lie."""
    if one.dtype != two.dtype or one.shape != two.shape:
        return False
    one, two = (t.contiguous().reshape(-1).view(torch.uint8) for t in (one, two))
    return torch.equal(one, two.to(one.device))


def host_bytes(state: State) -> list[memoryview]:
    """The bytes of every tensor, on the host."""
    return [tensor_bytes(tensor) for _, tensor in state.tensors()]


def _next(state: State) -> tuple[torch.Tensor, torch.Tensor]:
    """The token that follows `[1, 1]` and where it stands."""
    return state.logits.argmax(-1, keepdim=True), state.next_position[:, None]


def _peak(loaded: Loaded) -> int | None:
    return torch.cuda.max_memory_allocated(loaded.device) if loaded.device.type == "cuda" else None


def _forget(loaded: Loaded) -> None:
    if loaded.device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(loaded.device)
