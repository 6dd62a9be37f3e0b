"""ONE lookup for every group, inside the package and outside it.

An option is a YAML, `<group>/<option>.yaml`, and that YAML is its signature: the keys it lists are
the ones it reads, beside those its group shares (`harness.config.schema`). What it builds is the
class or function of `harness.<group>.<option>` that bears its name (`keep_last`: `KeepLast`), or what
`_target_: module.Class` says. Options come from `conf/`, from the folder that `--config-dir` names,
and from entry points (`harness.prune` and so on). Listing them imports none of them.
"""

import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from harness import blame, keys
from harness.contract import agree
from harness.errors import ConfigProblem, UntrustedPlugin, suggestion
from harness.keys import TARGET
from harness.shipped import ships

BASES = {
    "prune": "Policy", "cache": "Decoder", "save": "Format", "quantize": "Quantizer",
    "engine": "Engine", "fault": "Fault", "tokenizer": "Encoder",
}  # fmt: skip
OPEN = tuple(BASES)  # to entry points
CONFIG_DIR = ("--config-dir", "-cd")
_trusted: set[str] = set()


def conf_dir() -> Path:
    """Where the shipped YAML lives: inside the package in a wheel, beside it in a checkout."""
    here = Path(__file__).resolve().parent
    return here / "conf" if (here / "conf").is_dir() else here.parent / "conf"


def folders() -> tuple[Path, ...]:
    """Every folder of groups, in the order in which they are asked: shipped, installed, the user's."""
    typed = sys.argv[1:]
    return (conf_dir(), *installed_folders(), *searched(typed), *config_dirs(typed))


def config_dirs(arguments: Sequence[str]) -> list[Path]:
    """The folder that `--config-dir` names on the command line."""
    return [Path(named) for named in _flagged(arguments, CONFIG_DIR)]


def _flagged(arguments: Sequence[str], flags: Sequence[str]) -> list[str]:
    """What a flag of the command line is given, in a list: of several the last one, as Hydra takes it."""
    named = []
    for place, argument in enumerate(arguments):
        flag, equals, value = argument.partition("=")
        if flag in flags:
            named.append(value if equals else "".join(arguments[place + 1 : place + 2]))
    return named[-1:]


def searched(arguments: Sequence[str]) -> list[Path]:
    """The folders that `hydra.searchpath=[file://DIR]` names on the command line, or else in the primary configuration
    of one's own."""
    prefix = "hydra.searchpath="
    lists = [a.removeprefix(prefix).strip("[]") for a in arguments if a.startswith(prefix)]
    places = [place.strip().strip("'\"") for place in lists[-1].split(",")] if lists else []
    homes = _flagged(arguments, ("--config-path", "-cp", *CONFIG_DIR))
    for name in _flagged(arguments, ("--config-name", "-cn")) if homes and not lists else ():
        file = Path(homes[0]) / f"{name.removesuffix('.yaml')}.yaml"
        with suppress(ConfigProblem, OSError, AttributeError):
            places += map(str, (keys.tree(file).get("hydra") or {}).get("searchpath") or [])
    return [Path(p.removeprefix("file://")) for p in places if p and not p.startswith("pkg://")]


def options(group: str, conf: Path | None = None) -> list[str]:
    """Names of a group's options: its YAMLs in every folder (or in `conf` alone) and entry points."""
    places = folders() if conf is None else (conf,)
    known = {p.stem for place in places for p in (place / group).glob("*.yaml")}
    if conf is None:
        known |= {name for other, name in entry_points() if other == group}
    return sorted(known)


def outside(group: str) -> list[str]:
    """The options that this package does not ship."""
    return sorted(set(options(group)) - set(options(group, conf_dir())))


def written(group: str, option: str) -> Path | None:
    """The YAML of an option, from the first folder that has one; None where there is none."""
    files = (place / group / f"{option}.yaml" for place in folders())
    return next((path for path in files if path.is_file()), None)


def sound(group: str) -> list[str]:
    """The options whose YAML can be read: for whoever looks for one that would serve."""
    able = []
    for option in options(group):
        with suppress(ConfigProblem):
            signature(group, option)
            able.append(option)
    return able


def signature(group: str, option: str, above: tuple[str, ...] = ()) -> dict[str, Any]:
    """The option's YAML as it stands (`name` and `_target_` too) with the keys that it inherits, but for the name of
    another; empty where there is none. above: the options that inherit it. Raises ConfigProblem where it is one of
    these."""
    if option in above:
        circle = " -> ".join([*above, option])
        raise ConfigProblem(f"{group}={above[0]}: its defaults lead back to themselves ({circle}).")
    if path := written(group, option):
        known: dict[str, Any] = {}
        for base in inherited(group, option):
            known |= signature(group, base, (*above, option))
        known.pop("name", None)
        return known | _keys(path, group)
    target = entry_points().get((group, option))
    return {TARGET: target, "name": option} if target else {}


