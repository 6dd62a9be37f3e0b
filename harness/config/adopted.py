"""What a job takes from its snapshot where nothing was typed: model, dtype and sampler, in its own configuration."""

from collections.abc import Sequence
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

from harness.config.option import readable

GROUPS = ("model", "dtype", "sampling")
FILE = Path(".hydra", "config.yaml")


def written(folder: Path, cfg: Any) -> None:
    """Make `.hydra/config.yaml` of the run in `folder` say what of `GROUPS` the job `cfg` really runs with, so that
    it can be run again by that alone. Nothing where there is no such file. Raises OSError."""
    from omegaconf import OmegaConf

    place = folder / FILE
    if not place.is_file():
        return
    tree = OmegaConf.load(place)
    now = {group: _node(group, getattr(cfg, group)) for group in GROUPS}
    if {group: _plain(tree.get(group)) for group in GROUPS} != now:
        for group, node in now.items():
            OmegaConf.update(tree, group, node, merge=False)
        place.write_text(OmegaConf.to_yaml(tree), "utf-8")


def untold(overrides: Sequence[str]) -> list[str]:
    """Those of `GROUPS` that no override chose."""
    chosen = {o.lstrip("+~").partition("=")[0].partition(".")[0] for o in overrides}
    return [group for group in GROUPS if group not in chosen]


def _node(group: str, value: Any) -> Any:
    """A group as its YAML has it: with the keys that its option reads."""
    if not is_dataclass(value) or isinstance(value, type):
        return value
    known = readable(group, value.name)  # type: ignore[attr-defined]
    return {k: v for k, v in asdict(value).items() if k in known}


def _plain(node: Any) -> Any:
    from omegaconf import OmegaConf

    return OmegaConf.to_container(node, resolve=False) if OmegaConf.is_config(node) else node
