"""A sweep around Hydra's multirun: how far it is, which points are done, and its summary.

Everything is read from the job folders, so it holds for any launcher, in this process or not.
"""

import fcntl
import json
import os
import shlex
import sys
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from harness import config, interrupt, process
from harness.cli import afar, lines, point, resume, search, slurm
from harness.config import jobs
from harness.config.literal import spelled
from harness.errors import DiskFull, HarnessError, disk_is_full
from harness.snapshot.objective import objectives

TOLD = ".told"  # in a sweep's folder while it runs: one character for each point that was told


class Unbegun(BaseException):
    """Why a sweep is not begun. No Exception: of one that a callback raises Hydra makes a warning."""


class Watch:
    """Hydra's callback: where the sweep is, and which job comes next. One per process."""

    folder: Path | None = None  # of the sweep; None in a single run
    total: int | None = None
    aim: int | None = None  # as many points are told: the total, the trials of a search
    began: float = 0.0
    there: int = 0  # points that were finished when it began
    first: tuple[float, int] | None = None  # when one was seen finished, and how many were
    done: dict[str, int] = {}  # folders of points that this process knows to be finished, and when
    failed: dict[str, int] = {}  # those that failed before, which run again, and when they did
    sign: str | None = None  # private key that signs the sweep's table
    shared: frozenset[str] = frozenset()  # overrides that no point varies
    overrides: tuple[str, ...] = ()  # the sweep's overrides as typed; none in a single run
    tracked: Any = None  # the sweep's configuration, until its parent run is asked for
    job: tuple[Path, bool, list[str]] = (Path(), False, [])
    fresh: bool = False  # the single run's directory is new, so it may be removed again

    @classmethod
    def forget(cls) -> None:
        """Before a command: nothing has begun yet."""
        cls.folder, cls.total, cls.first, cls.fresh, cls.overrides = None, None, None, False, ()
        cls.sign = cls.tracked = cls.aim = None

    def on_multirun_start(self, config: Any, **_: Any) -> None:
        from harness.cli.composition import compose_once

        folder = Path(str(config.hydra.sweep.dir)).absolute()
        try:
            search.check(config)
            resume.check(folder, _typed(config))
        except HarnessError as problem:
            raise Unbegun(str(problem)) from None
        Watch.folder, Watch.began = folder, time.time()
        Watch.done, Watch.failed = {}, _failed(folder)
        _count(folder)
        Watch.shared = frozenset(map(spelled, _typed(config)))
        seed = search.seeded(config)
        Watch.overrides, Watch.sign, Watch.tracked = _overrides(config), config.get("sign"), config
        compose_once(Watch.overrides, folder)
        Watch.total = None if search.of(config) else jobs(list(Watch.overrides))
        Watch.aim, Watch.there = Watch.total or search.trials(config), len(Watch.done)
        (Watch.folder / TOLD).unlink(missing_ok=True)
        said = lines.heading(config, Watch.overrides, Watch.total, Watch.there, folder)
        print("\n".join([said, *lines.drawn(seed)]), flush=True)
        launcher = str(config.hydra.runtime.choices.get("hydra/launcher"))
        if launcher.startswith("submitit_slurm"):
            slurm.answer_from_queue()
        if launcher.startswith("submitit"):  # what its jobs say goes to their own logs
            afar.begin(partial(_count, Watch.folder), Watch.total)
        if search.of(config):
            search.quieten()
        if not str(config.hydra.sweeper.get("_target_")).endswith("BasicSweeper"):
            point.of_sweep(config, Watch.folder)
        encrypt = config.get("encrypt")
        if (encrypt or config.get("decrypt")) and encrypt != "none":
            _closed(Watch.folder)

    def on_job_start(self, config: Any, **_: Any) -> None:
        hydra = config.hydra
        folder, sweep = Path(hydra.runtime.output_dir), hydra.mode.name == "MULTIRUN"
        Watch.job = (folder, sweep, _typed(config))

    def on_run_start(self, config: Any, **_: Any) -> None:
        folder = Path(str(config.hydra.run.dir)).absolute()
        Watch.job, Watch.fresh = (folder, False, []), not folder.exists()

    def on_job_end(self, **_: Any) -> None: ...

    on_run_end = on_multirun_end = on_job_end


