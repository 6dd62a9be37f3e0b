"""The points of a sweep: composed once for each choice of options, and looked at before the first of them runs."""

from collections.abc import Callable, Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from harness import config, extras
from harness.cli import point, search
from harness.config import place
from harness.config.grid import swept_overrides, values
from harness.errors import ConfigProblem, HarnessError

KEPT = 256  # compositions, about 1 MB each
MANY = 8  # values of one key that are all looked at; of more the first
EVERY = ""  # stands for what all points have


class Early:
    """Looks at each point of a grid once it is composed. A value with which no point has a sound configuration, and a
    key that no point reads, are mistakes of the grid; a point that only its values together make unsound fails alone."""

    def __init__(self, overrides: Sequence[str], total: int, fresh: bool, then: Callable[[], None]):
        """overrides: all of the sweep. fresh: no point is finished, so that all still need the files that they read.
        then: called after the last point, where nothing is wrong."""
        self.left, self.fresh, self.then = total, fresh, then
        self.unseen = {EVERY, *_swept_values(overrides)}
        self.problems: dict[str, HarnessError] = {}
        self.unread: dict[str, str] | None = None

    def look(self, cfg: Any, overrides: Sequence[str], first: bool) -> None:
        """cfg: what was composed of a point's `overrides`. first: of its options. Raises a HarnessError after the last
        point, for what is wrong with all that share it."""
        self.left -= 1
        if self.left < 0:  # composed once more, to be run
            return
        written: Any = OmegaConf.to_container(cfg, resolve=False)
        options = written.pop("hydra")["runtime"]["choices"]
        if first:
            found = config.unread_keys(written) | config.unheeded(overrides, options)
            known = self.unread
            self.unread = found if known is None else {k: v for k, v in known.items() if k in found}
        shared = self.unseen & {EVERY, *overrides}
        if shared and "${hydra" not in str(
            written
        ):  # which says something only once the point is run
            try:
                checked = config.typed(OmegaConf.create(written), swept=True)
                extras.for_job(checked)
                if self.fresh:
                    place.check(checked)
                self.unseen -= shared
            except HarnessError as problem:
                for one in shared:
                    self.problems.setdefault(one, problem)
        if self.left == 0:
            for text in (self.unread or {}).values():
                raise ConfigProblem(text)
            for fault in (p for o, p in self.problems.items() if o in self.unseen):
                raise fault
            self.then()


def _swept_values(overrides: Sequence[str]) -> set[str]:
    """The swept values that are looked at, as a point's overrides have them."""
    swept = swept_overrides(overrides)
    return {f"{o.get_key_element()}={value}" for o in swept for value in values(o)[:MANY]}


class Composer(ConfigLoaderImpl):
    """Hydra's own loader, which composes every point of a sweep twice: to see that all of them can be
    composed, then to run them. Most points differ in plain values alone (`seed=3`), which are put into a
    copy of what Hydra made of the point's options, by Hydra's own hand and with its errors."""

    folder: str | None = None  # of the sweep, whatever a point's own `name` would make of it
    ahead: Early | None = None  # looks at all points of a grid before the first is run

    def load_sweep_config(self, master_config: Any, sweep_overrides: list[str]) -> Any:
        parsed = OverridesParser.create().parse_overrides(sweep_overrides)
        plain = [override for override in parsed if self._is_value(override)]
        chosen = tuple(str(o.input_line) for o in parsed if o not in plain)
        first = chosen not in self.__dict__.get("_kept", ())
        cfg = deepcopy(self._composed(master_config, chosen))
        self._apply_overrides_to_config(plain, cfg)
        job, typed = cfg.hydra.job, [o for o in parsed if not o.is_hydra_override()]
        cfg.hydra.overrides.task = [o.input_line for o in typed]
        naming = job.config.override_dirname
        job.override_dirname = get_overrides_dirname(
            typed, naming.exclude_keys, naming.item_sep, naming.kv_sep
        )
        if self.folder is not None:
            cfg.hydra.sweep.dir = self.folder
        if self.ahead is not None:
            self.ahead.look(cfg, sweep_overrides, first)
        return cfg

    def __getstate__(self) -> dict[str, Any]:
        """Without what was composed: a worker composes its own."""
        return {key: value for key, value in vars(self).items() if key not in ("_kept", "ahead")}

    def _composed(self, master_config: Any, chosen: tuple[str, ...]) -> Any:
        """What Hydra composes of a point's options, none of its values given. Not to be changed."""
        kept: dict[tuple[str, ...], Any] = self.__dict__.setdefault("_kept", {})
        if chosen not in kept:
            if len(kept) >= KEPT:
                kept.clear()
            kept[chosen] = super().load_sweep_config(master_config, list(chosen))
        return kept[chosen]

    def _is_value(self, override: Override) -> bool:
        """Whether it says what a key holds, not which option or what Hydra itself does."""
        if override.is_hydra_override() or override.package is not None:
            return False
        return isinstance(override.value(), dict) or not self.repository.group_exists(
            override.key_or_group
        )


def compose_once(
    cfg: Any, folder: Path, fresh: bool, total: int | None, then: Callable[[], None]
) -> None:
    """Have the sweep `cfg` that begins in `folder` composed by a Composer. fresh: none of its points is finished.
    total: of them, where that is known. then: called once all of them are known to begin: at once where a sweeper
    searches, or composes some points only when others are done."""
    hydra: Any = GlobalHydra.instance().hydra
    composer = hydra.config_loader = Composer(hydra.config_loader.config_search_path)
    composer.folder = str(folder)
    overrides = point.swept(cfg)
    if total and search.of_grid(cfg) and cfg.hydra.sweeper.get("max_batch_size") is None:
        composer.ahead = Early(overrides, total, fresh, then)
        return
    written: Any = OmegaConf.to_container(cfg, resolve=False)
    options = written.pop("hydra")["runtime"]["choices"]
    found = config.unread_keys(written) | config.unheeded(overrides, options)
    several = {key.split("=")[0] for key in overrides if config.jobs([key]) != 1}
    for key, text in found.items():
        if several.isdisjoint((key.partition(".")[0], "task", "experiment")):
            raise ConfigProblem(text)
    then()
