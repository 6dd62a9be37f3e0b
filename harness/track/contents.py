"""What MLflow gets of a run beside its metrics and files: a name, parameters, tags."""

import getpass
import json
import socket
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import variants
from harness.config import aliases, launched
from harness.config.choice import unread
from harness.config.literal import decoded, listed, spelled, texts
from harness.present.messages import worded
from harness.results.run import fact_of, values
from harness.snapshot import table
from harness.snapshot.record import flat
from harness.snapshot.result import UNJUDGED, exit_code, outcome
from harness.track import snapshot

Record = dict[str, Any]
LONG = 500  # characters of a parameter or a tag
NAMED = 80  # characters of a name, without its outcome
PARAMS = 40  # per run; the whole configuration is an artifact
CHOSEN = ("seed", "steps", "dtype", "device", "cache.branches", "prompt.batch")
BUDGET = ("prune.tokens", "prune.ratio")
LISTS = {
    "prune": "prunes",
    "quantize": "quantizers",
    "cache": "caches",
}  # of a task that takes several
ADMINISTRATIVE = (
    "hydra",
    "runs_dir",
    "track",
    "out",
    "name",
    "sign",
    "encrypt",
    "decrypt",
    "report",
    "limit_s",
)
PLACES = (
    "run",
    "snapshot",
    "a",
    "b",
    "model.path",
    "engine.model",
    "prompt.path",
)  # named by their last part
NOTE = "mlflow.note.content"  # MLflow's own tags: the description, and the run above
ABOVE = "mlflow.parentRunId"


def status(results: Iterable[Record]) -> str:
    """FAILED where a result ended with another code than 0. A comparison that found differences did what it was for."""
    stopped = ("failed", "refused")
    missed = [r for r in results if exit_code(r)]
    failed = any(r.get("task") != "diff" or r.get("verdict") in stopped for r in missed)
    return "FAILED" if failed else "FINISHED"


def name(folder: Path, result: Record, configured: str) -> str:
    """What was typed, and what came out: `prune=snapkv prune.ratio=0.25: diverged`. Of a point what it alone has."""
    typed = varied(folder) if in_sweep(folder) else [o for o in overrides(folder) if telling(o)]
    words = [read(override, brief=True) for override in typed]
    if not words or (configured != "experiment" and not in_sweep(folder)):
        words.insert(0, configured)
    return ended(short(" ".join(words)), word(result))


def ended(named: str, came: str) -> str:
    return f"{named}: {came}" if came else named


def short(text: str, most: int = NAMED) -> str:
    return text if len(text) <= most else f"{text[: most - 3].rstrip()}..."


def word(result: Record) -> str:
    """The outcome in a few words; empty where the task has none."""
    return outcome(result) or table.word(result)


def parameters(folder: Path) -> dict[str, str]:
    """What was chosen: the options, what was typed, and what runs are usually told apart by."""
    return chosen(config(folder), overrides(folder))


def chosen(tree: Record, typed: Iterable[str]) -> dict[str, str]:
    """The same of a configuration and of what was typed. Keys that the task does not read are left out."""
    task = tree.get("task") or {}
    held = dict(flat(tree))
    held |= {f"{group}.name": option for group, option in (tree.get(aliases.KEY) or {}).items()}
    if tree.get("text"):
        held["prompt.name"] = "text"
    groups = [
        f"{key}.name"
        for key, value in tree.items()
        if isinstance(value, dict) and "name" in value and key not in ADMINISTRATIVE
    ]
    budget = [k for k in BUDGET if held.get(k) is not None and held.get("prune.name") != "none"][:1]
    wanted = [*groups, *(_key(o) for o in typed if telling(o)), *CHOSEN, *budget]
    dead = (
        {*unread(str(task.get("name")))} if task.get("name") in variants.options("task") else set()
    )
    told = {
        k.removesuffix(".name"): held[k]
        for k in wanted
        if k in held and dead.isdisjoint((k, k.partition(".")[0]))
    }
    told |= {key: task[several] for key, several in LISTS.items() if task.get(several)}
    return dict([(safe(k), _text(v)[:LONG]) for k, v in told.items()][:PARAMS])


def _text(value: Any) -> str:
    if isinstance(value, list | tuple):
        return ", ".join(map(_text, value))
    return value if isinstance(value, str) else json.dumps(value)


def safe(key: str) -> str:
    """A key as MLflow takes it."""
    return "".join(c if c.isalnum() or c in "_-./ " else "_" for c in key)


def tags(folder: Path, result: Record) -> dict[str, str]:
    """What runs are searched by. The facts that are tags say so themselves."""
    environment = result.get("environment") or {}
    git = (environment or result).get("git") or {}
    facts = {path.rpartition(".")[2]: value for path, value in values(result).items()
             if fact_of(path).track == "tag" and not path.startswith("noise_floor")}  # fmt: skip
    versions = environment.get("versions") or {}
    ran = environment.get("device") not in (None, "none", "outside")
    stopped = result.get("verdict") in ("failed", "refused")
    judged = bool(result.get("curves"))
    served = result.get("cache")
    text = result.get("text") or {}
    answers: dict[Any, str] = {True: "right", False: "wrong"}
    labels = facts | {
        "verdict": None if _wordless(result) else result.get("verdict"),
        "outcome": word(result) or None,
        "conclusion": str(result.get("conclusion") or worded(result.get("reason"), True)),
        "reason": worded(result.get("reason"), True) if stopped else None,
        "task": result.get("task"),
        "required": result.get("required") if judged else None,
        "exit_code": exit_code(result) if judged or exit_code(result) else None,
        "record": record_id(folder),
        "snapshot_id": snapshot.left(result).get("id"),
        "parent_snapshot_id": snapshot.parent(result),
        "out": config(folder).get("out"),
        "git_commit": git.get("commit"),
        "git_dirty": git.get("dirty"),
        "sweep": folder.parent.name if in_sweep(folder) else None,
        "sweep.point": folder.name if in_sweep(folder) else None,
        "cache.served": served.get("served") if isinstance(served, dict) else None,
        "device.served": environment.get("device") if ran else None,
        **{package: versions.get(package) for package in ("torch", "transformers") if ran},
        "itself": (result.get("itself") or {}).get("verdict"),
        "answer": answers.get(text.get("restored_right")),
        "audit.outcome": word(result) if result.get("task") == "audit" else None,
        "audit.of": result.get("audit_of"),
        **place(folder, str(result.get("folder", folder))),
    }
    labels[NOTE] = labels["conclusion"]
    return written(labels)


