"""Where results are tracked: the keys of `track`, and which addresses a tracking server can have."""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from harness.config.key import at_least, only
from harness.errors import ConfigProblem

MISSING = "???"
WHO = re.compile(r"//[^/?#]*@")  # a user or a token, before the host
SECRET = re.compile(r"^//[^/?#@:]*:[^/?#]*@|[?&](?:password|passwd|pwd)=", re.IGNORECASE)
USUAL = "harness"  # experiment
LONGEST = 500  # characters of its name
KEYS = {"MLFLOW_TRACKING_URI": "track.uri", "MLFLOW_EXPERIMENT_NAME": "track.experiment"}
SCHEMES = ("http", "https", "sqlite", "postgresql", "mysql", "mssql", "databricks")
SECRETS = {  # where the words that open a server belong, by the scheme of its address
    "http": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    "https": "MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD",
    "postgresql": "PGPASSWORD, or in ~/.pgpass",
}
PLUGINS = "mlflow.tracking_store"  # entry points: schemes that a package adds


@dataclass
class TrackConfig:
    name: str = MISSING
    uri: str | None = only(None)
    experiment: str = only(USUAL)
    artifact_limit_mb: float = only(16.0)


def told(name: str, uri: str | None, experiment: str | None) -> str:
    """What to say of where results go before there are some: that MLflow's own variables name a server or an
    experiment and the configuration none (a record would not say where it went), and that a database that was
    named is not there yet."""
    if name != "mlflow":
        return ""
    usual = {
        "MLFLOW_TRACKING_URI": uri is None,
        "MLFLOW_EXPERIMENT_NAME": experiment in (None, USUAL),
    }
    passed = [v for v in KEYS if usual[v] and os.environ.get(v) not in (None, "", USUAL)]
    said = [
        f"{variable} is not heeded; to use it: {KEYS[variable]}=${variable}" for variable in passed
    ]
    return ". ".join([*said, *_new(uri)])


def _file(uri: str | None) -> Path | None:
    """The file of a database of sqlite; None of any other address."""
    scheme, _, path = (uri or "").partition(":///")
    return Path(path.partition("?")[0]) if scheme.partition("+")[0] == "sqlite" and path else None


def _new(uri: str | None) -> list[str]:
    """That the database `uri` is made anew, which a slip of the keys looks like."""
    file = _file(uri)
    if file is None or file.exists():
        return []
    where = "" if file.parent.exists() else f", in {file.parent}, a folder that is new too"
    return [f"track.uri={uri} is a new database{where}"]


def check(track: TrackConfig) -> None:
    """Raise ConfigProblem for an address that no server can have, an experiment that can have no such name, and a size
    below zero."""
    at_least("track.artifact_limit_mb", track.artifact_limit_mb, 0)
    check_experiment(track.experiment)
    check_uri(track.uri)


def check_experiment(name: str) -> None:
    """Raise ConfigProblem for a name that MLflow gives no experiment."""
    if not name.strip():
        raise ConfigProblem(
            f"track.experiment= is empty: give a name, or leave it out for `{USUAL}`."
        )
    if len(name) > LONGEST:
        raise ConfigProblem(
            f"track.experiment={name[:20]}... has {len(name)} characters, and MLflow takes {LONGEST} at most: "
            "give a shorter name."
        )


def check_uri(uri: str | None) -> None:
    """Raise ConfigProblem for an address that MLflow would refuse whenever it is asked: a folder, or a scheme
    that neither it nor an installed package of its plugins knows; and for one with a password, which every record,
    page and description would hold."""
    if uri is None:
        return
    if not uri.strip():
        raise ConfigProblem(
            "track.uri= is empty: give an address, or leave it out for the database below runs_dir."
        )
    from importlib.metadata import entry_points

    scheme, colon, rest = uri.partition(":")
    kind = scheme.partition("+")[0]  # postgresql+psycopg2
    if SECRET.search(rest) or (kind in ("http", "https") and WHO.match(rest)):
        place = SECRETS.get(kind, "a place that its driver reads")
        who = "" if kind in ("http", "https") else "USER@"
        raise ConfigProblem(
            f"track.uri holds a password, and every record and page of the run would hold it too. Leave it out, "
            f"track.uri={scheme}://{who}HOST..., and give it in the environment: {place}."
        )
    if kind in ("databricks-uc", "uc"):
        raise ConfigProblem(
            f"track.uri={uri} is Unity Catalog, which holds models and no runs: give track.uri=databricks."
        )
    if not colon and kind == "databricks":
        return
    host = rest[:1].isdigit()  # 127.0.0.1:5000
    if not colon or kind == "file" or "/" in scheme or ("." in scheme and not host):
        raise ConfigProblem(
            f"track.uri={uri} is a folder, in which MLflow 3 keeps no runs any more. Give a database "
            "(sqlite:///PATH.db) or a server (http://HOST:PORT)."
        )
    known = (*SCHEMES, *(entry.name for entry in entry_points(group=PLUGINS)))
    if kind not in known or (kind in ("http", "https") and not rest.startswith("//")):
        raise ConfigProblem(
            f"track.uri={uri} is no address of a tracking server. It begins with http://, https://, "
            "sqlite:///, or another of MLflow's: "
            + f"{', '.join(sorted({*known} - {*SCHEMES[:3]}))}."
        )
    if kind == "sqlite" and not re.match("///[^?]", rest):
        path = rest.lstrip("/").partition("?")[0] or "PATH.db"
        raise ConfigProblem(
            f"track.uri={uri} names no file: a path comes after three slashes, {scheme}:///{path} "
            f"(a whole one after four, {scheme}:////...)."
        )
    if (file := _file(uri)) is not None and file.is_dir():
        raise ConfigProblem(
            f"track.uri={uri} names a folder: give a file in it, {scheme}:///{file / 'mlflow.db'}."
        )
    if kind in ("http", "https") and "#" in uri:
        raise ConfigProblem(
            f"track.uri={uri} is the address of a page: give that of the server, {uri.partition('#')[0].rstrip('/')}."
        )
    if kind in ("http", "https") and (wrong := _unheard(uri)):
        raise ConfigProblem(f"track.uri={uri} {wrong}: give {kind}://HOST:PORT.")


def _unheard(uri: str) -> str:
    """What is wrong with an address whose host or port no server can have; empty for any other."""
    try:
        place = urlsplit(uri)
    except ValueError:  # half of an IPv6 address
        return "has a host that cannot be one"
    try:
        possible = place.port != 0
    except ValueError:
        possible = False
    if not place.hostname:
        return "names no host"
    return "" if possible else "has no port from 1 to 65535"
