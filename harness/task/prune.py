"""`task=prune`: read a snapshot, prune it, write the smaller one, and measure what that costs."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.cache.registry import decoder as build_decoder
from harness.errors import ConfigProblem, InputProblem
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.finish import Outcome, conclude, snapshot_record
from harness.pipeline.judge import judge, mutation
from harness.pipeline.prune import pruned
from harness.pipeline.restore import identity_check
from harness.pipeline.session import Session
from harness.save import store
from harness.snapshot.result import UNJUDGED
from harness.snapshot.state import State
from harness.task.experiment import sizes
from harness.task.resume import rebuilt


def run(cfg: Any, folder: Path, say: Any) -> Outcome:
    """Needs `snapshot=DIR` and a policy; writes `out=DIR` (default: the run directory's `snapshot/`).

    The new snapshot names the old one as its parent. The verdict compares `steps` tokens after it
    with a run that was never pruned, rebuilt from the token buffer.
    """
    if not cfg.snapshot:
        raise InputProblem("task=prune needs snapshot=DIR, a directory written by task=save.")
    if cfg.prune.name == "none":
        raise ConfigProblem("task=prune needs a policy: prune=keep_last, sink_window, knorm, ...")
    source = store.place(cfg.snapshot)
    store.read_manifest(source)
    session = Session.open(cfg, folder, say)
    say.stage(f"load {source}")
    start = time.perf_counter()
    state, manifest = store.load(source)
    session.times["load"] = time.perf_counter() - start
    waived = identity_check(session, state, source)
    state = state.to(session.loaded.device)
    say.done(f"{state.tokens} tokens, {state.kept_tokens} kept, verified")
    small = replace(pruned(session, state), parent=manifest["id"])

    target = store.place(cfg.out) if cfg.out else folder / "snapshot"
    say.stage(f"save {cfg.save.name}")
    start = time.perf_counter()
    written = store.save(small, target, cfg.save, say.note)
    session.times["save"] = time.perf_counter() - start
    say.done(f"{store.stored_bytes(source):,} to {store.stored_bytes(target):,} bytes")
    record = {
        "verdict": UNJUDGED,
        "pruned": True,
        "reason": f"not compared: {state.tokens} tokens and {cfg.steps} more are over the limit",
        "size": sizes(state, small, store.stored_bytes(target)),
        "snapshot": snapshot_record(written, target),
        "pruned_from": manifest["id"],
        "elements": written["elements"],
        "waived": [d.row() for d in waived],
        "text": {
            "prompt": session.loaded.tokenizer.decode(state.token_ids[0].tolist()),
            "account": [],
        },
    }
    if state.tokens <= cfg.compare.limit and state.tokens + cfg.steps <= (
        session.loaded.max_positions or cfg.compare.limit + cfg.steps
    ):
        record |= compared(session, state, small, waived)
    return conclude(session, record)


def compared(session: Session, state: State, small: State, waived: list[Any]) -> dict[str, Any]:
    """The pruned state continued for `steps` tokens, teacher forced along the unpruned run."""
    cfg, loaded = session.cfg, session.loaded
    session.say.stage(f"continue {cfg.steps} tokens, cache {cfg.cache.name}")
    reference = rebuilt(session, state, None, None)
    decoder = build_decoder(loaded, small, cfg.cache)
    before = decoder.fingerprint(cfg.cache.audit == "digest")
    sampler = Sampler(cfg.sampling, cfg.seed, None if cfg.sampling.seed is not None else small.rng)
    path = drive.drive(decoder, sampler, cfg.steps, follow=reference.fed)
    session.times.update(path.times)
    judgement = judge(loaded, state, reference, path, cfg.compare, waived, cfg.prompt.chunk)
    session.say.done(judgement.verdict)
    return {**judgement.record(), "mutation": mutation(decoder, before, cfg.steps)}
