"""A rehearsal before the clocks start: what a process does for the first time, it has to load first, and no
stage's seconds are to say that of it.

One token is captured, saved, loaded and given to the declared cache, in a temporary folder. Nothing of the
job's own is touched: not its prompt, its generators or its place.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from harness.capture import capture
from harness.config import PruneConfig
from harness.pipeline.budget import continuation
from harness.pipeline.session import Session, tokenizer_files
from harness.save import store
from harness.snapshot.state import State


def rehearse(session: Session) -> None:
    """Do all of it once per model, format and cache, as a stage of its own. Never raises: what cannot be
    done is told by the stage that has to do it."""
    cfg, access = session.cfg, store.current()
    cache = replace(cfg.cache, branches=1)
    what = f"{cfg.save} {cache} {bool(access.encrypt)} {bool(access.sign)}"
    if what in session.loaded.rehearsed:
        return
    session.loaded.rehearsed.add(what)
    session.say.stage("rehearsal")
    try:
        state = _stored(session, _token(session))
        continuation(session.loaded, state, cache, PruneConfig(name="none"))
    except Exception:  # the stage that has to do it tells what it was
        session.say.done("not possible, so the stages below may hold what is imported once")
    else:
        session.say.done("one token saved, loaded and restored, so that no time below counts imports")  # fmt: skip


def _token(session: Session) -> State:
    """The State of a prompt of one token."""
    ids = torch.zeros((1, 1), dtype=torch.int64)
    documents = {**session.documents, "generation": {"sampler": None, "steps": 0}}
    files = tokenizer_files(session.loaded)
    return capture(session.loaded, ids, torch.ones_like(ids), documents, files).state


def _stored(session: Session, state: State) -> State:
    """`state`, saved as the job saves (encrypted and signed with its keys) and loaded again."""
    own = store.current().back
    with tempfile.TemporaryDirectory(prefix="harness-") as folder:
        place = Path(folder) / "snapshot"
        store.save(state, place, replace(session.cfg.save, sync=False), access=own)
        return store.load(place, own)[0].to(session.loaded.device)
