"""Every task's end: `result.json`, `report.html`, MLflow, the console table, the exit code."""

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness.compare.conclusion import conclusion
from harness.snapshot.result import METRICS, MUTATION, SCHEMA, TIMES, UNJUDGED, worse


@dataclass(frozen=True)
class Outcome:
    """exit_code: 0 verdict meets the requirement, 1 it does not. folder: where the record is."""

    exit_code: int
    verdict: str
    folder: str
    reason: str = ""


def conclude(session: Any, record: dict[str, Any]) -> Outcome:
    """Complete `record`, write it, draw it, track it, show it. `record["curves"]` is for plots."""
    from harness.report import console, html

    cfg, folder = session.cfg, session.folder
    result = completed(session, record)
    session.say.stage("record")
    html.write(folder / "report.html", result)
    result["mlflow"], problem = sealed(cfg, folder, result)
    session.say.done(result["folder"])
    if problem:
        session.say.problem(f"harness: {problem} {kept(folder)}")
    console.show(session.say, result)
    return Outcome(exit_code(cfg, result), result["verdict"], str(folder), result["reason"])


def sealed(cfg: Any, folder: Path, result: dict[str, Any]) -> tuple[Any, str]:
    """Write `result.json` and its seal, then track it: `(mlflow block, what went wrong)`."""
    from harness import track
    from harness.pipeline.environment import packages
    from harness.snapshot.record import PENDING, seal
    from harness.snapshot.result import write_json

    if cfg.track.name != "none" and not (folder / PENDING).exists():
        write_json(folder / PENDING, {"reason": "upload not begun"})  # a kill here loses nothing
    seal(folder, result, asdict(cfg), packages())
    return track.log(cfg.track, cfg.runs_dir, folder, result, cfg.name)


def kept(folder: Path) -> str:
    """What to do about a result that the tracking server did not get."""
    return (
        f"The result is safe in {shown(folder)}; once the server is back, "
        f"`python -m harness resume={shown(folder)}` uploads it."
    )


def completed(session: Any, record: dict[str, Any]) -> dict[str, Any]:
    """The fixed fields of `result.json`, in their fixed order, with what the session knows."""
    cfg, size = session.cfg, record["size"]
    verdict = record["verdict"] or UNJUDGED
    fixed = {
        "schema": SCHEMA,
        "task": cfg.task.name,
        "verdict": verdict,
        "reason": record["reason"],
        "required": cfg.compare.require_pruned if record.get("pruned") else cfg.compare.require,
        "metrics": {key: record.get("metrics", {}).get(key) for key in METRICS},
        "noise_floor": {key: record.get("noise_floor", {}).get(key) for key in METRICS},
        "oracle": record.get("oracle", {}),
        "soundness": record.get("soundness", {}),
        "against": record.get("against"),
        "mutation": {key: record.get("mutation", {}).get(key) for key in MUTATION},
        "size": size,
        "time_s": {key: session.times.get(key) for key in TIMES},
        "snapshot": record["snapshot"],
        "elements": record["elements"],
        "environment": session.environment(),
        "mlflow": None,
        "model": {**session.loaded.source, "option": cfg.model.name},
        "options": options(cfg),
        "folder": shown(session.folder),
    }
    result = {**fixed, **{k: v for k, v in record.items() if k not in fixed}}
    return {**result, "conclusion": conclusion(result)}


def options(cfg: Any) -> dict[str, str]:
    """Which option of each group this run used."""
    groups = ("task", "model", "tokenizer", "cache", "prune", "save", "prompt", "sampling",
              "compare", "fault", "track")  # fmt: skip
    return {group: getattr(cfg, group).name for group in groups}


def shown(path: Path | str) -> str:
    """`path` relative to the working directory where it lies below it, else absolute; URLs as is."""
    if "://" in str(path):
        return str(path)
    absolute, here = Path(path).absolute(), Path.cwd()
    return str(absolute.relative_to(here) if absolute.is_relative_to(here) else absolute)


def exit_code(cfg: Any, result: dict[str, Any]) -> int:
    """0 when the verdict is at least as good as required, or when nothing was judged."""
    return 1 if worse(result["verdict"], result["required"]) else 0


def snapshot_record(manifest: dict[str, Any], path: Path | str) -> dict[str, Any]:
    """The `snapshot` block of `result.json`."""
    return {
        "id": manifest["id"],
        "path": shown(path),
        "format": manifest["payload_format"],
        "format_version": manifest["format_version"],
    }
