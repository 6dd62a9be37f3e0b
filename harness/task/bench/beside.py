"""llama.cpp beside our caches: the same weights in the same dtype, as many tokens, taking turns."""

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness.cache.library import to_cache
from harness.capture import new_cache, positions_of, prefill
from harness.engine.llamacpp import weights
from harness.engine.llamacpp.speed import TOKENS, Timed
from harness.pipeline.clock import settled
from harness.pipeline.interop import from_cache
from harness.pipeline.session import Session
from harness.save import store
from harness.task.bench.likeness import quartiles
from harness.task.bench.synthetic import synthetic_state

OURS, NAME = "transformers", "llamacpp"
REPEATS, SECONDS = 3, 20.0  # of a prefill, a save and a load; past so many seconds, one will do


@dataclass
class Beside:
    """An engine that takes its turn with the caches. figures: prefill, save and load, of ours and of its;
    stepping: seconds of its decode steps, one per turn."""

    timed: Timed
    figures: dict[str, dict[str, Any]]
    stepping: list[float] = field(default_factory=list)

    def step(self) -> None:
        self.stepping.append(self.timed.step())

    def joined(
        self, rows: list[dict[str, Any]], seconds: dict[str, list[float]]
    ) -> list[dict[str, Any]]:
        """`rows` of the caches and one of llama.cpp, each with its engine and how many times as fast as
        llama.cpp it decodes: the median over turns, each against the step beside it."""

        def ratio(cache: str) -> float | None:
            pairs = [t / s for s, t in zip(seconds.get(cache, []), self.stepping)]
            return median(pairs) if pairs else None

        mine = [
            row | {"engine": OURS, "ratio_to_llamacpp": ratio(row["cache"]), **self.figures[OURS]}
            for row in rows
        ]
        first, step, dynamic = rows[0], median(self.stepping), ratio("dynamic")
        shared = ("dtype", "context", "branches", "limit_s", "bandwidth_gb_s")
        theirs = dict.fromkeys(first) | {k: first[k] for k in shared} | {
            "engine": NAME, "cache": NAME, "runs": len(self.stepping), "per_token_s": step,
            "new_tokens": (TOKENS - 1) * len(self.stepping), "ratio_to_llamacpp": 1.0,
            "ratio_to_dynamic": dynamic and 1 / dynamic, "times_limit": step / first["limit_s"],
            **quartiles(self.stepping), **self.figures[NAME],
        }  # fmt: skip
        return [*mine, theirs]


@contextmanager
def opened(session: Session, dtype: str, context: int) -> Iterator[Beside | None]:
    """A llama.cpp server over the session's own weights, its slot filled with `context` tokens; None
    where `task.engines` does not ask, or for 0 tokens. The GGUF file is gone afterwards."""
    cfg, loaded = session.cfg, session.loaded
    if NAME not in cfg.task.engines or not context:
        yield None
        return
    mine = ours(session, context)
    folder = Path(tempfile.mkdtemp(prefix="harness-llamacpp-"))
    try:
        weights.write(loaded.model, folder / "model.gguf")
        draw = torch.Generator().manual_seed(cfg.seed)
        ids = torch.randint(3, loaded.text_config.vocab_size, (context,), generator=draw).tolist()
        with Timed(folder / "model.gguf", folder, ids, dtype, torch.get_num_threads()) as timed:
            beside = Beside(timed, {OURS: mine, NAME: theirs(timed)})
            timed.step()  # warm
            yield beside
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def theirs(timed: Timed) -> dict[str, Any]:
    """Prefill, save and load of llama.cpp."""
    read = _settled(timed.prefill)
    timed.save()  # the first one makes the file
    size = 0

    def save() -> float:
        nonlocal size
        seconds, size = timed.save()
        return seconds

    saved = _settled(save)
    return {
        "prefill_s": read,
        "save_s": saved,
        "load_s": _settled(timed.load),
        "stored_bytes": size,
    }


def ours(session: Session, context: int) -> dict[str, Any]:
    """The same of ours, whatever the cache: the library's prefill, a snapshot written and read whole.
    Nothing waits for the disk, as llama.cpp does not."""
    loaded, cfg = session.loaded, session.cfg
    state = synthetic_state(loaded, context, cfg.seed)
    state = from_cache(session, to_cache(loaded, state), state.token_ids, check=False)
    place = Path(tempfile.mkdtemp(prefix="harness-bench-")) / "snapshot"
    settings, access = replace(cfg.save, sync=False), store.current(overwrite=True)

    def read() -> None:
        mask = torch.ones_like(state.token_ids)
        prefill(loaded, state.token_ids, mask, positions_of(mask), new_cache(loaded))

    try:
        read_s = _settled(_clocked(read))
        save_s = _settled(_clocked(lambda: store.save(state, place, settings, access=access)))
        load_s = _settled(_clocked(lambda: store.load(place)))
        size = store.stored_bytes(place)
        return {"prefill_s": read_s, "save_s": save_s, "load_s": load_s, "stored_bytes": size}
    finally:
        shutil.rmtree(place.parent, ignore_errors=True)


def _clocked(work: Callable[[], Any]) -> Callable[[], float]:
    def seconds() -> float:
        start = time.perf_counter()
        with torch.no_grad():
            work()
        return time.perf_counter() - start

    return seconds


def _settled(take: Callable[[], float]) -> float:
    return settled(take, REPEATS, SECONDS)