def written(labels: Record) -> dict[str, str]:
    """Tags as MLflow takes them, those without a value left out."""
    told = {
        k: str(v).lower() if isinstance(v, bool) else str(v)
        for k, v in labels.items()
        if v is not None
    }
    return {key: short(value, LONG) for key, value in told.items()}


def _wordless(result: Record) -> bool:
    """Whether the task judges no thought: its verdict would be found among those of runs that do."""
    own = outcome(result) != result.get("verdict")
    tabled = result.get("verdict") == UNJUDGED or result.get("task") in ("faults", "architectures")
    return (own and tabled) or result.get("task") == "audit"


def place(folder: Path, shown: str) -> Record:
    """Where a run was made, by whom and by what. shown: its folder as it lies below the working directory."""
    whole = str(folder.absolute())
    below = not Path(shown).is_absolute() and whole.endswith(f"/{shown}")
    told = {"folder": shown, "host": socket.gethostname(), "directory": (whole.removesuffix(f"/{shown}") or "/") if below else None,
            "mlflow.source.name": "python -m harness", "mlflow.source.type": "LOCAL"}  # fmt: skip
    with suppress(OSError, KeyError, ImportError):  # a user without a name
        told["mlflow.user"] = getpass.getuser()
    return told


def config(folder: Path) -> Record:
    """The sealed configuration of a run; empty where nothing is sealed."""
    tree = _record(folder).get("config")
    return tree if isinstance(tree, dict) else {}


def record_id(folder: Path) -> str | None:
    return _record(folder).get("id")


def _record(folder: Path) -> Record:
    try:
        document = json.loads((folder / "record.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def began(folder: Path) -> int:
    """In milliseconds: Hydra writes its own configuration first; a record writes config.yaml anew."""
    return _written(folder, ".hydra/hydra.yaml", ".hydra/config.yaml", "record.json", "result.json")


def finished(folder: Path) -> int:
    """In milliseconds: the seal is written last, and no upload changes it."""
    return _written(folder, "record.json", "result.json")


def _written(folder: Path, *names: str) -> int:
    file = next((folder / one for one in names if (folder / one).is_file()), folder)
    return int(file.stat().st_mtime * 1000)


def in_sweep(folder: Path) -> bool:
    return (folder.parent / "multirun.yaml").is_file()


def overrides(folder: Path) -> list[str]:
    return launched.typed(folder) or []


def varied(folder: Path) -> list[str]:
    """The overrides in which a sweep's point differs from its sweep."""
    shared = {spelled(override) for override in swept(folder.parent)} if in_sweep(folder) else set()
    return [
        o
        for o in overrides(folder)
        if shared and spelled(o) not in shared and _key(o) != "track.uri"
    ]


def swept(sweep: Path) -> list[str]:
    """The overrides of a sweep, as typed."""
    return [str(override) for override in multirun(sweep)["hydra"]["overrides"]["task"]]


def axes(sweep: Path) -> dict[str, str]:
    """What was asked of a whole sweep: key -> value, or values. A sweeper's own parameters are among it unless they are
    typed anew."""
    params = (multirun(sweep)["hydra"].get("sweeper", {}).get("params") or {}).items()
    typed = [o for o in swept(sweep) if telling(o) or _key(o) == "task"]
    replaced = {_key(override) for override in typed}
    pairs = [
        read(o).partition("=")
        for o in (*typed, *(f"{k}={v}" for k, v in params if k not in replaced))
    ]
    return {key.lstrip("+~"): value for key, _, value in pairs}


def moved(sweep: Path) -> Record:
    """The address that a sweep was given for all its points, as a key of `track`; empty where there is none."""
    uri = (multirun(sweep).get("track") or {}).get("uri")
    typed = [o.partition("=")[2] for o in swept(sweep) if _key(o) == "track.uri"]
    return {"uri": uri} if typed and "," not in typed[-1] and "${" not in str(uri) else {}


def multirun(sweep: Path) -> Record:
    import yaml

    document = yaml.safe_load((sweep / "multirun.yaml").read_text("utf-8"))
    return document if isinstance(document, dict) else {}


def read(override: str, brief: bool = False) -> str:
    """An override as a person types it, a text in quotation marks. brief: of a place its last part."""
    key, _, value = decoded(override).partition("=")
    if several := texts(override):
        return f"{key}={','.join(map(listed, several))}"
    if decoded(override) != override:
        return f'{key}="{value}"'
    return f"{key}={Path(value).name}" if brief and key in PLACES else override


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def telling(override: str) -> bool:
    """Whether an override says what was run; the task itself is in the name."""
    return _key(override) != "task" and _key(override).partition(".")[0] not in ADMINISTRATIVE
