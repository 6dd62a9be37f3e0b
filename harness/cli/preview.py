"""What `--cfg` and `--info` show of a sweep: its first point, as the sweep itself would compose it."""

import io
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from itertools import pairwise
from typing import Any

from harness.cli import point, search
from harness.cli.arguments import MULTIRUN, SHOWING, parted
from harness.config import typed
from harness.config.chain import loader
from harness.config.grid import values
from harness.config.literal import CARRIED, MARK, decoded
from harness.config.option import misread, schemas
from harness.config.unknown import unknown_key
from harness.errors import ConfigProblem, suggestion

CFG, PACKAGE = ("--cfg", "-c"), ("--package", "-p")
UNKNOWN = re.compile(r"^( *[\w.-]+:) \?\?\?$", re.MULTILINE)  # what Hydra fills in once a job runs


@contextmanager
def readable(arguments: list[str], swept: bool) -> Iterator[None]:
    """What `--cfg` prints inside the block is shown as it was typed: no text in base64, no omegaconf's ???. Raises
    ConfigProblem after it where a run would be refused by a value. swept: it is a point of a sweep, which is not
    looked at: another point may read its keys."""
    if not {a.partition("=")[0] for a in arguments} & {*CFG}:
        yield
        return
    said, wrong = io.StringIO(), io.StringIO()
    try:
        with redirect_stdout(said), redirect_stderr(wrong):
            yield
    except SystemExit as end:  # Hydra finds nothing there, be it null or no key
        if not end.code or not (package := "".join(_values(arguments, PACKAGE)[-1:])):
            raise
        wrong.truncate(0)
        said.write(_empty(arguments, package))
    finally:
        sys.stderr.write(wrong.getvalue())
        told = UNKNOWN.sub(r"\1 null  # known once it runs", said.getvalue())
        sys.stdout.write(CARRIED.sub(_typed, told).replace(MARK, ""))
    if not swept and {"job", *_values(arguments, CFG)} <= {"job", "all"}:
        _check(arguments)


def _values(arguments: list[str], flags: tuple[str, ...]) -> list[str]:
    """What these flags are given."""
    pairs = pairwise([*arguments, ""])
    named = ((a.partition("="), b) for a, b in pairs)
    return [a[2] or b for a, b in named if a[0] in flags]


def _empty(arguments: list[str], package: str) -> str:
    """What `-p package` shows of a key that holds null. Raises ConfigProblem where there is no such key."""
    from omegaconf import OmegaConf

    cfg, nothing = _sweep(arguments), object()
    group, _, inner = package.partition(".")
    if group == "hydra" and "job" in _values(arguments, CFG):
        raise ConfigProblem(f"{package} is Hydra's own: --cfg hydra -p {package} shows it.")
    if OmegaConf.select(cfg, package, default=nothing, throw_on_missing=False) is None:
        return "null\n"
    if group == "hydra":
        raise ConfigProblem(f"Hydra has no key {package}; `--cfg hydra` shows its own.")
    name = OmegaConf.select(cfg, f"{group}.name")
    if group in schemas() and "mean" in suggestion(inner, ["name"]):
        raise ConfigProblem(
            f"'{package}' is not a key of the configuration. Did you mean '{group}.name'?"
        )
    if group in schemas() and name and (said := misread(group, [name], [inner.split(".")[0]])):
        raise ConfigProblem(said)
    raise ConfigProblem(
        f"'{package}' is not a key of the configuration.{unknown_key(package, '') or ''}"
    )


def _check(arguments: list[str]) -> None:
    """Raise ConfigProblem, below what is shown of a job, where its run would be refused by a value."""
    from omegaconf import OmegaConf

    written: Any = OmegaConf.to_container(_sweep(arguments), resolve=False)
    written.pop("hydra")
    if not re.search(r"\$\{(?!literal:|task\.name\})", str(written)):  # what only a run knows
        typed(OmegaConf.create(written))


def _typed(carried: re.Match[str]) -> str:
    """A text that travels as base64 as YAML has it."""
    import yaml

    text = decoded(carried[0])
    style = '"' if "\n" in text else None
    said = yaml.safe_dump(text, allow_unicode=True, width=float("inf"), default_style=style)
    return str(said).removesuffix("...\n").strip()


def one_point(arguments: list[str]) -> list[str]:
    """`-m ... --cfg job` (or `--info`): the arguments for the first point of the sweep, also of one that a file
    declares; a comment says so. Anything else is left alone. Raises ConfigProblem for a sweep without points."""
    showing = any(a.partition("=")[0] in SHOWING for a in arguments)
    if not showing or not any(a in MULTIRUN for a in arguments):
        return arguments
    from hydra.core.override_parser.overrides_parser import OverridesParser

    flags, asking = parted([a for a in arguments if a not in MULTIRUN])
    hydra, points, single = [a for a in asking if a.lstrip("+~").startswith("hydra")], 1, []
    sweep = _sweep([*flags, *asking])
    asked = OverridesParser.create().parse_overrides([*point.swept(sweep)])
    for override in asked:
        if not override.is_sweep_override():
            single.append(str(override.input_line))
            continue
        interval = override.is_interval_sweep()
        chosen = [override.value().start] if interval else values(override)
        if not chosen:
            raise ConfigProblem(f"{override.input_line} gives no point: it has no value.")
        points *= 0 if interval else len(chosen)  # 0: nobody knows how many
        single.append(f"{str(override.input_line).partition('=')[0]}={chosen[0]}")
    many = f" of {trials} trials" if (trials := search.trials(sweep)) else ""
    drawn = search.of(sweep) or not points
    print(f"# a point of the search{many}" if drawn else f"# the first of {points} points")
    return [*flags, *hydra, *single]


def _sweep(arguments: list[str]) -> Any:
    """The sweep's own configuration, none of its points composed; what it varies is at its default."""
    from hydra.types import RunMode

    hydras, name = loader(arguments)
    _, overrides = parted(arguments)
    return hydras.load_configuration(name, overrides, run_mode=RunMode.MULTIRUN)
