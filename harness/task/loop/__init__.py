"""`task=loop`: the founding loop. One step is: generate one token, score, decide what to cull, patch.

Only the patch makes a new State; generating, scoring and deciding read the old one, and an audit of
every step says so. The budget holds after every step. The loop's snapshots carry all it needs to go
on: K/V with positions, the scores, the generator of the sampler. Source: the isolation document.
"""

from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

from harness.config import at_least
from harness.errors import InputProblem
from harness.model.sampler import Sampler
from harness.pipeline.finish import Outcome, conclude, snapshot_record
from harness.pipeline.prune import policy_of
from harness.pipeline.restore import identity_check
from harness.pipeline.session import Session
from harness.save import store
from harness.snapshot.state import State
from harness.task.loop.steps import Loop, Trace


def run(cfg: Any, folder: Path, say: Any) -> Outcome:
    """Runs `steps` steps from the prompt, or from a loop's own `snapshot=DIR`; writes trace.json and
    a snapshot every `task.every` steps to `out=DIR` (default: the run directory's `snapshot/`)."""
    at_least("task.every", cfg.task.every, 1)
    at_least("task.top", cfg.task.top, 0)
    policy_of(cfg.prune)  # a bad policy is refused before the model is loaded
    if cfg.snapshot:
        store.read_manifest(store.place(cfg.snapshot))
    session = Session.open(cfg, folder, say)
    state, sampler = begin(session)
    done = int(state.documents["generation"].get("steps", 0))
    loop = Loop(session, state)
    check_positions(session, loop.state, cfg.steps)
    target = store.place(cfg.out) if cfg.out else folder / "snapshot"
    start, manifest = loop.state.tokens, None
    say.stage(f"loop {cfg.steps} steps, cache {cfg.cache.name}, prune {cfg.prune.name}")
    with closing(Trace(folder / "trace.json")) as trace:
        for step in range(done + 1, done + cfg.steps + 1):
            trace.add({"step": step, **loop.step(sampler)})
            if (step - done) % cfg.task.every == 0 or step == done + cfg.steps:
                trace.flush()
                loop.state = paused(loop.state, sampler, step)
                manifest = store.save(loop.state, target, cfg.save, say.note)
    say.done(f"{loop.state.kept_tokens} tokens kept of {loop.state.tokens}")
    assert manifest is not None
    ids = loop.state.token_ids[0].tolist()
    session.times |= {"first_token": loop.seconds[0], "per_token": median(loop.seconds)}
    decode = session.loaded.tokenizer.decode
    return conclude(
        session,
        {
            "verdict": None,
            "reason": "a loop prunes as it goes, so there is no uninterrupted run to equal",
            "mutation": {
                "mutated": loop.mutated > 0,
                "bytes_copied_per_token": loop.copied / cfg.steps,
            },
            "size": {
                "tokens": loop.state.tokens,
                "kept_tokens": loop.state.kept_tokens,
                "kv_bytes": loop.state.kv_bytes,
                "stored_bytes": store.stored_bytes(target),
            },
            "snapshot": snapshot_record(manifest, target),
            "elements": manifest["elements"],
            "loop": {
                "first_step": done + 1,
                "steps": cfg.steps,
                "budget": loop.budget,
                **loop.pace(),
            },
            "text": {
                "prompt": decode(ids[:start]),
                "continuation": decode(ids[start:]),
                "token_ids": ids[start:],
                "account": [],
            },
        },
    )


def begin(session: Session) -> tuple[State, Sampler]:
    """The State and sampler that a loop starts from: a captured prompt, or a stored loop."""
    cfg = session.cfg
    if not cfg.snapshot:
        rows = session.encoded()
        if len(rows) != 1:
            raise InputProblem("task=loop follows one stream of thought. Give prompt.batch=1.")
        sampler = Sampler(cfg.sampling, cfg.seed)
        return session.capture(rows, sampler).state, sampler
    source = store.place(cfg.snapshot)
    session.say.stage(f"load {source}")
    state, _ = store.load(source)
    identity_check(session, state, source)
    if state.batch != 1:
        raise InputProblem("task=loop follows one stream of thought; this snapshot holds several.")
    session.say.done(f"{state.tokens} tokens, {state.kept_tokens} kept, verified")
    state = state.to(session.loaded.device)
    return state, Sampler(
        cfg.sampling, cfg.seed, None if cfg.sampling.seed is not None else state.rng
    )


def check_positions(session: Session, state: State, steps: int) -> None:
    """Raise InputProblem when the loop would leave the positions the model was built for."""
    limit, first = session.loaded.max_positions, int(state.next_position.max())
    growing = session.cfg.prune.name == "none" or session.cfg.prune.positions == "original"
    if limit is not None and growing and first + steps > limit:
        raise InputProblem(
            f"the loop would reach position {first + steps}, but this model has {limit}. "
            "With prune.positions=reindexed the positions stay within the budget; or give fewer steps."
        )


def paused(state: State, sampler: Sampler, steps: int) -> State:
    """`state` with the generator as it is now and the number of steps done: ready to be stored."""
    generation = {"sampler": sampler.document(), "steps": steps}
    return replace(state, rng=sampler.rng).document("generation", **generation)
