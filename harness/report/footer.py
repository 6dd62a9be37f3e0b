"""What every page says besides its figures: whose they are, where they were measured, and the commands
that measure them again. It is all built from the record."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import foreign
from harness.config import launched, notes
from harness.config.grid import varied
from harness.config.launched import of_point
from harness.config.literal import MULTIRUN, command, whole
from harness.machine import many
from harness.report import overrides
from harness.report.html import link, section
from harness.report.names import plain
from harness.snapshot.record import read

LEFT = "the run that left it"
TITLED = ("cache", "prune", "quantize", "save", "fault", "sampling")
USUAL = {"sampling": "greedy"}  # what goes without saying; elsewhere "none"
# Tasks whose prompt says what was read.
READING = ("experiment", "save", "evaluate", "referee", "loop")
Record = dict[str, Any]


def model(result: Record) -> str:
    """The name of the model: that of its folder where it is somebody's own, or nothing."""
    option = str((result.get("options") or {}).get("model", ""))
    return str((result.get("model") or {}).get("name", option)) if option == "path" else option


def cache(result: Record) -> str:
    """The option of the cache, and in brackets what `auto` came to, where anything was continued."""
    chosen = str((result.get("options") or {}).get("cache", "none"))
    block = result.get("cache")
    served = block.get("served") if isinstance(block, dict) else None
    return f"{chosen} ({served})" if served and chosen == "auto" else chosen


def title(result: Record, folder: Path | None = None) -> str:
    """The task, with the name that was given to the run, the model, the option of each group that took part, and
    what else is of this run alone of the sweep that the one in `folder` is a point of."""
    task = str(result.get("task", "experiment"))
    given = overrides.name(folder, _command(result)) if folder else ""
    said = f"{given} ({task})" if given not in ("", "null", task) else task
    return f"{said}: {', '.join(_parts(result, folder))}"


def of_record(folder: Path, called: str) -> str:
    """The run or the sweep in `folder` as the rest of a heading, with what a heading of its own says. called: as
    it is told apart from others."""
    if axes := declared(folder):
        return f"{called}: sweep of {', '.join(axes)}"
    with suppress(OSError, ValueError):
        result = read(folder / "result.json")
        if parts := [part for part in _parts(result, folder) if part]:
            return f"{called}: {', '.join(parts)}"
    return called


def _parts(result: Record, folder: Path | None) -> list[str]:
    chosen = {**(result.get("options") or {}), "cache": cache(result)}
    parts = [model(result), *(f"{group} {chosen[group]}" for group in _unusual(chosen))]
    return parts + varying(result, folder, parts)


def varying(result: Record, folder: Path | None, parts: Sequence[str] = ()) -> list[str]:
    """What the sweep varies of which the run in `folder` is a point. parts: of a heading that says some of it."""
    command = _command(result)
    known = {"model", "task", *(part.partition(" ")[0] for part in parts)}
    own = overrides.own(folder, command) if folder else []
    return [part for part in own if part.partition(" ")[0] not in known]


def _command(result: Record) -> list[str]:
    """What was typed after `python -m harness`."""
    return list(map(str, ((result.get("environment") or {}).get("command") or [])[3:]))


def named(title: str, result: Record, folder: Path) -> str:
    """The heading of a table of measurements: the name that was given to it, and which task it is; the model, the
    fault where one was asked for, and what is of this point alone of a sweep."""
    task = str(result.get("task") or title)
    parts = [model(result)] * bool(result.get("model"))
    fault = (result.get("options") or {}).get("fault", "none")
    parts += [f"fault {fault}"] * (task == "faults" and fault != "none")
    parts += varying(result, folder, parts)
    said = title if title == task else f"{title} ({task})"
    return f"{said}: {', '.join(parts)}" if parts else said


def _unusual(chosen: Record) -> list[str]:
    """The groups that took part."""
    return [g for g in TITLED if chosen.get(g, "none") not in ("none", USUAL.get(g))]