def own(group: str, option: str) -> dict[str, Any]:
    """What the option's own YAML gives, without what it inherits."""
    path = written(group, option)
    return _keys(path, group) if path else {}


def inherited(group: str, option: str) -> list[str]:
    """The options whose keys an option has before its own: those of its group in its defaults list."""
    listed = [entry for entry in defaults(group, option) if isinstance(entry, str)]
    return [name for name in listed if name != option and written(group, name)]


def built_by(group: str, option: str) -> str:
    """The option whose class an option is built by: its own name, or that of the one whose keys it inherits."""
    if "name" in signature(group, option):
        return option
    return next((built_by(group, base) for base in inherited(group, option)), option)


def misnamed(group: str, option: str) -> str:
    """What is wrong with a YAML whose `name` is not what its file is called."""
    name = signature(group, option).get("name")
    for entry in defaults(group, option):
        if str(entry).startswith(f"/{group}/"):
            return (
                f"{group}={option}: {written(group, option)} inherits {entry}, which Hydra puts below {group}.{group}. "
                f"Write defaults: [{str(entry).rpartition('/')[2]}, _self_]."
            )
    said = f"says name: {name}" if name else "has no `name:`"
    mend = (
        "Leave it out, since what it inherits has one"
        if name and defaults(group, option)
        else f"Write name: {option}, as the file is called"
    )
    return f"{group}={option}: {written(group, option)} {said}. {mend}."


def headline(group: str, option: str) -> str:
    """What the option is, in one line: the first comment of its YAML; nothing where there is none."""
    if path := written(group, option):
        lines = path.read_text(encoding="utf-8").splitlines()
        said = (line[1:].strip() for line in lines if line.startswith("#"))
        return next((line for line in said if "@package" not in line), "")
    return ""


def defaults(group: str, option: str) -> list[Any]:
    """The defaults list of a YAML: of an option, or (`""`, `config`) of the whole."""
    if path := written(group, option):
        return list(keys.tree(path).get("defaults") or [])
    return []


def check(key: str, group: str, named: Iterable[str]) -> None:
    """Raise ConfigProblem when the list `key` names an option that `group` does not have."""
    for name in named:
        if name not in options(group):
            raise ConfigProblem(
                f"{key}: '{name}' is no option of {group}.{suggestion(name, options(group))}"
            )


def variant(group: str, settings: Any, base: type | None = None) -> Any:
    """What `settings` (a typed option of `group`) builds: a class below `base`, or a function.

    Raises ConfigProblem for an unknown name, and for a target that cannot be imported or is no
    `base`.
    """
    name = settings.name
    if outside_target := target(group, settings):
        return imported(f"{group}={name}", outside_target, base)
    if name not in options(group, conf_dir()):
        raise ConfigProblem(f"{group}={name} is not an option.{suggestion(name, options(group))}")
    built, place = shipped(group, name), f"harness.{group}.{name}"
    return built if ships(group, name) else _fit(f"{group}={name}", place, built, base)


def target(group: str, settings: Any) -> str | None:
    """`module.Class` of an option from outside, None for one of this package."""
    named = getattr(settings, TARGET, None) or entry_points().get((group, settings.name))
    return str(named) if named else None


def shipped(group: str, name: str) -> Any:
    """The class or function of `harness.<group>.<name>` that bears the option's name."""
    what, place = f"{group}={name}", f"harness.{group}.{name}"
    if find_spec(place) is None:
        raise ConfigProblem(f"{what} has a YAML, but there is no harness/{group}/{name}.")
    module = import_module(place) if ships(group, name) else _module(what, place, place)
    bare = name.replace("_", "")
    for word, value in vars(module).items():
        mine = getattr(value, "__module__", "").startswith(module.__name__)
        if mine and callable(value) and word.lower().replace("_", "") == bare:
            return value
    raise ConfigProblem(
        f"{group}={name}: {module.__file__} defines no class called "
        f"{''.join(part.capitalize() for part in name.split('_'))}."
    )


def imported(what: str, target: str, base: type | None = None) -> Any:
    """The class that `target` (`module.Class`) names. what: who asks for it, for the message."""
    module, _, attribute = target.replace(":", ".").rpartition(".")
    built = getattr(_module(what, module, target), attribute, None)
    if built is None:
        raise ConfigProblem(
            f"{what} names {target}, and {module} has no {attribute}. Correct `_target_`."
        )
    return _fit(what, target, built, base)


