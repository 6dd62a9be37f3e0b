"""Optional packages: which extra brings them, and one plain message where one is missing."""

import warnings
from importlib.util import find_spec
from typing import Any

from harness.errors import MissingExtra

NEEDS = {
    "kernels": ("numba",),
    "optuna": ("hydra_plugins.hydra_optuna_sweeper", "optuna"),
    "joblib": ("hydra_plugins.hydra_joblib_launcher", "joblib"),
    "submitit": ("hydra_plugins.hydra_submitit_launcher", "submitit"),
    "ray": ("hydra_plugins.hydra_ray_launcher", "ray"),
    "postgres": ("psycopg",),
    "remote": ("fsspec", "s3fs"),
    "gs": ("fsspec", "gcsfs"),
    "ui": ("gradio",),
    "trust": ("cryptography", "model_signing"),
    "llamacpp": ("xllamacpp", "gguf"),
    "mlx": ("mlx_lm",),
    "quanto": ("optimum.quanto",),
    "peft": ("peft",),
}
BY_SCHEME = {"s3": "remote", "s3a": "remote", "gs": "gs", "gcs": "gs"}


def need(extra: str, what: str) -> None:
    """Raise MissingExtra when a package of `extra` cannot be imported. what: who asks for it."""
    if (module := missing(extra)) is not None:
        raise MissingExtra(what, extra, module)


def missing(extra: str) -> str | None:
    """The first package of `extra` that cannot be imported, or None. Imports none of them."""
    for module in NEEDS[extra]:
        try:
            spec = find_spec(module)
        except ImportError:
            spec = None
        if spec is None:
            return module
    return None


def for_launcher(arguments: list[str]) -> None:
    """Raise MissingExtra when the command line asks for a launcher or sweeper whose extra is not
    there. What joblib warns of a worker that had nothing to do for a while is not said."""
    warnings.filterwarnings("ignore", message="A worker stopped while some jobs were given")
    for argument in arguments:
        key, _, value = argument.partition("=")
        extra = value.partition("_")[0]
        if key.lstrip("+") in ("hydra/launcher", "hydra/sweeper") and extra in NEEDS:
            need(extra, argument)


def for_job(cfg: Any) -> None:
    """Raise MissingExtra before any work when a place that `cfg` names needs an extra."""
    for key in ("out", "snapshot", "a", "b"):
        scheme, there, _ = str(getattr(cfg, key)).partition("://")
        if there and scheme in BY_SCHEME:
            need(BY_SCHEME[scheme], f"{key}={getattr(cfg, key)}")
    if cfg.task.name == "ui":
        need("ui", "task=ui")
    if str(cfg.track.uri).startswith("postgres"):
        need("postgres", "track.uri=postgresql://...")