def under(result: Record, folder: Path | None = None, point: Path | None = None) -> str:
    """What was read, in which numbers, with which other options and when, in one line; the time alone where no
    model was loaded. folder: of the run, which says what was typed; point: of one of which only the text is told,
    and the day, which others share."""
    where, chosen = result.get("environment") or {}, result.get("options") or {}
    day, _, hour = str(where.get("date") or result.get("date") or "").partition("T")
    zone = " UTC" * hour.endswith("+00:00")
    day += f" {hour[:5]}{zone}" * (bool(hour) and point is None)
    if not result.get("model") or where.get("device") == "none":
        return day
    device = where.get("device")  # of a job that came to no end it may not be known
    place = "" if device in (None, "outside") else f" on {device}"
    asked, name = (result.get("evaluation") or {}).get("questions"), chosen.get("prompt")
    name = (
        "text" if overrides.text(folder or point) else name
    )  # whatever option stands there unread
    prompts = f"{many(asked, 'prompt')} of {name}" if asked else f"prompt {name}"
    read = f", {prompts}" * (result.get("task") in READING)
    numbers = " and ".join((result.get("bench") or {}).get("dtypes") or [str(where.get("dtype"))])
    own = {part.partition(" ")[0] for part in varying(result, folder)}
    more = overrides.fixed(folder) if folder else {}
    own |= {key for key in more if chosen.get(key.partition(".")[0]) == "none"}
    told = [f"{key} {value}" for key, value in more.items() if key not in own]
    return ", ".join(filter(None, (f"{numbers}{place}{read}", *told, day)))


def sections(result: Record, folder: Path, more: Sequence[str] = ()) -> list[Record]:
    """The environment, folded, and what to type: of a point of a sweep, in `folder`, the sweep and then the point
    by itself. more: further commands."""
    where = result.get("environment") or {}
    if not where.get("command"):
        return []
    facts = {**{k: v for k, v in where.items() if k not in ("versions", "git", "command")},
             **where["versions"], **{f"git {k}": v for k, v in where["git"].items()}}  # fmt: skip
    rows = [[plain(k), _said(v)] for k, v in facts.items()]
    point = _alone(where["command"][3:], folder)
    again = [whole(where["command"]), *point, *more]
    note = "The first runs the whole sweep, the second this point." if point else ""
    words = list(map(str, where["command"][3:]))
    out = next((w for w in words if w.startswith("out=") and w[4:] not in ("", "null")), "")
    if out and "overwrite=true" not in words:
        note += f" {out} is taken by then: give another."
    return [
        section("Environment", columns=["what", "value"], rows=rows, fold=True),
        section(
            "Run it again" + ", check it" * bool(more) + ", compare it" * bool(more[1:]),
            text=note.strip(),
            pre="\n".join(again),
        ),
    ]


