"""A session without a command line: what a call from Python begins with."""

from pathlib import Path

from harness import config
from harness.model.loaded import Loaded
from harness.pipeline import argument
from harness.pipeline.restore import identity_check
from harness.pipeline.session import Session
from harness.report.terminal.console import Say
from harness.snapshot.state import State


def session_of(
    model: Loaded,
    seed: int = 0,
    strict: bool = True,
    verify: str = "proof",
    sampling: config.SamplingConfig | None = None,
) -> Session:
    """The session of one call. Raises InputProblem for what is no Loaded."""
    argument.check_model(model)
    cfg = config.Config(
        name="api", seed=seed, restore=config.RestoreConfig(strict=strict, verify=verify)
    )
    cfg.sampling = sampling or config.SamplingConfig(name="greedy")
    cfg.prune = config.PruneConfig(name="none")
    cfg.cache, cfg.prompt = config.CacheConfig(name="cloned"), config.PromptConfig(name="text")
    return Session(cfg, Path(), model, Say(quiet=True))


def known(model: Loaded, state: State) -> State:
    """`state`, which carries from now on how `model` differs from its own; that is warned of."""
    same, waived = identity_check(session_of(model, strict=False, verify="identity"), state, "")
    argument.warn_of(waived, state)
    return same
