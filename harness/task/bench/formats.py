"""Every save format on the same K/V, beside what the disk itself can do.

One real prefill of the configured model gives the K/V; each figure is a median of rounds in which the formats
take turns with one another, and each with the raw write and read it is compared with.
"""

import shutil
from pathlib import Path
from typing import Any

import torch

from harness import machine
from harness.cache.base import Decoder
from harness.cache.registry import decoder
from harness.config import DTYPES, Config, at_least, one_of, option
from harness.model.loaded import Loaded
from harness.pipeline import clock
from harness.pipeline.drive import recompute_seconds
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.session import Session
from harness.report import bench as report
from harness.report.terminal.console import Say
from harness.save import store
from harness.snapshot.result import UNJUDGED, write_json
from harness.snapshot.state import State
from harness.task.bench import claim, payload, protection, rounds

COLUMNS = ["format", "dtype", "save_s", "load_s", "save_of_raw", "load_of_raw"]
COLUMNS += ["ratio", "peak_extra_bytes"]
TOKENS, NEW_TOKENS = 4096, 128
MOST = 20.0  # seconds of restores, and of prefills


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Leaves `bench.json` (one row per format and dtype) and `claims.json` (the founding claim about
    formats). Raises AssertionError where a format gives back another byte; times have no verdict."""
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
    say.done(f"{machine.many(whole.tokens, 'token')}, {machine.human(whole.kv_bytes)} of K/V")
    rows = []
    for dtype in cfg.task.dtypes:
        state = payload.halves(whole, getattr(torch, dtype))
        rows += rounds.formats(state, dtype, place, cfg.task.repeats, say)
    say.stage("toolkit")
    half, name = payload.halves(whole, torch.bfloat16), session.loaded.source["name"]
    founding = claim.settled(half, place, cfg.task.repeats, name)
    say.done(founding["verdict"])
    say.stage("commit and restore")
    figures = rounds.one_sequence(
        payload.first(whole, torch.bfloat16, tokens), place, cfg.task.repeats
    )
    one = payload.first(whole, whole.dtype)
    figures |= _commit_and_restore(session, one, place, cfg.task.repeats)
    say.done(f"{figures['restore_speedup']:.1f}x")
    say.stage("signed and encrypted")
    figures |= protection.measured(half, place / "p", cfg.task.repeats)
    say.done()
    shutil.rmtree(place, ignore_errors=True)
    write_json(folder / "claims.json", [founding])
    every = f"every byte back in each of the {len(rows)} rows; the founding claim: {founding['verdict']}."
    reason = "\n".join([*report.format_winners(rows, cfg.task.repeats), every])
    sections = report.formats(rows, founding, figures, drawn=bool(cfg.model.architecture))
    record = {"figures": figures, "claims": [founding]}
    return finish_table(
        session, "bench", rows, sections, UNJUDGED, reason, COLUMNS, record=record, by=COLUMNS[:2]
    )


def _usual(loaded: Loaded) -> int:
    """Tokens where none are asked for: twice as many, and a turn, have positions in the model."""
    room = loaded.max_positions or 4 * TOKENS
    return max(min(TOKENS, (room - NEW_TOKENS) // 2), 1)


def _commit_and_restore(
    session: Session, whole: State, place: Path, repeats: int
) -> dict[str, Any]:
    """Bytes of a commit beside a full save; time to the first token restored and recomputed."""
    loaded, cfg = session.loaded, session.cfg
    shutil.rmtree(place, ignore_errors=True)
    settings = option("save", "safetensors")
    store.save(whole, place / "a", settings)

    def opened() -> Decoder:
        state, _ = store.load(place / "a")
        made = decoder(loaded, state, cfg.cache)
        made.step(state.logits.argmax(-1, keepdim=True))
        return made

    restored = clock.settled(lambda: clock.seconds(opened), repeats, MOST)
    recomputed = clock.settled(lambda: recompute_seconds(loaded, whole), repeats, MOST)
    grown = opened()
    grown.step(torch.zeros((1, NEW_TOKENS - 1), dtype=torch.int64))
    store.save(grown.commit(), place / "b", settings)
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
