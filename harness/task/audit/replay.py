"""The second run of a record, in a fresh process, and what of it is not as recorded."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness import config as configs
from harness.config import Config
from harness.errors import HarnessError, InputProblem
from harness.save import store
from harness.snapshot import record as records
from harness.snapshot.result import UNJUDGED, write_json
from harness.snapshot.state import State
from harness.task.audit import evaluation, places, rounding
from harness.task.audit.difference import FORMLESS, changes, compare, formed
from harness.task.audit.evidence import place_of, sealed
from harness.task.audit.finding import Finding
from harness.task.audit.source import read

FILES = {"turns": "chat.json", "trace": "trace.json"}  # what a result keeps beside it
LIMIT = 3600  # seconds that a recorded run may take again, an evaluation for each prompt


def rerun(
    cfg: Config, points: list[Path], folder: Path, root: Path, name: str = "again"
) -> dict[Path, Path]:
    """Run the sealed configurations again in one fresh process: record -> new run folder, below
    `folder/name`. `precision` runs each in another precision than it was recorded in. root: of the record or the
    sweep, all that it may read untyped."""
    jobs, targets, limit = [], {}, 0
    for point in points:
        result = read(point / "result.json")
        threads = (result.get("environment") or {}).get("threads")
        prompts = (result.get("evaluation") or {}).get("questions")
        limit += LIMIT * (prompts if isinstance(prompts, int) and prompts > 0 else 1)
        usable = isinstance(threads, int) and 1 <= threads <= 4 * (os.cpu_count() or 1)
        targets[point] = folder / name / (point.name if len(points) > 1 else "run")
        jobs.append(
            {
                "config": read(point / records.NAME).get("config"),
                "folder": str(targets[point].absolute()),
                "threads": cfg.threads or (threads if usable else None),
                "device": cfg.device,
                **_decided(result),
                "plugins": {"path": cfg.plugins.path, "trust": list(cfg.plugins.trust)},
                "decrypt": cfg.decrypt,
                **places.job(point, root),
                "dtype": rounding.other_precision(
                    str((result.get("environment") or {}).get("dtype"))
                )
                if name == "precision"
                else None,
            }
        )
    write_json(folder / f"{name}.json", jobs)
    command = [sys.executable, "-m", "harness.cli.replay", str(folder / f"{name}.json")]
    here = {**os.environ, "PYTHONPATH": search_path(), "HF_HUB_OFFLINE": "1"}
    try:
        process = subprocess.run(
            command,
            env=here,
            capture_output=True,
            text=True,
            timeout=limit,
            stdin=subprocess.DEVNULL,  # nobody is asked what a record makes a library ask
        )
    except subprocess.TimeoutExpired:
        raise InputProblem(f"the second run was not done after {limit} s and was ended.") from None
    if process.returncode:
        last = (process.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise InputProblem(f"the fresh process failed: {last}")
    return targets


def _decided(result: dict[str, Any]) -> dict[str, bool]:
    """Whether a resume was judged: that depends on how long it was reckoned to take there."""
    if result.get("task") != "resume":
        return {}
    return {"judged": result.get("verdict") != UNJUDGED}


def reproduced(
    point: Path, fresh: Path, salted: bool | None = None
) -> tuple[list[Finding], list[dict[str, Any]]]:
    """The differences between a record and its second run, and what changed in the environment. salted: whether the
    snapshot was encrypted, where it does not lie in `point`."""
    again = result(fresh)
    recorded = result(point, str(again.get("folder") or ""))
    changed = changes(recorded, again)
    if not (point / "result.json").is_file():
        return [], changed  # the missing result is already named
    salted = sealed(place_of(point, recorded)) if salted is None else salted is True
    findings = [*formed(compare(recorded, again, changed, salted))]
    return [*findings, *formed(_answered(point, fresh, changed))], changed


def result(run: Path, place: str = "") -> dict[str, Any]:
    """`result.json` with the turns of a chat and the steps of a loop. place: stands for the folder of the run, since a
    second run lies elsewhere."""
    made = read(run / "result.json")
    folder = made.get("folder")
    if place and isinstance(folder, str) and folder:
        made = json.loads(
            json.dumps(made).replace(json.dumps(folder)[1:-1], json.dumps(place)[1:-1])
        )
    for key, file in FILES.items():
        if rows := read(run / file, list):
            made[key] = rows
    return dict(made)


def _answered(point: Path, fresh: Path, changed: list[dict[str, Any]]) -> Iterator[Finding]:
    was, now = evaluation.evaluation(point), evaluation.evaluation(fresh)
    if was and now:
        yield from evaluation.differences(was, now, not any(c["decisive"] for c in changed))


def rounded(point: Path, fresh: Path, changed: list[dict[str, Any]]) -> bool:
    """Whether the second run was elsewhere and computed other bits than the record's snapshot holds."""
    if not any(c["decisive"] for c in changed):
        return False
    with suppress(*FORMLESS):  # which `reproduced` names
        was, now = evaluation.evaluation(point), evaluation.evaluation(fresh)
        if was and now:
            return evaluation.apart(was, now)
    one, two = (read(p / "result.json") for p in (point, fresh))
    places = [place_of(p, r) for p, r in ((point, one), (fresh, two))]
    digests = [{e["name"]: e["digest"] for e in r.get("elements") or []} for r in (one, two)]
    return None not in places and places[0] != places[1] and digests[0] != digests[1]


def floors(
    cfg: Config, points: dict[Path, Path], folder: Path, root: Path
) -> dict[Path, tuple[list[Finding], dict[str, str]]]:
    """Keys, values and logits of each record and its second run (`points`), or their answers, number by
    number, within a floor that a third run in another precision measures; and what it leaves out."""
    third = rerun(cfg, list(points), folder, root, "precision")
    judged: dict[Path, tuple[list[Finding], dict[str, str]]] = {}
    for point, fresh in points.items():
        left: dict[str, str] = {}
        judged[point] = [*formed(_floored(point, fresh, third[point], left))], left
    return judged


def _floored(point: Path, fresh: Path, third: Path, left: dict[str, str]) -> Iterator[Finding]:
    was, now = evaluation.evaluation(point), evaluation.evaluation(fresh)
    if was and now:
        found, ties = evaluation.rounding(was, now, evaluation.evaluation(third))
        left |= ties
        yield from found
        return
    ours, again = _state(point), _state(fresh)
    if ours is None or again is None:
        yield Finding("snapshot", "a snapshot", "none", "there is none to compare")
        return
    yield from rounding.compare(ours, again, _state(third))[0]


def _state(run: Path) -> State | None:
    """The state that a run kept; None where there is none that can be read."""
    place = place_of(run, read(run / "result.json"))
    try:
        return store.load(place)[0] if place else None
    except HarnessError:
        return None


def search_path() -> str:
    """`PYTHONPATH` with which the fresh process runs this very package."""
    here = str(Path(configs.__file__).resolve().parents[2])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