class Job:
    """What Hydra calls per point. Travels to a launcher's workers with all that it needs there."""

    def __init__(self, token: str):
        self.token = token
        self.outcomes: list[Any] = []

    def __call__(self, cfg: Any) -> Any:
        """Expected failures become an Outcome; in a sweep the others go on."""
        interrupt.check()
        _begun(cfg)
        folder, sweep, overrides = Watch.job
        try:
            with point.alone(folder) if sweep else nullcontext():
                return self._run(cfg, folder, sweep, overrides)
        except Exception as problem:
            if sweep and disk_is_full(problem):
                why = f"\n{problem}" if isinstance(problem, HarnessError) else ""
                raise DiskFull(f"No space left on the disk{left()}{why}") from problem
            raise

    def _run(self, cfg: Any, folder: Path, sweep: bool, overrides: list[str]) -> Any:
        from harness.task import dispatch

        wanted = list(cfg.get("report", {}).get("objectives") or [])
        if sweep and (kept := _kept(cfg, folder)):
            return search.answer(folder, wanted) if wanted else kept
        if not sweep:
            resume.check_run(folder, overrides)
        point.of_point(cfg, folder)
        start = time.perf_counter()
        outcome = dispatch(lambda: config.typed(cfg, Watch.overrides), folder, sweep, Watch.fresh)
        self.outcomes.append(outcome)
        if sweep:
            told = dict(zip(wanted, objectives(folder, wanted)))
            _tell(outcome, folder.name, overrides, time.perf_counter() - start, told)
            return search.answer(folder, wanted) if wanted else outcome
        return outcome

    def __reduce__(self) -> Any:
        _begun()  # by the process that hands it to its workers
        state = ("folder", "aim", "total", "began", "there", "shared", "overrides", "failed")
        return _revive, (self.token, {key: getattr(Watch, key) for key in state}, sys.argv)


def _begun(point: Any = None) -> None:
    """The sweep's parent run, once, where the sweep was begun: its first point that is tracked begins."""
    from harness import task, track

    tracked = point is None or point.task.name not in task.UNTRACKED
    if tracked and (settings := Watch.tracked) is not None and Watch.folder is not None:
        Watch.tracked = None
        track.begin_sweep(settings.track, settings.runs_dir, Watch.folder, Watch.began)


def _revive(token: str, state: dict[str, Any], typed: list[str]) -> Job:
    process.patient()
    interrupt.remembered()
    sys.argv = typed  # the record names the command that was typed, not the worker's own
    for key, value in state.items():
        setattr(Watch, key, value)
    config.register(token)
    return Job(token)


def _closed(folder: Path) -> None:
    """Nobody else may look into the folder of a sweep whose snapshots are encrypted: its table and its
    configuration hold the prompt. Says so once, since its points say nothing."""
    from harness.pipeline.finish import shown
    from harness.task import CLEAR

    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    print(CLEAR.format(shown(folder)), file=sys.stderr, flush=True)


def finished(folder: Path) -> list[Path]:
    """The point folders with a complete record, in order."""
    points = folder.iterdir() if folder.is_dir() else ()
    done = [point for point in points if (point / "result.json").is_file()]
    return sorted(done, key=lambda point: (len(point.name), point.name))


def _count(folder: Path) -> int:
    """How many points are finished, those left out that run again. Asked after each of them, so only the
    others are looked at."""
    names = {entry.name for entry in os.scandir(folder)} if folder.is_dir() else set()
    written = {n: w for n in names - Watch.done.keys() if (w := _written(folder / n))}
    new = {n: _sealed(folder / n) or w for n, w in written.items() if w != Watch.failed.get(n)}
    Watch.done = {n: when for n, when in Watch.done.items() if n in names} | new
    return len(Watch.done)


def _sealed(point: Path) -> int | None:
    """When a point was sealed; what is done with it later does not change that."""
    seal = point / "record.json"
    return seal.stat().st_mtime_ns if seal.is_file() else None


def ended(point: Path) -> float:
    """When a finished point came to its end, in seconds: what is uploaded later does not change its seal."""
    seal = point / "record.json"
    return (seal if seal.is_file() else point / "result.json").stat().st_ctime


def _written(point: Path) -> int | None:
    """When a point came to its end; None for one that has not."""
    result = point / "result.json"
    return result.stat().st_mtime_ns if result.is_file() else None


def _failed(folder: Path) -> dict[str, int]:
    """The points that failed, or that nothing seals, and when."""
    failed = (
        p
        for p in finished(folder)
        if read_key(p / "result.json", "verdict") == "failed" or not (p / "record.json").is_file()
    )
    return {p.name: _written(p) or 0 for p in failed}


def read_key(file: Path, key: str) -> Any:
    """One value of a JSON file; None where it has none. The id of `record.json` is a point's seal, and one
    that was refused before it ran may have none."""
    try:
        return json.loads(file.read_text("utf-8")).get(key)
    except (OSError, ValueError):
        return None


