"""One fault in the main line: aid for it, and the damaged session that a restore meets."""

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from harness.capture import capture
from harness.errors import ConfigProblem
from harness.fault.base import Aid, Fault, Target
from harness.model.ending import Ending
from harness.model.loaded import Loaded
from harness.model.sampler import Sampler
from harness.pipeline.drive import Rollout
from harness.pipeline.session import Session
from harness.snapshot.state import State


def aid_for(session: Session, state: State) -> Aid:
    """What a fault may ask for, on the model and with the documents of `state`."""

    def recapture(ids: torch.Tensor, change: Callable[[Any], None] | None = None) -> State:
        rows, loaded = ids.repeat(state.batch, 1), session.loaded
        if change is not None:
            loaded = Loaded(copy.deepcopy(loaded.model), loaded.tokenizer, loaded.source, 0.0)
            change(loaded.model)
        mask, files = torch.ones_like(rows), state.tokenizer_files
        return capture(loaded, rows, mask, state.documents, files, state.rng).state

    turns = len(state.documents["prompt_meta"].get("turns") or ()) or 1
    return Aid(recapture, turns)


def changed(fault: Fault, hook: str, state: State, *more: Any) -> State:
    """What `fault` makes of `state` in its `hook`. Raises ConfigProblem where it overrides that and gives
    back what it was given: nothing would be damaged, and the verdict would look like a fault missed."""
    other: State = getattr(fault, hook)(state, *more)
    if other is state and getattr(type(fault), hook) is not getattr(Fault, hook):
        raise ConfigProblem(
            f"fault={fault.name}: `{hook}` gave back the very state that it was given, so nothing is "
            "damaged. Give a changed one (`dataclasses.replace`), or leave the method out."
        )
    return other


def damaged(session: Session, fault: Fault, rng: torch.Tensor | None) -> tuple[Session, Sampler]:
    """The session and the sampler that a restore meets. Copies only what the fault may write to;
    `session` and its model stay as they are."""
    cfg = session.cfg
    if not fault.touches_live:
        return session, Sampler(
            session.sampling, cfg.seed, rng, Ending.of(session.sampling, session.loaded)
        )
    live = Target(
        copy.deepcopy(session.loaded.model),
        copy.deepcopy(session.loaded.tokenizer),
        copy.copy(session.sampling),
        rng,
    )
    loaded = Loaded(live.model, live.tokenizer, session.loaded.source, 0.0)
    if fault.remembered:
        assert loaded.documents  # whoever remembers what the model was has seen it by now
    with torch.no_grad():
        fault.live(live)
    loaded = loaded if fault.remembered else replace(loaded, tokenizer=live.tokenizer)
    ending = Ending.of(live.sampling, loaded)
    return replace(session, loaded=loaded), Sampler(live.sampling, cfg.seed, live.rng, ending)


def comparable(path: Rollout, reference: Rollout) -> Rollout:
    """`path` with its logits cut to the vocabulary of `reference`, should a fault have resized it."""
    vocab = reference.logits.shape[-1]
    if path.logits.shape[-1] == vocab:
        return path
    stored = None if path.stored is None else path.stored[..., :vocab]
    return replace(path, logits=path.logits[..., :vocab], stored=stored)
