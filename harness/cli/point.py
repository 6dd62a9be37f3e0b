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
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from harness import config
from harness.config import aliases
from harness.config.option import UNREAD
from harness.errors import ConfigProblem, HarnessError
from harness.snapshot.record import flat
from harness.snapshot.result import write_text


def of_sweep(cfg: Any, folder: Path) -> None:
    """`multirun.yaml`, from which a sweep is resumed. Hydra's own sweeper writes it, others do not. Raises
    OSError."""
    from omegaconf import OmegaConf

    folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / "multirun.yaml", OmegaConf.to_yaml(cfg))


def swept(cfg: Any) -> tuple[str, ...]:
    """Every override of a sweep, those that the sweeper's own configuration adds too."""
    said = typed(cfg)
    replaced = {o.lstrip("+").partition("=")[0] for o in said}
    params = (cfg.hydra.sweeper.get("params") or {}).items()
    return (*(f"{k}={v}" for k, v in params if k not in replaced), *said)


def typed(cfg: Any) -> list[str]:
    """The task's overrides in Hydra's words: a text that travels as base64 is not resolved."""
    from omegaconf import OmegaConf

    return list(map(str, OmegaConf.to_container(cfg.hydra.overrides.task, resolve=False)))


def params(cfg: Any) -> dict[str, str]:
    """What a sweep varies by its sweeper's own configuration, in Hydra's words."""
    from omegaconf import OmegaConf

    held: Any = OmegaConf.to_container(cfg.hydra.sweeper, resolve=False)
    return {str(k): str(v) for k, v in (held.get("params") or {}).items()}


def unbegun(folder: Path | None) -> None:
    """Remove the folder of a sweep whose configuration was rejected before any point of it was run."""
    from harness.pipeline import failure

    if folder and folder.is_dir() and {p.name for p in folder.iterdir()} <= {"multirun.yaml"}:
        failure.remove(folder)


def closed(folder: Path, encrypted: bool) -> None:
    """Nobody else may look into the folder of a sweep: its table and its configuration hold the prompt. Says what
    encryption leaves open once, since its points say nothing."""
    from harness.pipeline.finish import shown
    from harness.task import CLEAR

    folder.mkdir(parents=True, exist_ok=True)
    with suppress(PermissionError):
        folder.chmod(0o700)
    if encrypted:
        print(CLEAR.format(shown(folder)), file=sys.stderr, flush=True)


def kept(cfg: Any, folder: Path) -> Any:
    """The outcome of a point that an earlier session finished with this very configuration; None where there
    is none. Raises ConfigProblem where something else than what was typed makes it another, an option's file or the
    environment: it would be run over its own record."""
    from harness.pipeline.finish import Outcome
    from harness.present.messages import worded
    from harness.snapshot.result import exit_code

    try:
        recorded = json.loads((folder / "record.json").read_text("utf-8"))["config"]
        result = json.loads((folder / "result.json").read_text("utf-8"))
        wanted = config.typed(cfg, swept=True)
    except (OSError, ValueError, KeyError, HarnessError):
        return None
    if result["verdict"] == "failed":
        return None
    if not same(wanted, recorded):
        _refuse_other(folder, wanted, recorded)
        return None
    return Outcome(exit_code(result), result["verdict"], str(folder), worded(result["reason"]))


def same(cfg: config.Config, recorded: dict[str, Any]) -> bool:
    """Whether a sealed configuration is this one."""
    now = json.loads(json.dumps(asdict(cfg)))
    for one in (now, recorded):
        for key in ("report", "limit_s", "track"):  # shown, allowed, sent: none of it is measured
            one.pop(key, None)
        for key in ("reads", UNREAD):  # which keys may be typed: no run hangs on it
            one.get("task", {}).pop(key, None)
        if not one.get(aliases.KEY):  # which older ones have not
            one.pop(aliases.KEY, None)
    return now == recorded


def _refuse_other(folder: Path, wanted: config.Config, recorded: dict[str, Any]) -> None:
    """Raise ConfigProblem where a key of a finished point that was typed as this one has another value now. Of keys
    that only one of the two knows nothing is said: another version wrote the record."""
    from harness.pipeline.finish import shown

    was, now = (dict(flat(tree)) for tree in (recorded, json.loads(json.dumps(asdict(wanted)))))
    for key in was:
        if key in now and was[key] != now[key]:
            raise ConfigProblem(
                f"{shown(folder)} is finished and was run with {key}={was[key]}, which is {now[key]} now: an option's file, or "
                "the environment, has changed since. Put it back; or delete that folder to run it anew, or begin "
                "another sweep. Its record is left as it is."
            )


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
