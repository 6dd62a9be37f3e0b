"""What a sweep and its points were asked (`multirun.yaml` and `.hydra/`, where Hydra keeps them), and who
runs a point.

Hydra opens each file before it knows what to write, also those of a point that is finished and sealed: a
kill or a full disk in that moment would leave them empty. So they are written here, and each as a whole.
"""

import fcntl
import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness import config
from harness.snapshot.result import write_text


def of_sweep(cfg: Any, folder: Path) -> None:
    """`multirun.yaml`, from which a sweep is resumed. Hydra's own sweeper writes it, others do not. Raises
    OSError."""
    from omegaconf import OmegaConf

    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "multirun.yaml", OmegaConf.to_yaml(cfg))


def unbegun(folder: Path | None) -> None:
    """Remove the folder of a sweep whose configuration was rejected before any point of it was run."""
    from harness.pipeline import failure

    if folder and folder.is_dir() and [p.name for p in folder.iterdir()] == ["multirun.yaml"]:
        failure.remove(folder)


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Wait until nobody else runs the point of `folder`: jobs outlive the command that sent them to a
    cluster, and who resumes it meanwhile meets them. A lock that ends with its process; a disk that knows
    none is taken as it is."""
    folder.mkdir(parents=True, exist_ok=True)
    place = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{folder} is run by another process; waiting for its end.", file=sys.stderr)
            fcntl.flock(place, fcntl.LOCK_EX)
        except OSError:
            pass
        yield
    finally:
        os.close(place)


def of_point(cfg: Any, folder: Path) -> None:
    """`.hydra/` of the job that runs now: its configuration, Hydra's own, what was typed. Raises OSError."""
    from hydra.core.hydra_config import HydraConfig
    from omegaconf import OmegaConf

    ours = HydraConfig.instance().cfg
    place = folder / ".hydra"
    place.mkdir(parents=True, exist_ok=True)
    for name, node in {
        "config": config.settled(cfg),
        "hydra": ours,
        "overrides": ours.hydra.overrides.task,
    }.items():
        write_text(place / f"{name}.yaml", OmegaConf.to_yaml(node))


def aged(points: list[Path]) -> list[str]:
    """The points that other code than this has run: kept by a resume, but not its own figures."""
    from harness.pipeline.environment import code

    made = {p.name: json.loads((p / "result.json").read_text("utf-8")).get("environment") for p in points}  # fmt: skip
    return [name for name, where in made.items() if where and where.get("code") != code()]
