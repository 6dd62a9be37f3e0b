"""One decode step through every cache, taking turns in one run, beside the limit that reading the weights
and the K/V once would take at the bandwidth measured in between."""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness import machine
from harness.cache.base import Decoder
from harness.cache.registry import check as check_caches
from harness.cache.registry import decoder as build_decoder
from harness.config import DTYPES, Config, TaskConfig, at_least, one_of, option
from harness.errors import HarnessError
from harness.model.experts import experts
from harness.model.loaded import Loaded, load
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.session import Session, parameters
from harness.report.terminal.console import Say
from harness.snapshot import table
from harness.snapshot.result import UNJUDGED, write_json
from harness.snapshot.state import State
from harness.task.bench import beside
from harness.task.bench.likeness import Likeness, quartiles
from harness.task.bench.synthetic import synthetic_state

PROBE_BYTES = {"cpu": 2**28, "cuda": 2**31}  # read to measure the bandwidth: far larger than any
# cache, and on a GPU long enough that starting to read does not count

FULL = "out of memory: on this device the cache does not fit beside the others of its row."

COMPILED = "static, compiled"  # the library's own fastest way
OPENINGS = 5  # of which the median is reported


@dataclass(frozen=True)
class Cell:
    """One combination: every cache in it takes its turn on the same synthetic past."""

    dtype: str
    context: int
    branches: int
    caches: tuple[str, ...]

    def __str__(self) -> str:
        shared = f", {self.branches} branches" if self.branches > 1 else ""
        return f"{self.dtype}, {self.context} tokens{shared}"


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """All combinations of the task's lists; rows in `bench.json`, tables and plots in the report."""
    from harness.report import bench as report

    at_least("task.runs", cfg.task.runs, 3)
    at_least("task.seconds", cfg.task.seconds, 0)
    for dtype in (*cfg.task.dtypes, *cfg.task.branch_dtypes):
        one_of("task.dtypes", dtype, DTYPES)
    for count in (*cfg.task.contexts, *cfg.task.branches, *cfg.task.branch_contexts):
        at_least("task.contexts and task.branches", count, 1)
    for engine in cfg.task.engines:
        one_of("task.engines", engine, (beside.NAME,))
    check_caches("task.caches", [*cfg.task.caches, *cfg.task.branch_caches])
    session = Session.open(replace(cfg, dtype=cells(cfg.task)[0].dtype), folder, say)
    rows: list[dict[str, Any]] = []
    for cell in cells(cfg.task):
        session.loaded = load(cfg.model, cell.dtype, cfg.device)
        say.stage(str(cell))
        with beside.opened(session, cell.dtype, cell.context if cell.branches == 1 else 0) as other:
            measured = measure(session.loaded, cell, cfg, other)
        rows += measured
        write_json(folder / "bench.json", rows)  # what is measured stays, whatever comes
        timed = [r for r in measured if r["per_token_s"] is not None]
        say.done(", ".join(f"{r['cache']} {r['per_token_s'] * 1e3:.1f} ms" for r in timed))
    seconds = sum(r["runs"] * (r["per_token_s"] or 0) for r in rows)
    model = session.loaded.model
    sections = report.decode(rows, f"{cfg.model.name}, {parameters(model)} parameters")
    count = (
        f"{machine.many(len(rows), 'figure')} measured in {machine.seconds(seconds)} of decoding"
    )
    reason = "; ".join(filter(None, (report.fastest(rows), count, "times have no verdict")))
    if fast := sum((r["times_limit"] or 1) < 1 for r in rows):
        reason += f"; {fast} are faster than memory, so a processor's cache held what they read"
    dtypes = list(dict.fromkeys(r["dtype"] for r in rows))
    record = {
        "bench": {"weight_bytes": weight_bytes(model), "dtypes": dtypes},
        "table": table.block("bench", [*report.CONSOLE.values()], ["cache", "dtype", "context", "branches"]),
    }  # fmt: skip
    return finish_table(
        session,
        "bench",
        rows,
        sections,
        UNJUDGED,
        reason,
        list(report.CONSOLE),
        record=record,
        shown_rows=report.console(rows),
    )


def cells(task: TaskConfig) -> list[Cell]:
    """The combinations in the order they are measured, models loaded once per dtype."""
    out = []
    for dtype in dict.fromkeys([*task.dtypes, *task.branch_dtypes]):
        if dtype in task.dtypes:
            out += [Cell(dtype, n, 1, tuple(task.caches)) for n in task.contexts]
        if dtype in task.branch_dtypes:
            out += [
                Cell(dtype, n, count, tuple(task.branch_caches))
                for n in task.branch_contexts
                for count in task.branches
            ]
    return out


