"""What a search (Optuna) needs beside a grid: a seed, and figures that its points can tell it."""

import json
import logging
import secrets
import warnings
from collections.abc import Iterable
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any

from harness.cli import point
from harness.config import jobs
from harness.errors import ConfigProblem
from harness.snapshot.objective import WAYS, names, objectives
from harness.snapshot.result import METRICS, MUTATION, ORACLE, SIZES, TIMES

# of the main line; others have more
FIGURES: dict[str, tuple[str, ...]] = {"metrics": METRICS, "size": SIZES, "time_s": TIMES}
FIXED = FIGURES | {"noise_floor": METRICS, "oracle": ORACLE, "mutation": MUTATION}  # of every task
EVALUATED: dict[str, tuple[str, ...]] = {
    "evaluate": ("contains", "exact", "regex", "nll", "kl", "kv_bytes", "per_token_s")
}
STOPPED = ("failed", "refused")  # such a point has no figures
SHORT = {"error_ratio": "oracle.ratio"}  # a column of the table that has another name there


def of(config: Any) -> bool:
    """Whether the sweeper searches, so that it has to be told what a point came to."""
    return "optuna" in str(config.hydra.sweeper.get("_target_"))


def of_grid(config: Any) -> bool:
    """Whether it is Hydra's own sweeper, which goes through all combinations."""
    return str(config.hydra.sweeper.get("_target_")).endswith("BasicSweeper")


def trials(config: Any) -> int | None:
    """How many points a search is going to ask for, where it says: Optuna's grid no more than it has."""
    asked = config.hydra.sweeper.get("n_trials") if of(config) else None
    cells = jobs([*point.swept(config)]) if asked and _walks(config) else None
    return min(asked, cells) if asked and cells else asked


def _walks(config: Any) -> bool:
    """Whether the sampler of a search goes through a grid."""
    sampler = config.hydra.sweeper.get("sampler") or {}
    return str(sampler.get("_target_")).endswith("GridSampler")


def seeded(config: Any) -> int | None:
    """Give the sampler of a search a seed where it has none, recorded like one that was typed: without one
    neither a resume nor a second run would draw the same values. Returns a seed that was drawn."""
    from omegaconf import flag_override

    sampler = config.hydra.sweeper.get("sampler")
    if not of(config) or sampler is None or sampler.get("seed", 0) is not None:
        return None
    seed = secrets.randbelow(10**6)
    with flag_override(config, ["readonly", "struct"], False):
        sampler.seed = seed
        config.hydra.overrides.hydra.append(f"hydra.sweeper.sampler.seed={seed}")
    return seed


def check(config: Any) -> None:
    """Raise ConfigProblem for objectives that no point has, where there are not as many as the sweeper has directions,
    and for a grid without a point."""
    wanted = [str(name) for name in config.report.get("objectives") or []]
    for name in wanted:
        if said := _unknown(name, EVALUATED if config.task.name == "evaluate" else FIGURES):
            raise ConfigProblem(f"report.objectives: {name} is no figure of a point. {said}")
    if of_grid(config):
        for override in point.typed(config):
            if jobs([override]) == 0:
                raise ConfigProblem(f"{override} gives no point: it has no value.")
    if not of(config):
        return
    if (asked := config.hydra.sweeper.get("n_trials")) is not None and int(asked) < 1:
        raise ConfigProblem(f"hydra.sweeper.n_trials={asked} is not possible: give 1 or more.")
    ways = _ways(config.hydra.sweeper.get("direction"))
    for word in ways:
        if word not in WAYS:
            raise ConfigProblem(f"hydra.sweeper.direction: {word} is neither {' nor '.join(WAYS)}.")
    if len(wanted) != len(ways):
        raise ConfigProblem(
            f"the search has {len(ways)} of hydra.sweeper.direction and {len(wanted)} of report.objectives: "
            "each needs one of the other, as in 'report.objectives=[metrics.kl_mean,size.kv_bytes]' "
            "'hydra.sweeper.direction=[minimize,minimize]'."
        )


def answer(folder: Path, wanted: list[str]) -> Any:
    """What a sweeper is told of the finished point in `folder`: a number, or one for each objective; None
    in their place where one is no number, so that the trial counts as failed and the search goes on.
    Raises ConfigProblem where no point will ever have such figures."""
    figures = objectives(folder, wanted)
    told: tuple[float | None, ...] = figures
    if not all(map(isfinite, figures)):
        told = (None,) * len(figures)
        there = names(folder)
        lost = [name for name in wanted if name not in there]
        if lost and there and not _stopped(folder):
            near = [meant for name in lost for meant in get_close_matches(name, there, n=1)]
            said = f"Did you mean {', '.join(near)}? " if near else ""
            raise ConfigProblem(
                f"report.objectives: a point has no {', '.join(lost)}. {said}"
                f"There is: {', '.join(there)}."
            )
    return told if wanted[1:] else told[0]


def fruitless(problem: Exception) -> bool:
    """Whether it is Optuna's word for a search no trial of which came to a number."""
    return isinstance(problem, ValueError) and "No trials are completed" in str(problem)


def quieten() -> None:
    """What a point came to is told in its own line, not in the sweeper's words."""
    from optuna import logging as study

    study.set_verbosity(study.WARNING)  # its name is nobody's business
    warnings.filterwarnings("ignore", module="optuna")  # of points that all came out alike
    logging.getLogger("hydra_plugins.hydra_optuna_sweeper._impl").setLevel(logging.CRITICAL)


def _stopped(folder: Path) -> bool:
    return json.loads((folder / "result.json").read_text("utf-8"))["verdict"] in STOPPED


def _ways(direction: Any) -> list[str]:
    """The directions of a search: as typed, or as the sweeper's own default has them (an Enum)."""
    single = isinstance(direction, str) or not isinstance(direction, Iterable)
    several = [direction or "minimize"] if single else direction
    return [str(getattr(way, "name", way)) for way in several]


def _unknown(name: str, figures: dict[str, tuple[str, ...]]) -> str:
    """What was probably meant by a name that says no figure; nothing where it may be one. figures: those
    that the task is known to have, by block."""
    block, _, key = name.partition(".")
    if key and (block not in FIXED or key in FIXED[block]):  # the first point shows it
        return ""
    mine = {block: FIXED[block]} if block in FIXED else {}
    every = [f"{b}.{k}" for b, keys in (figures | mine).items() for k in keys]
    last = name.removesuffix("_s")
    meant = [SHORT[name]] if name in SHORT else [e for e in every if e.partition(".")[2] == last]
    near = {
        e.partition(".")[2] if mine else e: e for e in every
    }  # a block that is right says nothing
    meant = meant or [near[e] for e in get_close_matches(key if mine else name, near, n=1)]
    there = [e for e in every if e.partition(".")[0] == block] or every
    return f"{f'Did you mean {meant[0]}? ' if meant else ''}There is: {', '.join(there)}."
