"""`task=loop`: the founding loop. One step is: generate one token, score, decide what to cull, patch.

Only the patch makes a new State; generating, scoring and deciding read the old one, and an audit of
every step says so. The budget holds after every step. The loop's snapshots carry all it needs to go
on: K/V with positions, the scores, the generator of the sampler. Source: the isolation document.
"""

from contextlib import closing
from pathlib import Path
from statistics import median
from typing import Any

from harness.config import Config, at_least
from harness.errors import InputProblem
from harness.model.sampler import Sampler
from harness.pipeline.finish import Outcome
from harness.pipeline.line import Line
from harness.pipeline.session import Session
from harness.pipeline.snapshot import Stored, destination
from harness.progress import over
from harness.report import loop as report
from harness.report.terminal.console import Say
from harness.results.reason import Code, reason
from harness.save import store
from harness.snapshot.manifest import buffer_row
from harness.snapshot.record import read
from harness.snapshot.state import State
from harness.task.loop.steps import Loop, Trace
from harness.tokenizer.shown import record


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Runs `steps` steps from the prompt, or from a loop's own `snapshot=DIR`; writes trace.json and
    a snapshot every `task.every` steps to `out=DIR` (default: the run directory's `snapshot/`)."""
    at_least("task.every", cfg.task.every, 1)
    at_least("task.top", cfg.task.top, 0)
    source = Stored.of(cfg) if cfg.snapshot else None  # refused before the model is loaded
    line = Line.open(cfg, folder, say)
    state, sampler = begin(line, source)
    earlier = int(state.documents["generation"].get("steps", 0))
    clear = not cfg.decrypt and cfg.encrypt in (None, "none")
    begun = (
        {"read": {"tokens": state.tokens, "digest": buffer_row(state)["digest"]}} if clear else {}
    )
    loop = Loop(line.session, state)
    check_positions(line.session, loop.state, cfg.steps)
    target, start = destination(cfg, folder), loop.state.tokens
    stored: Stored | None = None
    say.stage(f"loop {cfg.steps} steps, cache {cfg.cache.name}, prune {cfg.prune.name}")
    loop.rehearse()
    with closing(Trace(folder / "trace.json")) as trace:
        for step in over(range(earlier + 1, earlier + cfg.steps + 1), "steps", cfg.steps):
            trace.add({"step": step, **loop.step(sampler)})
            ended = bool(sampler.ended(loop.state.token_ids))
            if (step - earlier) % cfg.task.every == 0 or step == earlier + cfg.steps or ended:
                trace.flush()
                loop.state = paused(loop.state, sampler, step)
                access = store.current(overwrite=cfg.overwrite or stored is not None)
                manifest = store.save(loop.state, target, cfg.save, say.note, access)
                stored = Stored(target, manifest)
            if ended:
                break
    assert stored is not None
    ran = step - earlier
    end = ", the end" if ended else ""
    say.done(f"{loop.state.kept_tokens} tokens kept of {loop.state.tokens}{end}")
    first, *further = loop.seconds
    line.session.times |= {"first_token": first} | (
        {"per_token": median(further)} if further else {}
    )
    line.record |= stored.record(loop.state, loop.state)
    outcome = line.finish(
        reason=reason(Code.LOOP_PRUNED if loop.policy else Code.LOOP_PLAIN),
        mutation={"mutated": loop.mutated > 0, "bytes_copied_per_token": loop.copied / ran},
        loop={"first_step": earlier + 1, "steps": ran, "ended": ended, "budget": loop.budget}
        | begun
        | loop.pace(),
        text=texts(line.session, loop.state, start),
    )
    result = read(folder / "result.json")
    say.fact("held", report.sentence(result, report.trace(folder)).splitlines()[0])
    return outcome


def begin(line: Line, source: Stored | None) -> tuple[State, Sampler]:
    """The State and sampler that a loop starts from: a captured prompt, or a stored loop."""
    if source is None:
        state = line.capture()
        sampler = line.session.sampler(state)
    else:
        restored = line.restore(source)
        state, sampler = restored.state, restored.sampler
    if state.batch != 1:
        rows = "this snapshot holds several" if source else "give prompt.batch=1"
        raise InputProblem(f"task=loop follows one stream of thought; {rows}.")
    sampler.begin(state)
    return state, sampler


def texts(session: Session, state: State, start: int) -> dict[str, Any]:
    """What was read and what the loop wrote after its first `start` tokens; `placed`: the token before all text."""
    tokenizer, ids = session.loaded.tokenizer, state.token_ids[0].tolist()
    decode = tokenizer.decode
    placed = {"placed": decode(ids[:1])} if ids[:1] == [tokenizer.bos_token_id] else {}
    written = record(session.loaded.tokenizer, {"continuation": ids[start:]})
    written |= {"token_ids": ids[start:]}
    return {"prompt": decode(ids[:start]), **placed, **written, "account": []}


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
    return sampler.paused(state).document("generation", steps=steps)
