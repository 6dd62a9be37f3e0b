"""What a run tells a tracking server: parameters, tags, what went into it. Its metrics: `metrics.py`."""

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from harness import variants
from harness.config import called, launched
from harness.config.choice import unread
from harness.config.literal import decoded, listed, spelled, texts
from harness.present import refusal
from harness.present.messages import worded
from harness.snapshot import objective, table
from harness.snapshot.result import UNJUDGED, exit_code, outcome, told_apart
from harness.track import colours, models, parts, provenance, snapshot
from harness.track import lists as several
from harness.track.metrics import safe

PARAM_LIMIT = 500  # characters of one
RATIO, ALL = "prune.ratio", "1"  # of a run that prunes nothing, for which MLflow invents one
BUDGET = ("prune.tokens", RATIO)
GIVEN = ("snapshot", "foreign")  # may have been pruned before
PARAMS = 40  # how many: what was chosen; the rest is a file
CHOSEN = ("seed", "steps", "dtype", "device", "cache.branches", "prompt.batch")
AUDIT, AUDITED = "audit", ("task.name", "run", "trusted")  # a task, and what it reads
TABLES = ("faults", "architectures")  # tasks whose verdict is none of a thought
ADMINISTRATIVE = ("hydra", "runs_dir", "track", "out", "name", "sign", "encrypt", "decrypt")
PLACED = "path"  # the option of a model that is called by its folder
PLACES = ("run", "snapshot", "a", "b", "model.path", "engine.model", "prompt.path")  # by last name
WHOLE = re.compile(r"""'[^']*'|"[^"]*"|\[[^\]]*\]|\{[^}]*\}""")  # one value, with commas of its own


def status(results: Iterable[dict[str, Any]]) -> str:
    """What a run of these results, one or the points of a sweep, is marked as: failed where one of them did not end
    with 0. A comparison that came to its end has done what it was asked, whatever it found."""
    return "FAILED" if any(exit_code(one) and not _compared(one) for one in results) else "FINISHED"


def _compared(result: dict[str, Any]) -> bool:
    return result.get("task") == "diff" and _stopped(result) is None


def parameters(folder: Path) -> Iterator[tuple[str, str]]:
    """What was chosen, at most 40: the options, of a task that takes several all of them, then what was typed,
    then what runs are told apart by. The whole configuration is an artifact (`record.json`,
    `hydra/config.yaml`). Long values are cut here rather than by the server."""
    return chosen(config(folder), overrides(folder))


def chosen(tree: dict[str, Any], typed: list[str]) -> Iterator[tuple[str, str]]:
    """The same of a configuration and of what was typed."""
    told = {**dict(_configured(tree, typed)), **several.options(tree)}
    return ((key, value[:PARAM_LIMIT]) for key, value in [*told.items()][:PARAMS])


def configured(folder: Path) -> dict[str, str]:
    """The same with the one option of each group that the configuration holds: what the parts of a task begin
    with that takes several."""
    return dict(_configured(config(folder), overrides(folder)))


def _configured(tree: dict[str, Any], typed: list[str]) -> Iterator[tuple[str, str]]:
    every = dict(flat(tree)) | _said(tree)
    every |= {f"{group}.name": name for group, name in (tree.get(called.KEY) or {}).items()}
    typed = [_key(o) for o in typed if telling(o)]
    groups = [
        f"{key}.name" for key, value in tree.items() if isinstance(value, dict) and "name" in value
    ]
    budget = [k for k in BUDGET if every.get(k) is not None][:1]
    wanted = dict.fromkeys([*groups, *typed, *CHOSEN, *budget])
    task = str(every.get("task.name"))
    if task in variants.options("task"):  # what it cannot heed tells nothing
        passed = {*unread(task)}
        wanted = {k: None for k in wanted if passed.isdisjoint((k, k.partition(".")[0]))}
    if every.get("prune.name") == "none":  # which keeps everything that was read here
        whole = "prune.name" in wanted and not any(every.get(key) for key in GIVEN)
        wanted = {key: None for key in wanted if key not in BUDGET}
        every[RATIO], wanted = ALL, wanted | dict.fromkeys([RATIO] * whole)
    if every.get("task.name") == AUDIT:  # the record that it audits has the rest
        wanted = {key: None for key in AUDITED if every.get(key)}
    if every.get("task.name") == "diff":  # which reads no more than it was given
        wanted = {k: None for k in wanted if k.removesuffix(".name") in ("task", *typed)}
    for key in [k for k in wanted if k in every][:PARAMS]:
        value = every[key]
        if key == "model.name" and value == PLACED and every.get("model.path"):
            value = Path(str(every["model.path"])).name
        told = several.joined(value) if isinstance(value, list) else _worded(value)
        yield safe(key.removesuffix(".name")), told[:PARAM_LIMIT]


