"""Recorded configurations run again in this fresh process: `python -m harness.cli.replay JOBS.json`.

JOBS.json is a list of `{"config": FILE, "folder": DIR, "threads": N or null, "device": NAME}`. The
config is data, checked against the typed schema; nothing it names is built that the command line
could not name. Nothing is tracked, and nothing is written outside the job's folder.
"""

import json
import sys
from functools import partial
from pathlib import Path
from typing import Any

from harness import config


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
    cfg = config.recorded(Path(job["config"]))
    cfg.track = config.TrackConfig(name="none")
    cfg.out = cfg.run = None
    engine = cfg.engine  # a record names no server to talk to and no command to run
    engine.url = engine.evict = engine.restart = engine.flush = None
    cfg.threads = job["threads"]
    if job["device"] != "auto":
        cfg.device = job["device"]
    return cfg


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
