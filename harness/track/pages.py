"""Addresses of MLflow's pages, and the columns with which the list of our runs opens."""

import json
import re
from pathlib import Path

COLUMNS = (
    "attributes.`Created`", "tags.`outcome`", "params.`prune`", "params.`prune.ratio`", "params.`cache`",
    "metrics.`logits/top1_agreement`", "metrics.`oracle/ratio`", "metrics.`size/kv_bytes`", "metrics.`size/kept_tokens`",
    "metrics.`best/contains`", "tags.`conclusion`", "duration", "params.`model`", "params.`quantize`", "params.`seed`",
)  # fmt: skip
VIEW = "mlflow.sharedViewState.harness"
ORDER = {
    "selectedColumns": COLUMNS,
    "columnOrder": ("attributes.`Run Name`", "runDateAndNestInfo", *COLUMNS),
}
TAGS = {
    "mlflow.experimentKind": "custom_model_development",  # runs and charts, no traces of language model applications
    VIEW: json.dumps({**ORDER, "runsHiddenMode": "SHOWALL"}),
}
TRAINING = "workflowType=machine_learning"  # the menu that has runs in it


def address(server: str, experiment_id: str, run_id: str = "") -> str:
    """Of our experiment's runs, or of the one run `run_id`; without who asks."""
    shown = f"/{run_id}?{TRAINING}" if run_id else f"?viewStateShareKey=harness&{TRAINING}"
    plain = re.sub("//[^/@]*@", "//", server).rstrip("/")
    return f"{plain}/#/experiments/{experiment_id}/runs{shown}"


def addresses(uri: str, experiment_id: str, run_id: str = "") -> dict[str, str]:
    """The `page` of a run on a server, and all `runs` beside one another; a database has none."""
    if not is_server(uri):
        return {}
    return {"page": address(uri, experiment_id, run_id), "runs": address(uri, experiment_id)}


def is_server(uri: str) -> bool:
    """Whether a store has pages of its own."""
    return uri.startswith(("http://", "https://"))


def database(uri: str) -> Path | None:
    """The file of a store that is one."""
    held = re.match(r"sqlite(?:\+\w+)?:///([^?]+)", uri)
    return Path(held[1]) if held else None
