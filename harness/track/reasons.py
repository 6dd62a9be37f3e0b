"""Why a store or a server takes nothing, in plain words."""

import os
import re
import shlex
from importlib.util import find_spec
from textwrap import shorten

from harness.process import of_mlflow

NONE = "what answers there is no MLflow, or not at this path"
FORBIDDEN = "it answers 403 (forbidden)"
ASKED = ("MLFLOW_TRACKING_USERNAME", "MLFLOW_TRACKING_TOKEN")  # who asks a server
LONG = 300  # characters of what a store says in its own words
PACKAGES = {
    "psycopg": "psycopg[binary]",
    "psycopg2": "psycopg2-binary",
    "MySQLdb": "mysqlclient",
}  # by module
DELETED = "this experiment was deleted there"
GONE = re.compile(r"experiment (\d+) must be .* Current state is deleted")
ERASED = re.compile(r"run (\w{32}) must be .* Current state is deleted")
MODULE = re.compile(r"No module named '(\w+)")
CODE = re.compile(r"too many (\d+) error responses|failed with error code (\d+)")
_SAID = {
    "NewConnectionError": "no server answers there",
    "NameResolutionError": "there is no such host",
    "ReadTimeoutError": "it takes the request and does not answer",
    "ConnectTimeoutError": "it does not answer",
    "error code 401": "it asks for a name and a password, and MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD (or "
    "MLFLOW_TRACKING_TOKEN) are not set here, or are not what it takes",
    "No space left": "the disk is full",
    "disk is full": "the disk is full",
    "readonly database": "it can only be read",
    "<!doctype html": NONE,
    "not in a valid JSON format": NONE,
    "error code 404": NONE,
    "WRONG_VERSION_NUMBER": "that port speaks http, not https",
    "out-of-date database schema": "an earlier MLflow made it; copy the file, then run `mlflow db upgrade` with this address",
}  # fmt: skip


def plain(problem: Exception, uri: str = "ADDRESS") -> str:
    """What is wrong, without a full stop: in our words where the sign of it is known, else its own first line. uri: of
    the store, for a command that mends it."""
    text = str(problem).strip() or type(problem).__name__
    if "error code 403" in text or text.startswith("PERMISSION_DENIED"):
        return _forbidden()
    if found := GONE.search(text):
        place = shlex.quote(f"MLFLOW_TRACKING_URI={uri}")
        return f"{DELETED}; `env {place} {of_mlflow()} experiments restore --experiment-id {found[1]}` restores it"
    if found := ERASED.search(text):
        place = shlex.quote(f"MLFLOW_TRACKING_URI={uri}")
        return f"this run was deleted there; `env {place} {of_mlflow()} runs restore --run-id {found[1]}` restores it"
    if "Databricks" in text:
        return _databricks()
    if module := MODULE.search(text):
        name = module[1]
        return (
            f"its driver {name} is not installed here: `pip install '{PACKAGES.get(name, name)}'`"
        )
    known = next((said for sign, said in _SAID.items() if sign in text), "")
    if not known and (found := CODE.search(text)):
        return f"it answers {found[1] or found[2]}, and whoever runs it can see why in its log"
    return known or _brief(text.splitlines()[0]).rstrip(".")


def _brief(said: str) -> str:
    """As many of its sentences as there is room for; how the first begins where that alone has none."""
    whole = said[: LONG + 1].rpartition(". ")[0]
    return said if len(said) <= LONG else whole or f"{shorten(said, LONG, placeholder='')} (cut)"


def _databricks() -> str:
    """How its workspaces are reached: MLflow's own words hold every way, in ten lines."""
    try:
        there = find_spec("databricks.sdk") is not None
    except ModuleNotFoundError:
        there = False
    missing = "the package for it is not installed here: `pip install databricks-sdk`; then "
    return (
        f"{'' if there else missing}set DATABRICKS_HOST and DATABRICKS_TOKEN, or log in (`databricks auth login`) and name "
        "that profile: track.uri=databricks://PROFILE"
    )


def _forbidden() -> str:
    """What a server means that lets nobody in, or not the one who was named to it."""
    who = next((name for name in ASKED if os.environ.get(name)), "")
    if not who:
        return f"{FORBIDDEN}, and nobody was named to it: {' or '.join(ASKED)} is not set here"
    return (
        f"{FORBIDDEN}: who asks ({who}) may not write to this experiment there; its owner gives that permission, or give "
        "another track.experiment"
    )