def _worded(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def axes(sweep: Path) -> dict[str, str]:
    """What a sweep varied, as it was typed: key -> values."""
    several = [o for o in (*swept(sweep), *searched(sweep)) if _varies(o.partition("=")[2])]
    pairs = (read(o).partition("=") for o in several)
    return {key.lstrip("+"): value for key, _, value in pairs}


def _varies(value: str) -> bool:
    """Whether a value is several: commas outside of lists and quotes, or a choice, a range."""
    bare = WHOLE.sub("", value)
    return "," in bare or "(" in bare


def tags(result: dict[str, Any], folder: Path) -> dict[str, str]:
    """Verdict, model, code state, sweep: what runs are searched by. Options are parameters, the digests of the
    elements a file."""
    git, judged = _git(result), bool(result.get("curves"))
    labels = {
        "verdict": None if wordless(result) else str(result.get("verdict")),
        "outcome": word(result, folder) or None,
        "conclusion": told_apart(concluded(result))[:PARAM_LIMIT],
        "task": str(result.get("task")),
        "required": result.get("required") if judged else None,
        "exit_code": exit_code(result) if judged or exit_code(result) else None,
        **provenance.tags(folder, str(result.get("folder", folder))),
        "model": models.named(result),
        "record": record_id(folder),
        "snapshot_id": snapshot.left(result).get("id"),
        "parent_snapshot_id": snapshot.parent(result),
        "out": config(folder).get("out"),
        **provenance.source(git.get("commit")),
        "git_dirty": str(git.get("dirty")).lower() if git else None,
        "git_diff_digest": git.get("diff_digest"),
        "sweep": folder.parent.name if in_sweep(folder) else None,
        "sweep.point": folder.name if in_sweep(folder) else None,
        **(colours.tag(folder.name) if in_sweep(folder) else {}),
        "cache.served": _served(result),
        **provenance.made_with(result),
        "itself": (result.get("itself") or {}).get("verdict"),
        "answer": _answer(result.get("text") or {}),
        "reason": _stopped(result),
        **_flags(result),
    }
    if result.get("task") == AUDIT:
        labels |= _audit(result, folder)
    return {k: str(v) for k, v in labels.items() if v is not None}


def of_part(result: dict[str, Any]) -> dict[str, str]:
    """What each is called, the task, the code state and, of an evaluation, the model: tags of the runs below one."""
    task, git = str(result.get("task")), _git(result)
    known = {"task": task, "part": parts.called(task).removesuffix("s")}
    known["model"] = str(models.named(result) or "") * (task == "evaluate")
    known["git_dirty"] = str(git.get("dirty", "")).lower()
    told = {key: value for key, value in known.items() if value}
    return told | provenance.source(git.get("commit")) | provenance.made_with(result)


def _git(result: dict[str, Any]) -> dict[str, Any]:
    return (result.get("environment") or result).get("git") or {}


def _audit(result: dict[str, Any], folder: Path) -> dict[str, Any]:
    """What an audit is searched by: what it came to, the run it is of and how that was compared. Nothing was
    judged but whether a record holds, so it has no verdict and no options that it does not read."""
    return {
        "verdict": None,
        "bitwise": None,
        "audit.outcome": word(result, folder),
        "audit.of": result.get("audit_of"),
        "audit.run": audited(folder).get("run"),
        "audit.compared": audited(folder).get("compared"),
    }


def audited(folder: Path) -> dict[str, Any]:
    """The report of the audit in `folder`; empty of one that came to no end."""
    try:
        document = json.loads((folder / "audit.json").read_text("utf-8"))
    except (OSError, ValueError):
        return {}
    return document if isinstance(document, dict) else {}


def began(folder: Path) -> int:
    """When the run began, in milliseconds: Hydra writes its configuration first."""
    return _first(folder, ".hydra/config.yaml", "record.json", "result.json")


def ended(folder: Path) -> int:
    """When the run came to its end, in milliseconds: it is sealed last, and what is uploaded later changes no
    seal."""
    return _first(folder, "record.json", "result.json")


def _first(folder: Path, *names: str) -> int:
    """When the first of these files that is there was written."""
    file = next((folder / name for name in names if (folder / name).is_file()), folder)
    return int(file.stat().st_mtime * 1000)


def word(result: dict[str, Any], folder: Path) -> str:
    """What came out, in a few words: the outcome; where the task has no word for it the figures that a search
    is told, where one asks, or the share of right answers."""
    if said := outcome(result) or table.word(result):
        return said
    try:
        wanted = json.loads((folder / "record.json").read_text("utf-8"))["config"]["report"]
        names = wanted["objectives"] or []
    except (OSError, ValueError, KeyError):
        return ""
    return objective.said(objective.figures(folder, names)) or parts.answered(folder)


def concluded(result: dict[str, Any]) -> str:
    """What came out, in a sentence; of what was refused what does not fit, before where that lies."""
    said = result.get("conclusion") or worded(result.get("reason"))
    return " ".join(refusal.sentences(result)) or str(said)


def wordless(result: dict[str, Any]) -> bool:
    """Whether the task has no verdict that anything was judged by."""
    own = outcome(result) != result.get("verdict")  # it has words of its own
    tabled = result.get("verdict") == UNJUDGED or result.get("task") in TABLES
    return (own and tabled) or result.get("task") == AUDIT


def varied(folder: Path) -> list[str]:
    """The overrides in which a sweep's point differs from its sweep."""
    if not in_sweep(folder):
        return []
    shared = {spelled(override) for override in swept(folder.parent)}
    return [o for o in overrides(folder) if spelled(o) not in shared and _key(o) != "track.uri"]


def swept(sweep: Path) -> list[str]:
    """The overrides of a sweep, as typed."""
    import yaml

    told = yaml.safe_load((sweep / "multirun.yaml").read_text("utf-8"))
    return [str(override) for override in told["hydra"]["overrides"]["task"]]


def moved(sweep: Path) -> dict[str, Any]:
    """The address that a sweep was given for all its points, as a key of `track`; empty where there is none."""
    import yaml

    track = yaml.safe_load((sweep / "multirun.yaml").read_text("utf-8")).get("track") or {}
    uri = track.get("uri")
    typed = any(_key(o) == "track.uri" and not _varies(o.partition("=")[2]) for o in swept(sweep))
    return {"uri": uri} if typed and "${" not in str(uri) else {}


def searched(sweep: Path) -> list[str]:
    """What a sweeper was told to vary by its configuration, and nobody has replaced by typing."""
    import yaml

    told = yaml.safe_load((sweep / "multirun.yaml").read_text("utf-8"))
    params = (told["hydra"].get("sweeper", {}).get("params") or {}).items()
    replaced = {_key(override) for override in swept(sweep)}
    return [f"{k}={v}" for k, v in params if k not in replaced]


def overrides(folder: Path) -> list[str]:
    return launched.typed(folder) or []


def read(override: str, brief: bool = False) -> str:
    """An override as a person reads it among others: text in quotation marks. brief: of a place the last
    name only."""
    key, _, value = decoded(override).partition("=")
    if several := texts(override):
        return f"{key}={','.join(map(listed, several))}"
    if decoded(override) != override:
        return f'{key}="{value}"'
    return f"{key}={Path(value).name}" if brief and key in PLACES else override


def _key(override: str) -> str:
    return override.lstrip("+~").partition("=")[0]


def telling(override: str) -> bool:
    """Whether it says what was run; the task itself is in the name."""
    return _key(override) != "task" and _key(override).partition(".")[0] not in ADMINISTRATIVE


def _flags(result: dict[str, Any]) -> dict[str, str]:
    """Yes and no, which a chart cannot show."""
    blocks = [result.get(name) or {} for name in ("metrics", "mutation", "audit")]
    return {k: str(v).lower() for block in blocks for k, v in block.items() if isinstance(v, bool)}


def _served(result: dict[str, Any]) -> str | None:
    """The cache that served, which is the one that was asked for or what `auto` came to."""
    block = result.get("cache")
    return block.get("served") if isinstance(block, dict) else None


def _stopped(result: dict[str, Any]) -> str | None:
    """Why there is nothing to see, where the job came to no end: the first sentence."""
    if result.get("verdict") not in ("failed", "refused"):
        return None
    said = worded(result.get("reason")).partition("\n")[0]
    said = f"{said.rstrip('.:')}."
    return said[:PARAM_LIMIT]


def _answer(text: dict[str, Any]) -> str | None:
    return None if "expected" not in text else "right" if text["restored_right"] else "wrong"


def config(folder: Path) -> dict[str, Any]:
    """The sealed configuration of a run; empty where nothing is sealed."""
    try:
        tree = json.loads((folder / "record.json").read_text("utf-8"))["config"]
    except (OSError, ValueError, KeyError):
        return {}
    return tree if isinstance(tree, dict) else {}


def hidden(config: dict[str, Any]) -> bool:
    """Whether what a run read or wrote is encrypted: no words of it are told then."""
    return bool(config.get("decrypt")) or config.get("encrypt") not in (None, "none")


def _said(config: dict[str, Any]) -> dict[str, str]:
    """The prompt of a run that was given a text, whatever option stands there unread."""
    return {"prompt.name": "text"} if config.get("text") else {}


def in_sweep(folder: Path) -> bool:
    return (folder.parent / "multirun.yaml").is_file()


def record_id(folder: Path) -> str | None:
    try:
        return json.loads((folder / "record.json").read_text("utf-8"))["id"]
    except (OSError, ValueError, KeyError):
        return None


def flat(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Each value of a configuration by its whole name."""
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, tree
