"""A store of MLflow as an audit is told of it."""

from types import SimpleNamespace

from mlflow.tracking import MlflowClient


def store_of(runs):
    """`(configuration, client)` of the store in a directory of runs."""
    track = SimpleNamespace(name="mlflow", uri=None, experiment="harness")
    cfg = SimpleNamespace(track=track, runs_dir=str(runs), run=None)
    return cfg, MlflowClient(tracking_uri=f"sqlite:///{runs}/mlflow.db")
