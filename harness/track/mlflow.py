"""`track=mlflow`: parameters, metrics in named sections, artifacts and tags; sqlite by default.

Without a URI the store is `runs/mlflow.db`, created once under a lock: several processes that
create one fresh database at the same time would break it for good.
"""

import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from harness.errors import InputProblem

SECTIONS = {"metrics": "logits", "noise_floor": "noise", "time_s": "time", "size": "size",
            "oracle": "oracle"}  # fmt: skip
PARAM_LIMIT = 500


class Mlflow:
    """One MLflow run per harness run. Nothing leaves this machine unless `track.uri` says so."""

    def __init__(self, settings: Any, runs_dir: Path):
        os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
        os.environ.setdefault(
            "MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2"
        )  # a dead server is said at once
        os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "20")
        os.environ["MLFLOW_CONFIGURE_LOGGING"] = "false"  # its log lines go to harness.log
        self.settings, self.runs_dir = settings, runs_dir.absolute()
        self.local = settings.uri is None
        self.uri = settings.uri or f"sqlite:///{self.runs_dir / 'mlflow.db'}"
        self._run: Any = None

    def begin(self, result: dict[str, Any], cfg: Any) -> dict[str, Any]:
        """Create the run; return what `result.json` records about it."""
        from mlflow.exceptions import MlflowException
        from mlflow.tracking import MlflowClient

        try:
            with _lock(self.runs_dir, self.local):
                self.client = MlflowClient(tracking_uri=self.uri)
                experiment = self._experiment()
            self._run = self.client.create_run(experiment, run_name=cfg.name, tags=_tags(result))
        except (MlflowException, OSError) as problem:
            raise InputProblem(
                f"cannot track to {self.uri}: {str(problem).splitlines()[0]} "
                "Check track.uri, or run with track=none."
            ) from problem
        shown = "sqlite:///" + str(Path(cfg.runs_dir) / "mlflow.db") if self.local else self.uri
        return {
            "run_id": self._run.info.run_id,
            "experiment": self.settings.experiment,
            "uri": shown,
        }

    def end(self, result: dict[str, Any], folder: Path, page: Path) -> None:
        """Log everything and close the run. `folder` holds result.json and the snapshot."""
        from mlflow.entities import Metric, Param

        run_id = self._run.info.run_id
        now = int(time.time() * 1000)
        steps = [
            Metric(f"{'noise' if name.startswith('noise') else 'logits'}/step_{key}", value, now, i)
            for name, curve in list(result.get("curves", {}).items())[:2]
            for key, values in curve.items()
            for i, value in enumerate(values)
        ]
        final = [Metric(k, float(v), now, 0) for k, v in metrics(result)]
        params = [Param(k, v) for k, v in parameters(folder)]
        for start in range(0, max(len(final + steps), 1), 1000):
            batch = (final + steps)[start : start + 1000]
            self.client.log_batch(run_id, metrics=batch, params=params if start == 0 else [])
        self._artifacts(run_id, result, folder, page)
        self.client.set_tag(run_id, "mlflow.note.content", note(result))
        self.client.set_terminated(run_id)

    def _experiment(self) -> str:
        found = self.client.get_experiment_by_name(self.settings.experiment)
        if found is not None:
            return found.experiment_id
        place = (self.runs_dir / "artifacts").as_uri() if self.local else None
        return self.client.create_experiment(self.settings.experiment, artifact_location=place)

    def _artifacts(self, run_id: str, result: dict[str, Any], folder: Path, page: Path) -> None:
        self.client.log_dict(run_id, {"elements": result["elements"]}, "elements.json")
        for path in (page, folder / "result.json", folder / "snapshot" / "manifest.json"):
            if path.is_file():
                self.client.log_artifact(run_id, str(path))
        limit = self.settings.artifact_limit_mb * 2**20
        stored = result["size"]["stored_bytes"]
        if stored and stored <= limit and (folder / "snapshot").is_dir():
            self.client.log_artifacts(run_id, str(folder / "snapshot"), "snapshot")


def metrics(result: dict[str, Any]) -> Iterator[tuple[str, float]]:
    """`section/name` and value of every finite number in the result."""
    for block, section in SECTIONS.items():
        for key, value in (result.get(block) or {}).items():
            if isinstance(value, bool | int | float) and value == value:
                yield f"{section}/{key}", value
    for key in ("mutated", "length_before", "length_after", "bytes_copied_per_token"):
        if (value := result["mutation"][key]) is not None:
            yield f"mutation/{key}", value


def parameters(folder: Path) -> Iterator[tuple[str, str]]:
    """The resolved config, flattened; long values are cut here rather than by the server."""
    import yaml

    path = folder / ".hydra" / "config.yaml"
    tree = yaml.safe_load(path.read_text()) if path.is_file() else {}
    for key, value in _flat(tree):
        safe = "".join(c if c.isalnum() or c in "_-./ " else "_" for c in key)
        yield safe, (value if isinstance(value, str) else json.dumps(value))[:PARAM_LIMIT]


def note(result: dict[str, Any]) -> str:
    """The run's description in MLflow, in markdown."""
    rows = [f"| {k} | {v} | {result['noise_floor'].get(k)} |" for k, v in result["metrics"].items()]
    return "\n".join(
        [f"**{result['verdict']}**: {result['reason']}", "",
         "| metric | measured | noise floor |", "|---|---|---|", *rows]
    )  # fmt: skip


def _tags(result: dict[str, Any]) -> dict[str, str]:
    git = result["environment"]["git"]
    tags = {
        "verdict": str(result["verdict"]),
        "snapshot_id": result["snapshot"]["id"],
        "git_commit": str(git["commit"]),
        "git_dirty": str(git["dirty"]).lower(),
        "git_diff_digest": str(git["diff_digest"]),
    }
    tags |= {f"element.{e['number']:02d}_{e['name']}": e["digest"][:16] for e in result["elements"]}
    return tags | {f"option.{k}": v for k, v in result["options"].items()}


def _flat(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    if isinstance(tree, dict) and tree:
        for key, value in tree.items():
            yield from _flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, tree


@contextmanager
def _lock(runs_dir: Path, local: bool) -> Iterator[None]:
    """One process at a time may create the sqlite store."""
    if not local:
        yield
        return
    runs_dir.mkdir(parents=True, exist_ok=True)
    with (runs_dir / ".mlflow.lock").open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


TRACKER = Mlflow
