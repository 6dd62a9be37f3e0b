"""What went into a run, on the server: its prompt as a dataset, its model as one logged model for all
runs of it."""

from pathlib import Path
from typing import Any

from harness.track import datasets, models

_MODELS: dict[tuple[str, str, str], str] = {}  # (uri, experiment, name) -> id, in this process


def note(client: Any, experiment: str, run_id: str, folder: Path, result: dict[str, Any]) -> None:
    """The prompt as a dataset and the model, with its digests, as inputs of the run, each as far as it is known. A
    server that knows no logged models gets the rest."""
    if told := datasets.of(result, folder):
        _read(client, run_id, told)
    if model := models.of(result):
        _used(client, experiment, run_id, model)


def _read(client: Any, run_id: str, told: list[dict[str, str]]) -> None:
    from mlflow.entities import Dataset, DatasetInput, InputTag
    from mlflow.exceptions import MlflowException

    context = [InputTag("mlflow.data.context", "compared" if told[1:] else "prompt")]
    read = [DatasetInput(Dataset(**one), context) for one in told]
    try:
        client.log_inputs(run_id, datasets=read)
    except MlflowException as problem:
        if problem.error_code != "BAD_REQUEST":
            raise
        client.log_inputs(run_id, datasets=read)  # another worker had just made it


def _used(client: Any, experiment: str, run_id: str, model: models.Told) -> None:
    from mlflow.entities import LoggedModelInput
    from mlflow.exceptions import MlflowException

    try:
        named = _model(client, experiment, run_id, model)
        client.log_inputs(run_id, models=[LoggedModelInput(named)])
    except MlflowException as problem:
        if problem.error_code not in ("ENDPOINT_NOT_FOUND", "NOT_IMPLEMENTED"):
            raise


def share(client: Any, run_id: str, runs: list[Any]) -> None:
    """What all of `runs` (the points of a sweep, as they are listed) have read, and their model where it is one,
    as inputs of the run `run_id` above them. Those that came to nothing have none and are not asked."""
    told = [run for run in runs if run.inputs and run.inputs.dataset_inputs]
    if not told:
        return
    read = [{(d.dataset.name, d.dataset.digest) for d in r.inputs.dataset_inputs} for r in told]
    first = client.get_run(told[0].info.run_id).inputs  # a list of runs leaves their models out
    sets = [
        d
        for d in first.dataset_inputs
        if all((d.dataset.name, d.dataset.digest) in r for r in read)
    ]
    if sets:
        client.log_inputs(run_id, datasets=sets)
    named = {run.data.tags.get("model") for run in told}  # older runs do not say it
    if first.model_inputs and len(named) == 1 and None not in named:
        client.log_inputs(run_id, models=first.model_inputs)
    if len(named) == 1 and None not in named:
        client.set_tag(run_id, "model", *named)


def forget() -> None:
    """Ask for every model again: the server was away, and may be another."""
    _MODELS.clear()


def _model(client: Any, experiment: str, run_id: str, told: models.Told) -> str:
    """The id of the logged model of this name: one for all runs, made by the first."""
    name = told.name
    key = (client.tracking_uri, experiment, name)
    if key not in _MODELS:
        there = client.search_logged_models(
            [experiment], filter_string=f"name = '{name}'", max_results=1
        )
        if there:
            _MODELS[key] = there[0].model_id
        else:
            made = client.create_logged_model(
                experiment, name, run_id, told.tags, told.params, model_type="harness"
            )
            _MODELS[key] = client.finalize_logged_model(made.model_id, "READY").model_id
    return _MODELS[key]
