"""Mistakes that points of a grid share, told before the first of them begins."""

from collections.abc import Callable, Sequence
from typing import Any

from harness import extras
from harness.cli import point, search
from harness.config import place, typed
from harness.config.grid import values
from harness.errors import ConfigProblem, HarnessError

MANY = 8  # values of one key that are all looked at; of more numbers the smallest and the largest
LARGE = 50  # points of a sweep that take a while to compose
EVERY = ""  # stands for what all points have


class Early:
    """Looks at each point of a grid once it is composed. A value with which no point has a sound configuration
    is a mistake of the grid's; a point that only its values together make unsound fails alone."""

    def __init__(
        self,
        swept: tuple[str, ...],
        total: int,
        fresh: bool,
        then: Callable[[], None],
    ):
        """swept: all overrides of the sweep. total: its points. fresh: none of them is finished, so that all still
        need the files that they read. then: called after the last point, where nothing is wrong."""
        self.swept, self.left, self.fresh, self.then = swept, total, fresh, then
        self.unseen = {EVERY, *asked(swept)}
        self.problems: dict[str, HarnessError] = {}
        self.outs: dict[str, Sequence[str]] = {}
        self.bar = _bar(total)

    def look(self, cfg: Any, overrides: Sequence[str]) -> None:
        """`cfg`: what was composed of a point's `overrides`. Raises a HarnessError for what is wrong with several of
        them: for one place of all snapshots at once, for a value after the last point."""
        self.left -= 1
        if self.left < 0:  # composed once more, to be run
            return
        if self.bar:
            self.bar.advance(1)
        self._check_out(cfg, overrides)
        if mine := self.unseen & {EVERY, *overrides}:
            try:
                self._check(cfg)
                self.unseen -= mine
            except HarnessError as problem:
                for one in mine:
                    self.problems.setdefault(one, problem)
        if self.left == 0 and (wrong := [p for o, p in self.problems.items() if o in self.unseen]):
            raise wrong[0]
        if self.left == 0:
            self.end()
            self.then()

    def end(self) -> None:
        """Nothing more is looked at: take away what is shown of it."""
        if self.bar:
            self.bar.end()

    def _check(self, cfg: Any) -> None:
        from omegaconf import OmegaConf

        written: Any = OmegaConf.to_container(cfg, resolve=False)
        written.pop("hydra")
        if "${hydra" in str(written):  # which says something only once the point is run
            return
        checked = typed(OmegaConf.create(written), self.swept)
        extras.for_job(checked)
        if self.fresh:
            place.check(checked)

    def _check_out(self, cfg: Any, overrides: Sequence[str]) -> None:
        """Raise ConfigProblem where two points would store their snapshots in one place."""
        from omegaconf import OmegaConf
        from omegaconf.errors import OmegaConfBaseException

        task = cfg.get("task")  # a primary config of one's own may have anything there
        reads = task.get("reads") if OmegaConf.is_dict(task) else None
        if cfg.get("overwrite") or "out" not in (reads or []):
            return
        try:
            out = cfg.get("out")
        except (OmegaConfBaseException, ValueError):  # it names what only the point itself knows
            return
        other = overrides if out is None else self.outs.setdefault(str(out), overrides)
        if other != overrides:
            pairs = ((overrides, other), (other, overrides))
            mine, theirs = (" ".join(o for o in a if o not in b) for a, b in pairs)
            raise ConfigProblem(
                f"out={out} is one place for the snapshots of {theirs} and of {mine}, and a second one is not "
                f"stored there. Name in it what they vary, or number it: 'out={out}/${{hydra:job.num}}'"
            )


def asked(swept: Sequence[str]) -> set[str]:
    """The swept values that have to be sound, as a point's overrides have them."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    asked: set[str] = set()
    for override in OverridesParser.create().parse_overrides([*swept]):
        if override.is_sweep_override():
            each = values(override)
            asked |= {f"{override.get_key_element()}={v}" for v in _telling(each)}
    return asked


def _telling(each: list[str]) -> list[str]:
    """Those of the values of one key that tell of all."""
    if len(each) <= MANY:
        return each
    try:
        return [min(each, key=float), max(each, key=float)]
    except ValueError:
        return each[:MANY]


def _bar(total: int) -> Any:
    """How far the composing of so many points is, on a terminal, where it takes a while."""
    if total < LARGE:
        return None
    from harness.report.terminal import bar

    if shown := bar.there():
        shown.begin("compose the points", total)
    return shown


def of(config: Any, total: int | None, fresh: bool, then: Callable[[], None]) -> Early | None:
    """What looks at the points of the sweep `config`, the rest as of Early; None, and `then` called at once, where a
    sweeper searches, or composes some of its points only when others are done."""
    whole = config.hydra.sweeper.get("max_batch_size") is None
    if total and whole and search.of_grid(config):
        return Early(point.swept(config), total, fresh, then)
    then()
    return None
