"""Recorded configurations run again in this fresh process: `python -m harness.cli.replay JOBS.json`.

JOBS.json is a list of `{"config": {KEY: VALUE}, "record": DIR, "folder": DIR, "threads": N or null, "device": NAME,
"plugins": {"path": DIR, "trust": [MODULE]}, "decrypt": KEY or null, "dtype": NAME or null, "typed": [WORD], "judged":
whether a resume was, "places": {KEY: DIR}, "model": DIR or null}`. The config is data, checked against the typed
schema; nothing it names is built that the command line could not name. Nothing is tracked, nothing is written outside
the job's folder, nothing is read outside the record but `places` and `model`, and nobody is asked over a network.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from harness import config, variants
from harness.config import moved
from harness.errors import ConfigProblem, InputProblem

EVER = 1e9  # seconds


def main(jobs: Path) -> int:
    """Run every job; each leaves its `result.json`, an unreadable config too."""
    from harness.task import dispatch

    for job in json.loads(jobs.read_text("utf-8")):
        folder = Path(job["folder"])
        folder.mkdir(parents=True, exist_ok=True)
        dispatch(partial(again, job), folder, sweep=True)
        sys.stdout.write(".")
        sys.stdout.flush()
    return 0


def again(job: dict[str, Any]) -> config.Config:
    """The recorded config, made harmless: untracked, and its outputs go to the job's folder."""
    from harness.pipeline import origin

    sys.argv = [sys.argv[0], *map(str, job.get("typed", sys.argv[1:]))]
    plugins = config.PluginsConfig(**job.get("plugins", {}))
    variants.trust(plugins.trust, plugins.path)
    cfg = config.recorded(job["config"], job["record"], plugins)
    moved.confine(Path(job["record"]), job["model"])
    for key, place in job["places"].items():
        group, _, inner = key.rpartition(".")
        setattr(getattr(cfg, group) if group else cfg, inner, place)
    if not any("://" in str(place) for place in job["places"].values()):
        sys.addaudithook(_offline)
    origin.recorded(cfg, dtype=not job.get("dtype"))
    cfg.track = config.TrackConfig(name="none")
    follows = cfg.out is not None and cfg.task.name == "resume"
    cfg.out = str(Path(job["folder"]) / "next") if follows else None
    cfg.run = None
    # where no answers of a stopped evaluation lie that it could go on from
    cfg.runs_dir = job["folder"]
    engine = cfg.engine  # a record names no server to talk to and no command to run
    engine.url = engine.evict = engine.restart = engine.flush = None
    key = job.get("decrypt")  # the auditor's, who encrypts what is written again and signs nothing
    cfg.sign, cfg.encrypt, cfg.decrypt = None, key, key if cfg.decrypt else None
    cfg.overwrite, cfg.trusted, cfg.restore.trusted = False, [], []
    from harness.snapshot.record import AUDITED

    if cfg.task.name not in AUDITED:
        raise ConfigProblem(f"task={cfg.task.name} is no task that an audit runs again.")
    if "judged" in job:  # no second estimate decides whether anything is compared
        cfg.compare.budget_s = EVER if job["judged"] else 0
    cfg.threads = job["threads"]
    if job["device"] != "auto":
        cfg.device = job["device"]
    if dtype := job.get("dtype"):  # only for how far another precision lies from this one
        cfg.dtype = dtype
        cfg.task.name = "save" if cfg.task.name == "experiment" else cfg.task.name
    return cfg


def _offline(event: str, arguments: Any) -> None:
    """Refuse whatever would leave this machine."""
    if event in ("socket.connect", "socket.getaddrinfo", "socket.sendto"):
        raise InputProblem("the record asks for something over a network, and no audit does.")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
