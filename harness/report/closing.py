"""What every page says besides its figures: whose they are, where they were measured, and the commands
that measure them again. It is all built from the record."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.config.launched import options_dir, searchpath
from harness.config.literal import command, typed
from harness.report.html import section
from harness.report.names import plain

TITLED = ("cache", "prune", "quantize", "save", "fault")
# Tasks whose prompt says what was read.
READING = ("experiment", "save", "evaluate", "referee", "loop")
PLACED = ("hydra.mode=", "hydra.sweep.dir=", "hydra.sweep.subdir=")  # Hydra's own, and a resume's
Record = dict[str, Any]


def model(result: Record) -> str:
    """The name of the model: that of its folder where it is somebody's own, or nothing."""
    option = str((result.get("options") or {}).get("model", ""))
    return str((result.get("model") or {}).get("name", option)) if option == "path" else option


def title(result: Record) -> str:
    """The task, the model, and the option of each group that took part."""
    chosen = result.get("options") or {}
    parts = [f"{group} {chosen[group]}" for group in TITLED if chosen.get(group, "none") != "none"]
    return f"{result.get('task', 'experiment')}: {', '.join([model(result), *parts])}"


def under(result: Record) -> str:
    """What was read and in which numbers, in one line; nothing where no model was loaded."""
    where, chosen = result.get("environment") or {}, result.get("options") or {}
    if not result.get("model") or where.get("device") == "none":
        return ""
    place = "" if where.get("device") == "outside" else f" on {where.get('device')}"
    asked, name = (result.get("evaluation") or {}).get("questions"), chosen.get("prompt")
    prompts = f"{asked} prompts of {name}" if asked else f"prompt {name}"
    return f"{where.get('dtype')}{place}" + f", {prompts}" * (result.get("task") in READING)


def said(result: Record) -> str:
    """The conclusion, and in lines of their own the reason, where that says more."""
    sentence, lines = (
        str(result.get("conclusion") or ""),
        str(result.get("reason") or "").splitlines(),
    )
    return "\n".join([sentence, *(line for line in lines if line[1:].rstrip(".") not in sentence)])


def sections(result: Record, more: Sequence[str] = ()) -> list[Record]:
    """The environment, folded, and what to type. more: further commands."""
    where = result.get("environment") or {}
    if not where.get("command"):
        return []
    facts = {**{k: v for k, v in where.items() if k not in ("versions", "git", "command")},
             **where["versions"], **{f"git {k}": v for k, v in where["git"].items()}}  # fmt: skip
    rows = [[plain(k), _said(v)] for k, v in facts.items()]
    again = [" ".join(map(typed, where["command"])), *more]
    swept = {"-m", "--multirun"} & {*where["command"][3:]}
    note = "The first runs the whole sweep, the second this point." if swept and more else ""
    return [
        section("Environment", columns=["what", "value"], rows=rows, fold=True),
        section(
            "Run it again" + ", check it, compare it" * bool(more), text=note, pre="\n".join(again)
        ),
    ]


def _said(value: Any) -> Any:
    if isinstance(value, dict):
        return ", ".join(f"{k}={v}" for k, v in value.items()) or None
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


def swept(rows: list[Record], axes: list[str], name: str) -> str:
    """The title of a sweep: what was varied, and the model where that was none of it."""
    models = {str(row.get("model.path") or row.get("model") or "").rstrip("/") for row in rows}
    whose = models.pop().rpartition("/")[2] if len(models) == 1 else ""
    what = f"Sweep of {', '.join(axes)}" if axes else f"Sweep {name}"
    return f"{what}: {whose}" if whose else what


def again(result: Record, folder: Path) -> list[str]:
    """What else to type of a table of measurements in `folder`: a point of a sweep by itself, an evaluation to
    be checked."""
    words = ((result.get("environment") or {}).get("command") or [])[3:]
    swept = {"-m", "--multirun"} & {*words} and not any(w.startswith("--config-dir") for w in words)
    alone = [of_point(folder)] if swept else []  # from whatever directory it is drawn again
    audit = f"python -m harness task=audit run={result.get('folder')}"
    return [*filter(None, alone), *[audit] * (result.get("task") == "evaluate")]


def of_point(folder: Path) -> str:
    """The command that runs the job in `folder` by itself; empty where it does not say what was typed, as one
    that was run again from a record."""
    import yaml

    try:
        told = yaml.safe_load((folder / ".hydra" / "overrides.yaml").read_text("utf-8"))
    except OSError:
        return ""
    return command([*searchpath(folder), *map(str, told or [])], options_dir(folder))


def of_sweep(folder: Path, best: Sequence[Record] = ()) -> list[Record]:
    """The command of the sweep in `folder`, as its own configuration has it, and that of its best point. best:
    the row of that point, where there is one."""
    import yaml

    try:
        told = yaml.safe_load((folder / "multirun.yaml").read_text("utf-8"))["hydra"]["overrides"]
        asked = [o for o in map(str, told.get("hydra") or []) if not o.startswith(PLACED)]
        words = [*options_dir(folder), *map(str, told["task"]), *asked]
        commands = [" ".join(["python -m harness -m", *map(typed, words)])]
    except (OSError, KeyError, TypeError):
        return []
    commands += [told for row in best if (told := of_point(folder / row["point"]))]
    note = "The first runs the whole sweep, the second its best point." if commands[1:] else ""
    return [section("Run it again", text=note, pre="\n".join(commands))]
