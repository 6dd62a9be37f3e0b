"""What a store holds of a run, read through its client (`Store.ask`): for who compares it with the record."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.track import parent


def run(client: Any, run_id: str) -> dict[str, Any] | None:
    """A run as `of` gives it; None where there is none of this id."""
    found = parent.find(client, run_id)
    return of(found) if found else None


def of(run: Any) -> dict[str, Any]:
    """`id`, `name`, `status`, `experiment`, `tags`, `params` and `metrics` (the latest of each), and whether
    it was `deleted`."""
    info, data = run.info, run.data
    return {
        "id": info.run_id, "name": info.run_name, "status": info.status, "experiment": info.experiment_id,
        "tags": dict(data.tags), "params": dict(data.params), "metrics": dict(data.metrics),
        "deleted": info.lifecycle_stage == "deleted",
    }  # fmt: skip


def search(client: Any, tag: str, value: str) -> list[dict[str, Any]]:
    """The runs whose tag has this value, in any experiment, deleted ones too."""
    from mlflow.entities import ViewType

    experiments = [e.experiment_id for e in client.search_experiments()]
    wanted = f"tags.`{tag}` = '{value}'"
    return [of(r) for r in client.search_runs(experiments, wanted, ViewType.ALL, max_results=20)]


def below(client: Any, above: dict[str, Any]) -> list[dict[str, Any]]:
    """The runs below a run, as `of` gives them."""
    return [of(r) for r in parent.below(client, above["experiment"], above["id"])]


def steps(client: Any, run_id: str, key: str) -> list[tuple[int, float]]:
    """`(step, value)` of everything that was logged of a metric."""
    return [(m.step, m.value) for m in client.get_metric_history(run_id, key)]


def files(client: Any, run_id: str, below: str | None = None) -> Iterator[str]:
    """The paths of a run's artifacts."""
    for entry in client.list_artifacts(run_id, below):
        if entry.is_dir:
            yield from files(client, run_id, entry.path)
        else:
            yield entry.path


@contextmanager
def fetched(client: Any, run_id: str, path: str = "") -> Iterator[Path]:
    """One artifact, or the folder of all, for as long as the block lasts. Raises OSError where it is not to be had."""
    with TemporaryDirectory() as place:
        try:
            file = Path(client.download_artifacts(run_id, path, place))
        except Exception as problem:  # of whatever client its storage has
            raise OSError(str(problem)) from problem
        yield file
