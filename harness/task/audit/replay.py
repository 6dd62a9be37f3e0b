"""The second run of a record, in a fresh process, and what of it is not as recorded."""

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
from harness.pipeline.evaluation.record import Evaluation
from harness.save import store
from harness.snapshot import record as records
from harness.snapshot.result import UNJUDGED, write_json
from harness.snapshot.state import State
from harness.task.audit import derivation, evaluation, places, rounding
from harness.task.audit.difference import FORMLESS, compare, formed, since, traces, turns
from harness.task.audit.evidence import place_of, read, sealed
from harness.task.audit.finding import Finding

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


def reproduced(point: Path, fresh: Path) -> tuple[list[Finding], list[dict[str, Any]]]:
    """The differences between a record and its second run, and what changed in the environment."""
    recorded, again = read(point / "result.json"), read(fresh / "result.json")
    if not isinstance(recorded.get("environment") or {}, dict):
        recorded = {**recorded, "environment": {}}  # named by what it lacks
    changed = since(recorded, again)  # of a second run that cannot say where it ran, nothing
    if not recorded:
        return [], changed  # the missing result is already named
    said = turns(*(read(p / "chat.json", list) for p in (point, fresh)))
    salted = sealed(place_of(point, recorded))
    decisive = any(c["decisive"] for c in changed)
    was, now = (read(p / "trace.json", list) for p in (point, fresh))
    steps = traces(was, now, decisive)
    wanted = (read(point / records.NAME).get("config") or {}).get("device")
    answers = answered(point, fresh, not decisive)
    findings = [*formed(compare(recorded, again, changed, salted)), *formed(said), *formed(steps)]
    findings += formed(answers)
    named = {f.what for f in findings}
    findings += [f for f in formed(derivation.machine(recorded, wanted)) if f.what not in named]
    return [*findings, *formed(derivation.page(point, recorded))], changed


def _evaluation(run: Path) -> Evaluation | None:
    """What a run of task=evaluate left; None of another task, and of one that came to no end."""
    result = read(run / "result.json")
    ended = result.get("task") == "evaluate" and "stages" not in result
    return Evaluation.read(result, run.joinpath) if ended else None


def answered(point: Path, fresh: Path, exact: bool) -> Iterator[Finding]:
    """What of an evaluation's answers and table is not as in its second run."""
    was, now = _evaluation(point), _evaluation(fresh)
    if was and now:
        yield from evaluation.differences(was, now, exact)


def rounded(point: Path, fresh: Path, changed: list[dict[str, Any]]) -> bool:
    """Whether the second run was elsewhere and computed other bits than the record's snapshot holds."""
    if not any(c["decisive"] for c in changed):
        return False
    with suppress(*FORMLESS):  # which `reproduced` names
        was, now = _evaluation(point), _evaluation(fresh)
        if was and now:
            return evaluation.apart(was, now)
    one, two = (read(p / "result.json") for p in (point, fresh))
    places = [place_of(p, r) for p, r in ((point, one), (fresh, two))]
    digests = [{e["name"]: e["digest"] for e in r.get("elements") or []} for r in (one, two)]
    return None not in places and places[0] != places[1] and digests[0] != digests[1]


def floors(
    cfg: Config, points: dict[Path, Path], folder: Path, root: Path
) -> dict[Path, tuple[list[Finding], dict[str, float], dict[str, str]]]:
    """Keys, values and logits of each record and its second run (`points`), or their answers, number by
    number, within a floor that a third run in another precision measures; what it leaves out."""
    third = rerun(cfg, list(points), folder, root, "precision")
    judged: dict[Path, tuple[list[Finding], dict[str, float], dict[str, str]]] = {}
    for point, fresh in points.items():
        was, now = _evaluation(point), _evaluation(fresh)
        if was and now:
            judged[point] = [], {}, {}
            with suppress(*FORMLESS):  # which `reproduced` names
                judged[point] = evaluation.rounding(was, now, _evaluation(third[point]))
            continue
        ours, again, other = (_state(p) for p in (point, fresh, third[point]))
        if ours is None or again is None:
            gone = Finding("snapshot", "a snapshot", "none to compare", "it was not written again")
            judged[point] = ([gone], {}, {})
        else:
            judged[point] = (*rounding.compare(ours, again, other), {})
    return judged


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
