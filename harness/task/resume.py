"""`task=resume`: restore a snapshot, continue it with new text, and judge it against a run that was
never interrupted (rebuilt from the token buffer)."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness.cache.registry import decoder as build_decoder
from harness.capture import check_length, new_cache, positions_of, prefill
from harness.errors import InputProblem
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.finish import Outcome, conclude, snapshot_record
from harness.pipeline.judge import judge, mutation
from harness.pipeline.restore import identity_check
from harness.pipeline.session import Session
from harness.save import store
from harness.snapshot.result import UNJUDGED
from harness.snapshot.state import State
from harness.task.experiment import sizes
from harness.tokenizer.policy import continuation


def run(cfg: Any, folder: Path, say: Any) -> Outcome:
    """Needs `snapshot=DIR`; `text=` is fed first, then `steps` tokens are generated and streamed.
    With `out=DIR` the continued state becomes the next snapshot."""
    if not cfg.snapshot:
        raise InputProblem("task=resume needs snapshot=DIR, a directory written by task=save.")
    source = store.place(cfg.snapshot)
    store.read_manifest(source)  # a bad snapshot is refused before the model is loaded
    session = Session.open(cfg, folder, say)
    loaded, times = session.loaded, session.times
    say.stage(f"load {source}")
    start = time.perf_counter()
    state, manifest = store.load(source)
    times["load"] = time.perf_counter() - start
    waived = identity_check(session, state, source)
    state = state.to(loaded.device)
    say.done(f"{state.tokens} tokens, {state.kept_tokens} kept, verified")

    start = time.perf_counter()
    decoder = build_decoder(loaded, state, cfg.cache)
    times["restore"] = time.perf_counter() - start
    rows = state.branched(cfg.cache.branches)  # one copy of the K/V, whatever the branches
    added = continuation(cfg.tokenizer.name, loaded.tokenizer, cfg.text or "")
    given = torch.tensor([added.ids] * rows.batch) if added.ids else None
    check_length(loaded, int(state.next_position.max()), len(added.ids) + cfg.steps)
    before = decoder.fingerprint(cfg.cache.audit == "digest")
    say.line(f"{cfg.text or ''}", end="")
    sampler = Sampler(cfg.sampling, cfg.seed, None if cfg.sampling.seed is not None else state.rng)
    path = drive.drive(decoder, sampler, cfg.steps, given, on_token=_stream(session))
    say.line()
    times.update(path.times)
    changed = mutation(decoder, before, cfg.steps)

    record: dict[str, Any] = {
        "verdict": UNJUDGED,
        "reason": "",
        "mutation": changed,
        "pruned": state.pruned,
    }
    reference = None
    if state.tokens <= cfg.compare.limit:
        reference = rebuilt(session, rows, path, given)
        say.stage("noise floor, oracle, verdict")
        judgement = judge(loaded, rows, reference, path, cfg.compare, waived, cfg.prompt.chunk)
        say.done(judgement.verdict)
        record |= judgement.record()
    else:
        record["reason"] = f"not compared: more than compare.limit={cfg.compare.limit} tokens"
    if cfg.out:
        record["next"] = write_next(session, decoder, sampler, path.rng)
    ids = path.ids[0].tolist()
    record |= {
        "size": sizes(state, state, store.stored_bytes(source)),
        "snapshot": snapshot_record(manifest, source),
        "elements": manifest["elements"],
        "waived": [d.row() for d in waived],
        "text": {
            "prompt": loaded.tokenizer.decode(state.token_ids[0].tolist()),
            "added": cfg.text or "",
            "continuation": loaded.tokenizer.decode(ids),
            "token_ids": ids,
            "branches": [loaded.tokenizer.decode(row) for row in path.ids.tolist()],
            "account": [dict(a) for a in added.account],
        },
    }
    return conclude(session, record)


def rebuilt(session: Session, state: State, path: Any, given: torch.Tensor | None) -> Any:
    """The uninterrupted run, recomputed from the token buffer and teacher forced along `path` (None:
    along what it chooses itself)."""
    loaded = session.loaded
    ids, mask = state.token_ids, state.attention_mask
    cache = new_cache(loaded)
    start = time.perf_counter()
    logits = prefill(loaded, ids, mask, positions_of(mask), cache, session.cfg.prompt.chunk)
    session.times["recompute"] = time.perf_counter() - start
    live = drive.Live(loaded, cache, state.unpruned(logits[:, -1]))
    sampler = Sampler(session.cfg.sampling, session.cfg.seed,
                      None if session.cfg.sampling.seed is not None else state.rng)  # fmt: skip
    return drive.drive(live, sampler, session.cfg.steps, given, follow=path and path.fed)


def write_next(session: Session, decoder: Any, sampler: Sampler, rng: torch.Tensor) -> dict[str, Any]:  # fmt: skip
    """Commit what was added as a new segment and save it to `out=`; its snapshot record.

    rng: the generator after the last token that was fed, so that sampling goes on from there.
    """
    target = store.place(session.cfg.out)
    session.say.stage(f"save {session.cfg.save.name}")
    state = replace(decoder.commit(), rng=rng)
    state = state.document("generation", sampler=sampler.document())
    manifest = store.save(state, target, session.cfg.save, session.say.note)
    session.say.done(f"{store.stored_bytes(target) / 1024:.0f} KiB to {target}")
    return snapshot_record(manifest, target)


def _stream(session: Session) -> Any:
    """Print tokens as they come, holding back bytes that are not yet a whole character."""
    decode, said, ids = session.loaded.tokenizer.decode, "", []

    def show(token: torch.Tensor) -> None:
        nonlocal said
        ids.append(int(token[0, 0]))
        text = decode(ids)
        if not text.endswith("\ufffd"):
            session.say.line(text[len(said) :], end="")
            said = text

    return show
