"""The points of a sweep, composed once for each choice of options, however many values they are given."""

from collections.abc import Callable
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import MISSING, OmegaConf
from omegaconf.errors import (
    InterpolationToMissingValueError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from harness import config
from harness.cli import point, precheck, search
from harness.cli.done import finished
from harness.config import called
from harness.errors import ConfigProblem

KEPT = 256  # compositions, about 1 MB each


class Composer(ConfigLoaderImpl):
    """Hydra's own loader, which composes every point of a sweep twice: to see that all of them can be
    composed, then to run them. Most points differ in plain values alone (`seed=3`), which are put into a
    copy of what Hydra made of the point's options, by Hydra's own hand and with its errors. A key that nothing
    reads is told of the first, since all points with these options have it."""

    swept: tuple[str, ...] | None = None  # the sweep's overrides; None: keys are not checked
    folder: str | None = None  # of the sweep, whatever a point's own `name` would make of it
    ahead: precheck.Early | None = None  # looks at all points of a grid before the first is run

    def load_sweep_config(self, master_config: Any, sweep_overrides: list[str]) -> Any:
        try:
            return self._point(master_config, sweep_overrides)
        except BaseException:  # Ctrl-C too: a bar hides the cursor
            if self.ahead is not None:
                self.ahead.end()
            raise

    def _point(self, master_config: Any, sweep_overrides: list[str]) -> Any:
        parsed = OverridesParser.create().parse_overrides(sweep_overrides)
        values = [override for override in parsed if self._is_value(override)]
        chosen = tuple(str(o.input_line) for o in parsed if o not in values)
        first = chosen not in self.__dict__.get("_kept", ())
        cfg = deepcopy(self._composed(master_config, chosen))
        self._apply_overrides_to_config(values, cfg)
        if first and self.swept is not None:
            written: Any = OmegaConf.to_container(cfg, resolve=False)
            config.check_keys({k: v for k, v in written.items() if k != "hydra"}, self.swept)
        job, told = cfg.hydra.job, [o for o in parsed if not o.is_hydra_override()]
        cfg.hydra.overrides.task = [o.input_line for o in told]
        naming = job.config.override_dirname
        job.override_dirname = get_overrides_dirname(
            told, naming.exclude_keys, naming.item_sep, naming.kv_sep
        )
        if self.folder is not None:
            cfg.hydra.sweep.dir = self.folder
            self._check_place(cfg, [o.input_line for o in told])
        if self.ahead is not None:
            self.ahead.look(cfg, sweep_overrides)
        return cfg

    def _check_place(self, cfg: Any, told: list[str]) -> None:
        """Raise ConfigProblem where the point's folder is none right below the sweep's own, or another point's."""
        job, numbered = cfg.hydra.job, False
        try:
            subdir = str(cfg.hydra.sweep.subdir)
        except (MissingMandatoryValue, InterpolationToMissingValueError):
            job.num, job.id, numbered = 0, "0", True  # which only the launcher gives
            subdir = str(cfg.hydra.sweep.subdir)
            job.num = job.id = MISSING
        if Path(subdir).name != subdir or subdir in ("", ".."):
            raise ConfigProblem(
                f"hydra.sweep.subdir gives '{subdir}', and each point has a folder of its own right below the "
                "sweep's: a name without '/'."
            )
        places: dict[str, list[str]] = self.__dict__.setdefault("_places", {})
        other = told if numbered else places.setdefault(subdir, told)
        if other != told:
            mine, theirs = (" ".join(o for o in a if o not in b) for a, b in ((told, other), (other, told)))  # fmt: skip
            raise ConfigProblem(
                f"hydra.sweep.subdir gives '{subdir}' to {theirs} and to {mine}: one would be written over the "
                "other. Leave it out, which numbers the points, or name in it what they vary."
            )

    def __getstate__(self) -> dict[str, Any]:
        """Without what was composed: a worker composes its own."""
        own = ("_kept", "_places", "ahead")
        return {key: value for key, value in vars(self).items() if key not in own}

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


def check_finished(cfg: Any, folder: Path) -> None:
    """Raise ConfigProblem where a point of the sweep `cfg` that is finished in `folder` would be another one now, as of
    `point.kept`: before anything is said or written. One point for each value that tells of all is looked at (as of
    `precheck.asked`), of a search its first; the others, and what cannot be composed here, are told in their turn."""
    import yaml

    hydra: Any = GlobalHydra.instance().hydra
    composer = Composer(hydra.config_loader.config_search_path)
    swept = point.swept(cfg)
    unseen = {precheck.EVERY, *(precheck.asked(swept) if search.of_grid(cfg) else ())}
    for place in finished(folder):
        with suppress(OSError, yaml.YAMLError, HydraException, OmegaConfBaseException):
            typed = yaml.safe_load((place / ".hydra" / "overrides.yaml").read_text("utf-8"))
            if not (mine := unseen & {precheck.EVERY, *typed}):
                continue
            unseen -= mine
            now = composer.load_sweep_config(cfg, typed)
            written: Any = OmegaConf.to_container(now, resolve=False)
            options = written.pop("hydra")["runtime"]["choices"]
            if "${hydra" not in str(written):  # which says something only once the point is run
                point.kept(called.told(OmegaConf.create(written), options), place, swept)


def compose_once(
    cfg: Any, folder: Path, fresh: bool, total: int | None, then: Callable[[], None]
) -> None:
    """Have the sweep `cfg` that begins in `folder` composed by a Composer. fresh: none of its points is finished.
    total: of them, where that is known. then: called once all of them are known to begin."""
    hydra: Any = GlobalHydra.instance().hydra
    hydra.config_loader = Composer(hydra.config_loader.config_search_path)
    hydra.config_loader.swept, hydra.config_loader.folder = point.swept(cfg), str(folder)
    hydra.config_loader.ahead = precheck.of(cfg, total, fresh, then)