def _said(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def constant(folder: Path, rows: Sequence[Record], axes: Sequence[str], name: str = "") -> str:
    """What every point of the sweep in `folder` has in common, as the end of a line: model, numbers, machine,
    prompts and the groups that took part; nothing where no record says so, and nothing that the sweep varies,
    whatever of it has run. name: of the sweep, which may begin with the day."""
    told: list[list[str]] = []
    axes = [*axes, *declared(folder)]
    groups = {a.partition(".")[0] for a in axes}
    for row in rows:
        with suppress(OSError, ValueError):
            result = read(folder / str(row["point"]) / "result.json")
            chosen = {**(result.get("options") or {}), "cache": cache(result)}
            stored = any((result.get("size") or {}).values())
            parts = [f"{g} {chosen[g]}" for g in _unusual(chosen) if g not in axes]
            parts = [p for p in parts if stored or not p.startswith("save ")]
            if result.get("environment") and "stages" not in result:  # it came to its end
                where, *read_when = under(result, point=folder / str(row["point"])).split(", ")
                parts = [where] * (not groups & {"dtype", "device"}) + read_when + parts
                parts = [f"model {model(result)}"] * ("model" not in groups) + parts
                told.append([_asked(p, axes) for p in parts])
    same = [part for part in told[0] if part and all(part in other for other in told)] if told else []  # fmt: skip
    same = [part for part in same if not name.startswith(part)]
    same += [f"{key} {value}" for key, value in overrides.common(folder, axes).items()]
    return f": {', '.join(same)}" if same else ""


def _asked(part: str, axes: Sequence[str]) -> str:
    """What of `24 prompts of recall` the sweep leaves as it is; other parts as they are."""
    _, some, name = part.partition("prompt")
    if not some or not any(a.partition(".")[0] == "prompt" for a in axes):
        return part
    return (
        "" if "prompt" in axes else f"prompt {name.removeprefix('s').removeprefix(' of').strip()}"
    )


def declared(folder: Path) -> list[str]:
    """The keys that the sweep in `folder` varies by its own configuration: more than one point may have shown."""
    told = _hydra(folder)
    return [*varied(_overrides(told)), *map(str, (told.get("sweeper") or {}).get("params") or {})]


def noted(folder: Path) -> list[str]:
    """What the sweep in `folder` does in silence, as its console said before the first point."""
    return notes.of_sweep(_overrides(_hydra(folder)))


def _hydra(folder: Path) -> Record:
    """What the sweep in `folder` was configured with; empty where nothing tells it."""
    try:
        return foreign.read_yaml(folder / "multirun.yaml")["hydra"]
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def _overrides(told: Record) -> list[str]:
    return list(map(str, (told.get("overrides") or {}).get("task") or []))


def swept(rows: list[Record], axes: list[str], name: str, search: bool = False) -> str:
    """The title of a sweep, or of a search: what was varied, and the model where that was none of it."""
    way = "Search" if search else "Sweep"
    models = {str(row.get("model.path") or row.get("model") or "").rstrip("/") for row in rows}
    whose = models.pop().rpartition("/")[2] if len(models) == 1 else ""
    what = f"{way} of {', '.join(axes)}" if axes else f"{way} {name}"
    return f"{what}: {whose}" if whose else what


def _alone(words: Sequence[str], folder: Path) -> list[str]:
    """The command of the point in `folder` alone, in a list, where `words` ran a sweep; none where options of
    one's own would be named by the directory in which it is drawn."""
    swept = {*MULTIRUN} & {*words} and not any(w.startswith("--config-dir") for w in words)
    return [told] if swept and (told := of_point(folder)) else []


def origin(place: Path, folder: Path) -> list[tuple[str, str]]:
    """A link from `folder` to the page of the run that left the snapshot at `place`, be it that of a chat's turn; none
    to its own, and where there is no such page."""
    others = (above for above in [*place.parents][:2] if above.resolve() != folder.resolve())
    made = [pair for above in others for pair in link(LEFT, above / "report.html", folder)]
    return made[:1]


def onward(result: dict[str, Any]) -> list[str]:
    """The commands that work on what a judged run has left: its record, and its snapshot where that outlives it."""
    more = [command(launched.audit(result["folder"]))]
    kept = result.get("snapshot") or {}
    if (path := kept.get("path")) and kept.get("format") != "memory":
        after = (result.get("next") or {}).get("path", "ANOTHER-SNAPSHOT")
        more.append(command(["task=diff", f"a={path}", f"b={after}"]))
    return more


def again(result: Record) -> list[str]:
    """What else to type of a table of measurements: how an evaluation, or a chat that was judged, is checked."""
    audit = command(launched.audit(str(result.get("folder"))))
    judged = result.get("task") == "chat" and bool(result.get("curves"))
    return [audit] * (judged or result.get("task") == "evaluate")


def of_sweep(folder: Path, best: Sequence[Record] = (), more: Sequence[str] = ()) -> list[Record]:
    """The command of the sweep in `folder`, as its own configuration has it, and that of its best point. best:
    the row of that point, where there is one. more: further commands."""
    if not (first := launched.of_sweep(folder)):
        return []
    commands = [
        first,
        *(told for row in best if (told := of_point(folder / row["point"]))),
    ]
    parts = ["The first runs the whole sweep"]
    parts += ["the second its marked point"] * bool(commands[1:])
    parts += ["the last checks it"] * bool(more)
    note = f"{', '.join(parts)}." if parts[1:] else ""
    title = "Run it again" + ", check it" * bool(more)
    return [section(title, text=note, pre="\n".join([*commands, *more]))]
