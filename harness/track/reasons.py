"""Why a store or a server takes nothing, in plain words."""

from textwrap import shorten

_SAID = {
    "NewConnectionError": "no server answers there",
    "NameResolutionError": "there is no such host",
    "ReadTimeoutError": "it takes the request and does not answer",
    "ConnectTimeoutError": "it does not answer",
    "error code 401": "it asks for a name and a password, and MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or "
    "MLFLOW_TRACKING_TOKEN) are not set here, or are not what it takes",
    "error code 403": "it knows who asks (MLFLOW_TRACKING_USERNAME), who may not write to this experiment there; its owner "
    "gives that permission, or give another track.experiment",
    "No space left": "the disk is full",
    "disk is full": "the disk is full",
    "readonly database": "it can only be read",
    "<!doctype html": "what answers there is no MLflow, or not at this path",
    "Current state is deleted": "this experiment was deleted there; restore it (`mlflow experiments restore`), or give "
    "another track.experiment",
    "out-of-date database schema": "an earlier MLflow made it; copy the file, then run `mlflow db upgrade` with this address",
}  # fmt: skip


def plain(problem: Exception) -> str:
    """What is wrong, without a full stop: in our words where the sign of it is known, else its own first line."""
    text = str(problem).strip() or type(problem).__name__
    known = (said for sign, said in _SAID.items() if sign in text)
    return next(known, shorten(text.splitlines()[0], 300, placeholder=" ...").rstrip("."))