def lost(problem: Exception) -> str | None:
    """One plain message for what a launcher raised in a sweep; None outside of one.

    Jobs report their own failures, so this is the launcher's: a worker that was killed, a cluster
    that is not there. Its traceback goes to `launcher.log` in the sweep's directory.
    """
    folder = Watch.folder
    if folder is None or not (folder / "multirun.yaml").is_file():
        return None
    from harness.report.summary import again

    if search.fruitless(problem):
        return (
            "the search came to nothing: no point has its report.objectives. Each says why above."
        )
    log = folder / "launcher.log"
    log.write_text("".join(traceback.format_exception(problem)), "utf-8")
    first = (str(problem).strip() or "no reason given").splitlines()[0]
    return (
        f"the launcher failed with {type(problem).__name__}: {first}\n"
        f"What was finished is kept, details are in {log}. Workers that still run finish their "
        f"points; then run what is missing with `{again(folder)}`."
    )


def left() -> str:
    """What there is when a job was told to end outside its task, as the rest of a sentence.

    A single run that had not begun leaves nothing; a sweep keeps its finished points.
    """
    from harness.pipeline import failure

    folder, (run, _, _) = Watch.folder, Watch.job
    if folder is None:
        if (run / "result.json").exists():
            return f" when all was done; the result is in {run}."
        if Watch.fresh:
            failure.remove(run)
        return " before anything was done; nothing was written."
    if not (folder / "multirun.yaml").is_file():
        return " before the sweep began; nothing was written."
    place = folder.relative_to(Path.cwd()) if folder.is_relative_to(Path.cwd()) else folder
    done, total = len(finished(folder)), f" of {Watch.total}" if Watch.total else ""
    table = f" ({place}/sweep.csv)" if (folder / "sweep.csv").is_file() else ""
    finished_points = f"{done - len(_failed(folder))}{total} points are finished{table}"
    return f"; {finished_points}. Go on with: python -m harness -m resume={shlex.quote(str(place))}"


def _kept(cfg: Any, folder: Path) -> Any:
    """The outcome of a point that an earlier session finished with this very configuration."""
    from harness.pipeline.finish import Outcome

    try:
        recorded = json.loads((folder / "record.json").read_text("utf-8"))["config"]
        result = json.loads((folder / "result.json").read_text("utf-8"))
        wanted = config.typed(cfg, Watch.overrides)
    except (OSError, ValueError, KeyError, HarnessError):
        return None
    if result["verdict"] == "failed" or not same(wanted, recorded):
        return None
    return Outcome(result.get("exit_code", 0), result["verdict"], str(folder), result["reason"])


def same(cfg: config.Config, recorded: dict[str, Any]) -> bool:
    """Whether a sealed configuration is this one."""
    now = json.loads(json.dumps(asdict(cfg)))
    for key in ("report", "limit_s", "track"):  # shown, allowed, sent: none of it is measured
        now.pop(key, None), recorded.pop(key, None)
    return now == recorded


def _overrides(cfg: Any) -> tuple[str, ...]:
    """Every override of a sweep, those that the sweeper's own configuration adds too."""
    typed = _typed(cfg)
    replaced = {o.lstrip("+").partition("=")[0] for o in typed}
    params = (cfg.hydra.sweeper.get("params") or {}).items()
    return (*(f"{k}={v}" for k, v in params if k not in replaced), *typed)


def _typed(cfg: Any) -> list[str]:
    """The task's overrides in Hydra's words: a text that travels as base64 is not resolved."""
    from omegaconf import OmegaConf

    return list(map(str, OmegaConf.to_container(cfg.hydra.overrides.task, resolve=False)))


def _tell(outcome: Any, name: str, overrides: list[str], seconds: float, told: Any) -> None:
    """One line per point (see `lines.point`); from the second on with the time that the rest will take at
    the pace since the first, which imports and compiles."""
    from harness.report.bar import span

    varied = [o for o in overrides if spelled(o) not in Watch.shared]
    with _next() as done:
        count, left = f"{done}", ""
        if Watch.aim:
            count = f"{done:>{len(str(Watch.aim))}}/{Watch.aim}"
            began, counted = Watch.first = Watch.first or (time.monotonic(), done)
            if counted < done < Watch.aim:
                pace = (time.monotonic() - began) / (done - counted)
                left = f", {span(pace * (Watch.aim - done))} left"
        line = lines.point(outcome, name, varied, f"{seconds:4.1f} s{left:<14}", told)
        print(f"[{count}] {line}", flush=True)


@contextmanager
def _next() -> Iterator[int]:
    """The number of the point that is told now, by whichever worker: nobody else tells one meanwhile. A disk
    that knows no locks is taken as it is."""
    assert Watch.folder is not None
    with (Watch.folder / TOLD).open("a") as tally:
        with suppress(OSError):
            fcntl.flock(tally, fcntl.LOCK_EX)
        tally.write(".")
        tally.flush()
        yield Watch.there + os.fstat(tally.fileno()).st_size
