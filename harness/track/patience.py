"""How long a tracking server or a database that is away is waited for: a job that is done does not stand still."""

import os

TRIES = 6  # of a database, 6 seconds between the first and the last; MLflow's own are 10, of 100 seconds


def of_servers() -> None:
    """Before the client is imported: a server that is away is asked three times, unless the environment says more."""
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "2")
    os.environ.setdefault("MLFLOW_HTTP_REQUEST_TIMEOUT", "10")


def of_databases() -> None:
    """The same of a database, for which MLflow has no setting."""
    from mlflow.store.db import utils

    utils.MAX_RETRY_COUNT = min(getattr(utils, "MAX_RETRY_COUNT", TRIES), TRIES)
