"""What a run tells a tracking server: metrics in named sections, parameters, tags, a description."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from harness.config.literal import spelled

SECTIONS = {"metrics": "logits", "noise_floor": "noise", "time_s": "time", "size": "size",
            "oracle": "oracle", "audit": "audit"}  # fmt: skip
MUTATION = ("mutated", "length_before", "length_after", "bytes_copied_per_token")
PARAM_LIMIT = 500


def metrics(result: dict[str, Any]) -> Iterator[tuple[str, float, int]]:
    """`section/name`, value and step of every finite number in the result."""
    for block, section in SECTIONS.items():
        for key, value in (result.get(block) or {}).items():
            if isinstance(value, bool | int | float) and value == value:
                yield f"{section}/{key}", float(value), 0
    for key in MUTATION:
        if (value := (result.get("mutation") or {}).get(key)) is not None:
            yield f"mutation/{key}", float(value), 0
    for name, curve in list((result.get("curves") or {}).items())[:2]:
        section = "noise" if name.startswith("noise") else "logits"
        for key, values in curve.items():
            for step, value in enumerate(values):
                if isinstance(value, int | float):
                    yield f"{section}/step_{key}", float(value), step


def parameters(folder: Path) -> Iterator[tuple[str, str]]:
    """The resolved config, flattened; long values are cut here rather than by the server."""
    try:
        tree = json.loads((folder / "record.json").read_text("utf-8"))["config"]
    except (OSError, ValueError, KeyError):
        return
    for key, value in _flat(tree):
        safe = "".join(c if c.isalnum() or c in "_-./ " else "_" for c in key)
        yield safe, (value if isinstance(value, str) else json.dumps(value))[:PARAM_LIMIT]


def tags(result: dict[str, Any], folder: Path) -> dict[str, str]:
    """Verdict, element digests, options, code state, sweep: what runs are searched by."""
    git = (result.get("environment") or {}).get("git") or {}
    found = {
        "verdict": str(result.get("verdict")),
        "task": str(result.get("task")),
        "folder": str(result.get("folder", folder)),
        "record": record_id(folder),
        "snapshot_id": (result.get("snapshot") or {}).get("id"),
        "git_commit": git.get("commit"),
        "mlflow.source.name": "python -m harness",
        "mlflow.source.type": "LOCAL",
        "mlflow.source.git.commit": git.get("commit"),
        "git_dirty": str(git.get("dirty")).lower() if git else None,
        "git_diff_digest": git.get("diff_digest"),
        "sweep": folder.parent.name if in_sweep(folder) else None,
        "sweep.point": folder.name if in_sweep(folder) else None,
        "audit.of": result.get("audit_of"),
    }
    for entry in result.get("elements") or []:
        found[f"element.{entry['number']:02d}_{entry['name']}"] = entry["digest"][:16]
    found |= {f"option.{k}": v for k, v in (result.get("options") or {}).items()}
    return {k: str(v) for k, v in found.items() if v is not None}


def began(folder: Path) -> int:
    """When the run began, in milliseconds: Hydra writes its configuration first."""
    place = folder / ".hydra" / "config.yaml"
    return int((place if place.is_file() else folder / "record.json").stat().st_mtime * 1000)


def run_name(result: dict[str, Any], folder: Path, name: str) -> str:
    """What was varied, in a sweep; the configured name otherwise."""
    return " ".join(varied(folder)) or name


def varied(folder: Path) -> list[str]:
    """The overrides in which a sweep's point differs from its sweep."""
    if not in_sweep(folder):
        return []
    import yaml

    own = yaml.safe_load((folder / ".hydra" / "overrides.yaml").read_text("utf-8")) or []
    sweep = yaml.safe_load((folder.parent / "multirun.yaml").read_text("utf-8"))
    shared = {spelled(str(a)) for a in sweep["hydra"]["overrides"]["task"]}
    return [str(a) for a in own if spelled(str(a)) not in shared]


def in_sweep(folder: Path) -> bool:
    return (folder.parent / "multirun.yaml").is_file()


def note(result: dict[str, Any], run_id: str) -> str:
    """The run's description, in markdown: verdict, picture, table."""
    head = [f"**{result.get('verdict')}**: {result.get('reason')}", ""]
    if result.get("curves"):
        head += [f"![divergence per step](get-artifact?path=divergence.svg&run_uuid={run_id})", ""]
    noise = result.get("noise_floor") or {}
    rows = [f"| {k} | {_short(v)} | {_short(noise.get(k))} |" for k, v in (result.get("metrics") or {}).items()]  # fmt: skip
    table = ["| metric | measured | noise floor |", "|---|---|---|", *rows] if rows else []
    again = f"Run it again and compare every figure: `python -m harness task=audit run={run_id}`"
    return "\n".join([*head, *table, "", f"Folder: `{result.get('folder')}`", "", again])


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def record_id(folder: Path) -> str | None:
    try:
        return json.loads((folder / "record.json").read_text("utf-8"))["id"]
    except (OSError, ValueError, KeyError):
        return None


def _flat(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, tree
