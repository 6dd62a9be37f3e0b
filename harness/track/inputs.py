"""What went into a run, on the server: its prompt as a dataset, its model as one logged model for all
runs of it."""

from pathlib import Path
from typing import Any

from harness.track import contents

_MODELS: dict[tuple[str, str, str], str] = {}  # (uri, experiment, name) -> id, in this process


def note(client: Any, experiment: str, run_id: str, folder: Path, result: dict[str, Any]) -> None:
    """The prompt as a dataset and the model, with its digests, as inputs of the run. A server that
    knows no logged models gets the rest."""
    from mlflow.entities import Dataset, DatasetInput, InputTag, LoggedModelInput
    from mlflow.exceptions import MlflowException

    told, model = contents.dataset(result, folder), contents.model(result)
    if told is None or model is None:
        return
    prompt = DatasetInput(Dataset(**told), [InputTag("mlflow.data.context", "prompt")])
    try:
        client.log_inputs(run_id, datasets=[prompt])
    except MlflowException as problem:
        if problem.error_code != "BAD_REQUEST":
            raise
        client.log_inputs(run_id, datasets=[prompt])  # another worker had just made it
    try:
        named = _model(client, experiment, run_id, *model)
        client.log_inputs(run_id, models=[LoggedModelInput(named)])
    except MlflowException as problem:
        if problem.error_code not in ("ENDPOINT_NOT_FOUND", "NOT_IMPLEMENTED"):
            raise


def forget() -> None:
    """Ask for every model again: the server was away, and may be another."""
    _MODELS.clear()


def _model(client: Any, experiment: str, run_id: str, name: str, tags: dict[str, str]) -> str:
    """The id of the logged model of this name: one for all runs, made by the first."""
    key = (client.tracking_uri, experiment, name)
    if key not in _MODELS:
        there = client.search_logged_models(
            [experiment], filter_string=f"name = '{name}'", max_results=1
        )
        if there:
            _MODELS[key] = there[0].model_id
        else:
            made = client.create_logged_model(
                experiment, name, source_run_id=run_id, tags=tags, model_type="harness"
            )
            _MODELS[key] = client.finalize_logged_model(made.model_id, "READY").model_id
    return _MODELS[key]