def _module(what: str, module: str, target: str) -> Any:
    """`module`, imported; what goes wrong in it from now on is told as that of `what`."""
    try:
        home = import_module(module)
    except Exception as problem:
        absent = problem.name if isinstance(problem, ModuleNotFoundError) else None
        if absent and f"{module}.".startswith(f"{absent}."):
            raise ConfigProblem(
                f"{what} names {target}, and no module {absent} can be imported. Give "
                f"plugins.path=DIR, the folder that holds it, or put that folder on PYTHONPATH."
            ) from None
        blame.asked_for[module] = what
        raise ConfigProblem(
            f"{what} names {target}, and importing {module} failed: {type(problem).__name__}: "
            f"{problem}.{blame.in_line(problem)}"
        ) from problem
    blame.asked_for[module] = what
    return home


def _fit(what: str, target: str, built: Any, base: type | None) -> Any:
    """`built`, which `target` names, where it keeps to `base`; else ConfigProblem."""
    if base is not None and not (isinstance(built, type) and issubclass(built, base)):
        public = f"{'.'.join(base.__module__.split('.')[:2])}.{base.__name__}"
        raise ConfigProblem(f"{what} names {target}, which is no {public}. Derive it from that.")
    if base is not None:
        agree(what, target, built, base)
    return built


def check_chosen(cfg: Any) -> None:
    """Raise ConfigProblem for an option from outside that `cfg` chose and that cannot serve, before
    anything large is loaded."""
    for group, base in BASES.items():
        settings = getattr(cfg, group)
        if target(group, settings) or not ships(group, settings.name):
            variant(group, settings, getattr(import_module(f"harness.{group}"), base))


def trust(modules: Iterable[str], path: str | None) -> None:
    """What the person running this command allows: `plugins.trust` and `plugins.path`.

    `path` becomes importable, behind everything that is importable already.
    """
    _trusted.clear()
    _trusted.update(modules)
    if path is None:
        return
    folder = Path(path).expanduser().absolute()
    if not folder.is_dir():
        raise ConfigProblem(f"plugins.path={path} is not a directory.")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def vouch(target: str) -> None:
    """The person running this command chose `target`: what it writes, it may read."""
    _trusted.add(target.replace(":", ".").rpartition(".")[0])


def refuse_untrusted(where: str, what: str, target: str) -> None:
    """Raise UntrustedPlugin when a record names a target that nobody here has vouched for."""
    module = target.replace(":", ".").rpartition(".")[0]
    if not any(module == name or module.startswith(f"{name}.") for name in _trusted):
        raise UntrustedPlugin(where, what, target, module.partition(".")[0])


def lazily(**places: str) -> Callable[[str], Any]:
    """A module's `__getattr__`: names that are imported from `places` when somebody asks for them."""

    def get(name: str) -> Any:
        if name not in places:
            raise AttributeError(f"there is no {name} here, only {', '.join(places)}")
        return getattr(import_module(places[name]), name)

    return get


@cache
def entry_points() -> dict[tuple[str, str], str]:
    """`(group, option) -> module:Class` of every installed package that offers one."""
    if not any(_offers(Path(place)) for place in sys.path):
        return {}  # as nearly always, and without the import of the reader
    from importlib.metadata import entry_points as installed

    every = installed()
    return {
        (group, point.name): point.value
        for group in OPEN
        for point in every.select(group=f"harness.{group}")
    }


def _offers(place: Path) -> bool:
    """Whether a package installed in `place` may have entry points for us."""
    if place.is_file():
        return True  # an archive: the reader looks inside
    lists = (f for kind in ("dist", "egg") for f in place.glob(f"*.{kind}-info/entry_points.txt"))
    return any(b"[harness." in f.read_bytes() for f in lists)


@cache
def installed_folders() -> tuple[Path, ...]:
    """The folder `conf` in each package that offers an option; found without importing it."""
    packages = {value.split(":")[0].partition(".")[0] for value in entry_points().values()}
    known = []
    for package in sorted(packages):
        spec = find_spec(package)
        for place in (spec.submodule_search_locations or []) if spec else []:
            known.append(Path(place) / "conf")
    return tuple(place for place in known if place.is_dir())


def _keys(path: Path, group: str) -> dict[str, Any]:
    tree = keys.tree(path)
    if path.read_text("utf-8").lstrip().startswith("# @package _global_"):
        tree = tree.get(group) or {}  # it chooses options of other groups too
    return {str(key): value for key, value in tree.items() if key != "defaults"}
