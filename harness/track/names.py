"""What a run is called on a tracking server. A list of runs shows no more than the beginning of a name, so that
begins with what tells the run apart."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from harness.snapshot.words import apart
from harness.track import contents
from harness.track import lists as several

T = TypeVar("T")
NAMED = 80  # characters of a name, without its outcome
ALONE = 60  # of that of a run by itself
TEXT = 24  # and of one value in it
SWEPT = 48  # and of what a sweep goes through
EVALUATED = [f"task.{key}" for key in (*several.LISTS.values(), several.BUDGETS) if key != "asked"]
MANY = {
    "prunes": "policies",
    "budgets": "budgets",
    "caches": "caches",
    "dtypes": "dtypes",
}  # else quantizers
PALE = ("none", "auto")  # values that say nothing without their key
FIRST = (
    "snapshot",
    "a",
    "b",
    "model",
    "engine",
    "prune",
    "quantize",
    "cache",
    "save",
    "fault",
    "dtype",
    "device",
)  # in a name
LAST = ("seed", "steps")
LONG = re.compile(r"\d+\.\d{5,}")  # digits that a search draws
WORD = re.compile(
    r"(?!(?:true|false|null)$)[A-Za-z_][\w.-]*$|[\"'].*"
)  # a value that says what it is of
STAMP = re.compile(r"\d{4}-\d\d-\d\d_\d\d-\d\d-\d\d_(\w+)")  # of a run's folder: its own part last


def of_run(result: Mapping[str, Any], folder: Path, name: str) -> str:
    """What was asked, and what came out. name: as it was configured."""
    return ended(begun(result, folder, name), contents.word(dict(result), folder))


def ended(name: str, outcome: str) -> str:
    """A run's name that ends with what came out, where there is a word for it."""
    return f"{name}: {outcome}" if outcome else name


def asked(name: str, overrides: list[str], options: Mapping[str, str], of: str = "") -> str:
    """The configured name and what was typed, by its values as a point's; before it what an evaluation took
    several of. Of an audit, of what it is: the name `of`, or where that lies."""
    told = _read(o for o in overrides if contents.telling(o))
    lists = [_listed(key, told.pop(key)) for key in EVALUATED if key in told]
    lists = [values for values in lists if values not in PALE]
    typed = [
        _cut(said) for said in _said(told, {key: {value} for key, value in told.items()}, _plain)
    ]
    if options.get("task") == contents.AUDIT:
        runs = [o.partition("=")[2] for o in overrides if o.startswith("run=")]
        typed = of.split() or [within(run) for run in runs[-1:]]
    if options.get("task") == "diff":
        sides = apart([o.partition("=")[2] for o in overrides if o.startswith(("a=", "b="))])
        typed = [" against ".join(within(side) for side in sides)]
    if options.get("task") == "save":  # of one text there are many
        typed = [
            *(Path(o.partition("=")[2]).name for o in overrides if o.startswith("out=")),
            *typed,
        ]
    typed = [word for word in typed if word != name]  # an experiment of the task's name
    models = typed[: sum(key.partition(".")[0] == "model" for key in told)] if lists else []
    typed = typed[len(models) :]
    if name == "experiment" and typed and told.keys() <= {*LAST}:  # which say nothing of what it is
        typed = [*filter(None, [options.get("model")]), *typed]
    words = typed if name == "experiment" and typed else [*models, *lists, name, *typed]
    whole = words if words[1:] or typed else [*filter(None, (name, options.get("model")))]
    return fitting(whole, ALONE)


def fitting(words: Sequence[str], most: int) -> str:
    """As many of `words` as have room in `most` characters; the first is there in any case, cut where it is long."""
    said = " ".join(words)
    while len(said) > most and words[1:]:
        said = _closed(" ".join([*(words := words[:-1]), "..."]))
    return short(said, NAMED)


def _listed(key: str, values: str) -> str:
    """A list as it was typed, in a few words: `[none,keydiff]` is `keydiff`, since the full cache is always there, and
    `[0.25]` of budgets `25%`. Of a long one whole values, and how many others: `keydiff, snapkv + 2 policies`."""
    every = [value.strip("\"' ") for value in values.strip("[] ").split(",")]
    some = [value for value in every if value not in PALE] or every
    some = [f"{100 * float(v):g}%" if _fraction(v) else v for v in some]
    kept = list(some)
    while len(", ".join(kept)) + len(" + 9") * (kept != some) > TEXT and kept[1:]:
        kept.pop()
    rest, what = len(some) - len(kept), MANY.get(key.removeprefix("task."), "quantizers")
    what = {"policies": "policy"}.get(what, what[:-1]) if rest == 1 else what
    return ", ".join(kept) + f" + {rest} {what}" * bool(rest)


def _plain(key: str, value: str) -> bool:
    """Whether a value that nothing offered beside others says of what it is: an option, a text, a place."""
    return value not in PALE and ("." not in key or key in (*contents.PLACES, several.RATIO))


def _cut(said: str) -> str:
    """One value of a name, that of a key whole but for what is long."""
    return short(said, TEXT)


def short(said: str, most: int) -> str:
    """How `said` begins where it has more than `most` characters; a quotation that the cut leaves open is closed."""
    return said if len(said) <= most else _closed(f"{said[: most - 4].rstrip()}...")


