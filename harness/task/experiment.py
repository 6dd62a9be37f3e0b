"""The main job: capture, prune, save, load, restore, continue, and judge against a run that was
never interrupted."""

import time
from pathlib import Path
from typing import Any

from harness.cache.registry import decoder as build_decoder
from harness.capture import check_length
from harness.fault.registry import fault_named
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.damage import aid_for, comparable, damaged
from harness.pipeline.finish import Outcome, conclude, snapshot_record
from harness.pipeline.judge import judge, mutation
from harness.pipeline.prune import pruned
from harness.pipeline.restore import identity_check
from harness.pipeline.session import Session
from harness.save import store
from harness.snapshot.state import State


def run(cfg: Any, folder: Path, say: Any) -> Outcome:
    """One experiment; writes the run directory and returns its outcome."""
    session = Session.open(cfg, folder, say)
    loaded, times = session.loaded, session.times
    rows = session.encoded()
    check_length(loaded, max(len(r.ids) for r in rows), cfg.steps)
    sampler, fault = Sampler(cfg.sampling, cfg.seed), fault_named(cfg.fault)

    say.stage("capture")
    captured = session.capture(rows, sampler)
    whole = captured.state
    say.done(f"{whole.tokens} tokens, 13 elements, {whole.kv_bytes / 1024:.0f} KiB of K/V")

    state = pruned(session, whole)
    fault.fits(state)
    state = fault.state(state, aid_for(session, state))

    say.stage(f"save {cfg.save.name}")
    target = folder / "snapshot"
    start = time.perf_counter()
    manifest = store.save(state, target, cfg.save, say.note)
    times["save"] = time.perf_counter() - start
    fault.disk(target)
    start = time.perf_counter()
    back, manifest = store.load(target)
    back = back.to(loaded.device)
    times["load"] = time.perf_counter() - start
    restored, again = damaged(session, fault, back.rng)
    waived = identity_check(restored, back, target, again)
    back = fault.inputs(back)
    say.done(f"{store.stored_bytes(target) / 1024:.0f} KiB on disk, written, read back, verified")

    say.stage("uninterrupted run")
    if cfg.cache.branches > 1:
        captured.live.batch_repeat_interleave(cfg.cache.branches)
        whole = whole.branched(cfg.cache.branches)  # K/V stay one copy
    live = drive.Live(loaded, captured.live, whole)
    reference = drive.drive(live, sampler, cfg.steps)
    times["recompute"] = drive.recompute_seconds(loaded, whole)
    say.done(f"{cfg.steps} tokens")

    say.stage(f"restored run, cache {cfg.cache.name}")
    start = time.perf_counter()
    decoder = build_decoder(restored.loaded, back, cfg.cache)
    times["restore"] = time.perf_counter() - start
    before = decoder.fingerprint(cfg.cache.audit == "digest")
    path = comparable(drive.drive(decoder, again, cfg.steps, follow=reference.fed), reference)
    times.update(path.times)
    changed = mutation(decoder, before, cfg.steps)
    say.done(f"{cfg.steps} tokens, teacher forced")

    say.stage("noise floor, oracle, verdict")
    judgement = judge(loaded, whole, reference, path, cfg.compare, waived, cfg.prompt.chunk)
    say.done(judgement.verdict)
    record = {
        **judgement.record(),
        "pruned": back.pruned,
        "mutation": changed,
        "size": sizes(whole, back, store.stored_bytes(target)),
        "snapshot": snapshot_record(manifest, target),
        "elements": manifest["elements"],
        "waived": [d.row() for d in waived],
        "text": texts(session, rows[0], reference, path),
    }
    return conclude(session, record)


def sizes(whole: State, kept: State, stored: int) -> dict[str, int]:
    return {
        "tokens": whole.tokens,
        "kept_tokens": kept.kept_tokens,
        "kv_bytes": kept.kv_bytes,
        "stored_bytes": stored,
    }


def texts(session: Session, prompt: Any, reference: Any, path: Any) -> dict[str, Any]:
    """What was said, by row 0 of the batch, as text and as ids."""
    decode = session.loaded.tokenizer.decode
    return {
        "prompt": prompt.text,
        "continuation": decode(reference.ids[0].tolist()),
        "restored": decode(path.ids[0].tolist()),
        "token_ids": reference.ids[0].tolist(),
        "restored_ids": path.ids[0].tolist(),
        "account": [dict(a) for a in prompt.account],
    }