def measure(
    loaded: Loaded, cell: Cell, cfg: Config, other: beside.Beside | None = None
) -> list[dict[str, Any]]:
    """Rows of one combination. A cache that refuses gets a row with its reason and no figures. other: an
    engine that takes its turn, its prompt already read."""
    state = synthetic_state(loaded, cell.context, cfg.seed)
    settings = {c: replace(cfg.cache, name=c, branches=cell.branches) for c in cell.caches}
    if cfg.task.compiled and cell.branches == 1:
        settings[COMPILED] = option("cache", "static", compile=True)
    decoders, opened, refused = {}, {}, {}
    probe_bytes = PROBE_BYTES[loaded.device.type]
    probe = torch.ones(probe_bytes // 4, device=loaded.device)
    for name, chosen in settings.items():
        try:
            opening = []
            for _ in range(OPENINGS):
                start = time.perf_counter()
                decoders[name] = build_decoder(loaded, state, chosen)
                opening.append(time.perf_counter() - start)
            opened[name] = median(opening)
            for _ in range(2):  # warm up: buffers, kernels, the tail's first growth
                decoders[name].step(_ids(loaded, state, cfg.seed))
        except HarnessError as problem:
            decoders.pop(name, None)
            refused[name] = str(problem)
        except torch.OutOfMemoryError:
            decoders.pop(name, None)
            refused[name] = FULL
        if name in refused and loaded.device.type == "cuda":
            torch.cuda.empty_cache()
    seconds: dict[str, list[float]] = {name: [] for name in decoders}
    copied = {name: d.bytes_copied for name, d in decoders.items()}
    reading: list[float] = []
    likeness = Likeness()
    began = time.perf_counter()
    for turn in range(cfg.task.runs):
        if turn >= 3 and time.perf_counter() - began > cfg.task.seconds:
            break
        order = [name for name in seconds if name not in refused]
        logits: dict[str, torch.Tensor] = {}
        for name in order[turn % max(len(order), 1) :] + order[: turn % max(len(order), 1)]:
            ids = _ids(loaded, state, cfg.seed + turn)
            try:
                seconds[name].append(
                    _timed(loaded, partial(_step, decoders[name], ids, logits, name))
                )
            except torch.OutOfMemoryError:
                refused[name] = FULL
                for table in (decoders, opened, copied):
                    table.pop(name)
        likeness.turn(logits)
        reading.append(_timed(loaded, probe.sum))
        if other is not None:
            other.step()
    seconds = {name: times for name, times in seconds.items() if name not in refused}
    apart = likeness.faults()
    times = {name: steps for name, steps in seconds.items() if name not in apart}
    bandwidth = probe_bytes / median(reading)
    baseline = median(times["dynamic"]) if times.get("dynamic") else None
    needed = weight_bytes(loaded.model) + state.kv_bytes
    rows = [
        _row(cell, name, decoders.get(name), seconds.get(name), (refused | apart).get(name))
        | {
            "ratio_to_dynamic": (baseline and name in times and baseline / median(times[name])) or None,
            "bytes_copied_per_token": (name in copied
            and (decoders[name].bytes_copied - copied[name]) / len(seconds[name])) or 0.0,
            "open_s": opened.get(name),
            "limit_s": needed / bandwidth,
            "times_limit": (name in times and median(times[name]) / (needed / bandwidth)) or None,
            "bandwidth_gb_s": bandwidth / 1e9,
        }
        for name in settings
    ]  # fmt: skip
    return rows if other is None else other.joined(rows, times)


def weight_bytes(model: Any) -> int:
    """Bytes of weights that a decode step reads: all but an embedding table that is only looked up, and
    the experts that no token of one sequence is sent to."""
    table, head = model.get_input_embeddings(), model.get_output_embeddings()
    routed, sent = experts(model.config.get_text_config())
    share = min(sent / routed, 1.0) if routed and sent else 1.0
    total = sum(
        round(p.nbytes * (share if ".experts." in name else 1))
        for name, p in model.named_parameters()
    )
    tied = head is not None and getattr(head, "weight", None) is table.weight
    return total if tied else total - table.weight.nbytes


def _row(
    cell: Cell, name: str, decoder: Decoder | None, seconds: list[float] | None, reason: str | None
) -> dict[str, Any]:
    return {
        "cache": name,
        "dtype": cell.dtype,
        "context": cell.context,
        "branches": cell.branches,
        "new_tokens": len(seconds) if seconds else 0,
        "runs": len(seconds) if seconds else 0,
        "per_token_s": median(seconds) if seconds else None,
        **quartiles(seconds or []),
        "kv_bytes": decoder.kv_bytes if decoder is not None else None,
        "reason": reason,
    }


def _ids(loaded: Loaded, state: State, seed: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(seed)
    return torch.randint(0, loaded.text_config.vocab_size, (state.batch, 1), generator=draw)


def _step(decoder: Decoder, ids: torch.Tensor, logits: dict[str, torch.Tensor], name: str) -> None:
    logits[name] = decoder.step(ids)[:, -1:]


def _timed(loaded: Loaded, work: Callable[[], object]) -> float:
    cuda = loaded.device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(loaded.device)
    start = time.perf_counter()
    with torch.no_grad():
        work()
    if cuda:
        torch.cuda.synchronize(loaded.device)
    return time.perf_counter() - start