def _closed(said: str) -> str:
    return said + '"' * (said.count('"') % 2)


def within(place: str) -> str:
    """A run's folder as its own name and where it lies, of stamps their last part: `0 in grid/5f3a`,
    `grid/5f3a`."""
    parts = [STAMP.sub(r"\1", part) for part in Path(place).parts[-3:]]
    if STAMP.fullmatch(Path(place).name):
        return "/".join(parts[-2:])
    above = parts[-3:-1] if STAMP.fullmatch(Path(place).parent.name) else parts[1:-1]
    return " in ".join(filter(None, (parts[-1], "/".join(above))))


def point(folder: Path) -> str:
    """What a sweep's point was asked that its others were not, by its values where these say of what they are
    (`random 0.25`)."""
    axes = contents.axes(folder.parent)
    varied = contents.varied(folder)
    told = _read(varied, axes)
    for key, place in (o.lstrip("+~").partition("=")[::2] for o in varied):
        if key in contents.PLACES and key in axes:
            places = axes[key].split(",")
            told[key] = dict(zip(places, apart(places), strict=True)).get(place, told[key])
    offered = {key: {*re.split(r"[,()]", text)} for key, text in axes.items()}
    text = " ".join(_said(told, offered))
    return short(LONG.sub(lambda digits: f"{float(digits[0]):.4g}", text), NAMED)


def _said(
    told: Mapping[str, str],
    offered: Mapping[str, set[str]],
    plain: Callable[[str, str], bool] = lambda key, value: True,
) -> list[str]:
    """Keys and values, each in a word: the value alone where that says of what it is. offered: the values that a key
    may have. plain: whether a value may stand alone."""

    def said(key: str, value: str) -> str:
        others = [some for other, some in offered.items() if other != key]
        alone = (
            value not in PALE and plain(key, value) and not any(value in some for some in others)
        )
        of_policy = key == several.RATIO and told.get("prune", PALE[0]) not in PALE
        if alone and (WORD.match(value) or (_fraction(value) and (of_policy or _words(told, key)))):
            return value
        last = key.rpartition(".")[2]
        clash = last in LAST or any(
            other.rpartition(".")[2] == last for other in told if other != key
        )
        return f"{key if clash else last}={value}"

    return [said(key, value) for key, value in told.items()]


def brief(key: str, values: str) -> str:
    """What a sweep was asked, in a word: a task by its name alone, and its own keys without it."""
    if key == "task" and "," not in values:
        return values
    said = short(values, SWEPT)
    if said != values and "," in said and '"' not in said:  # between two values
        said = f"{said.rpartition(',')[0]},..."
    return f"{key.removeprefix('task.')}={said}"


def ranked(told: Mapping[str, T]) -> dict[str, T]:
    """What was asked, in the order of what it says of a run: the model, the policy with its budget, what else changes
    the state, the rest as it was typed, and last the seed and the steps."""

    def place(key: str) -> tuple[int, int]:
        group = key.partition(".")[0]
        if key in LAST:
            return len(FIRST) + 1 + LAST.index(key), 0
        if group not in FIRST:
            return len(FIRST), 0
        return FIRST.index(group), ("." in key) * (1 + (key not in contents.BUDGET))

    return {key: told[key] for key in sorted(told, key=place)}


def _read(overrides: Iterable[str], varied: Iterable[str] = ()) -> dict[str, str]:
    """What was typed, ranked, without what nothing reads (a budget of no policy, unless points are told apart by it) and
    what the rest says better (a model by its place). varied: the keys that a sweep goes through."""
    told = ranked(dict(map(_pair, overrides)))
    if told.get("prune") == PALE[0]:
        passed = {*contents.BUDGET} - {*varied}
        told = {key: value for key, value in told.items() if key not in passed}
    if "model.path" in told and told.get("model") == contents.PLACED:
        del told["model"]
    return told


def _pair(override: str) -> tuple[str, str]:
    key, _, value = contents.read(override, True).partition("=")
    return key.lstrip("+~"), _plainly(value)


def _plainly(value: str) -> str:
    """A value without brackets, backslashes and quotation marks: a text, and what has spaces, in one pair of these."""
    if value.startswith("[") and value.endswith("]"):
        return ",".join(one.strip("\"' ") for one in value[1:-1].split(","))
    inside = value.replace("\\", "").strip("\"'").replace('"', "'")
    quoted = value.startswith('"') or (value.startswith("'") and " " in inside)
    return f'"{inside}"' if quoted else inside


def _fraction(value: str) -> bool:
    return re.fullmatch(r"\d*\.\d+", value) is not None


def _words(told: Mapping[str, str], key: str) -> bool:
    """Whether all else that was varied is words: then a number needs no name."""
    others = [value for other, value in told.items() if other != key]
    return bool(others) and all(map(WORD.match, others))


def begun(result: Mapping[str, Any], folder: Path, name: str) -> str:
    """What was asked, without what came out. name: as it was configured."""
    if contents.in_sweep(folder):
        return point(folder) or name
    options, typed = result.get("options") or {}, contents.overrides(folder)
    document = contents.audited(folder)
    if run := document.get("run"):
        typed = [f"run={run}"]
    return asked(name, typed, options, str(document.get("called") or ""))
