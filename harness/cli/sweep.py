"""A sweep around Hydra's multirun: how far it is, which points are done, and its summary.

Everything is read from the job folders, so it holds for any launcher, in this process or not.
"""

import fcntl
import os
import shlex
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import Any

from harness import config, interrupt, process
from harness.cli import lines, point, remote, resume, search, slurm
from harness.cli.done import failed, finished, sealed, written
from harness.config import aliases, check_typed, jobs
from harness.config.launched import primary_of
from harness.config.literal import spelled
from harness.errors import ConfigProblem, DiskFull, HarnessError, disk_is_full, printable
from harness.snapshot.objective import objectives

TOLD = ".told"  # in a sweep's folder while it runs: one character for each point that was told

UNWATCHED = (
    "this configuration has no hydra.callbacks.sweep, which the harness itself needs to know where a record goes. "
    "Leave hydra.callbacks as it is, and call yours otherwise: hydra.callbacks.mine._target_"
)


class Unbegun(BaseException):
    """Why a sweep or a run is not begun. No Exception: of one that a callback raises Hydra makes a warning."""


class Ended(BaseException):
    """What ends the command from inside of a job. No Exception: before it raises one that a job raised, Hydra prints a
    line of its own."""

    def __init__(self, problem: Exception):
        self.problem = problem


@contextmanager
def plain() -> Iterator[None]:
    """What a job inside the block `Ended` with is raised by itself."""
    try:
        yield
        return
    except Ended as end:
        problem = end.problem
    raise problem


@contextmanager
def _unbegun() -> Iterator[None]:
    """What forbids to begin ends the command, whoever called."""
    try:
        yield
    except HarnessError as problem:
        raise Unbegun(str(problem)) from None


def _stays(config: Any) -> None:
    """Raise ConfigProblem where a job is to leave the directory in which its command was typed."""
    if config.hydra.job.get("chdir"):
        raise ConfigProblem(
            "hydra.job.chdir=true is not possible: runs_dir, out, snapshot and model.path mean a place seen from "
            "where the command was typed. A run's own folder is ${hydra:runtime.output_dir}."
        )


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
    keep: Callable[
        [], None
    ]  # puts back what the sweep was asked before, where it had nothing to do
    sign: str | None = None  # private key that signs the sweep's table
    shared: frozenset[str] = frozenset()  # overrides that no point varies
    overrides: tuple[str, ...] = ()  # the sweep's overrides as typed; none in a single run
    tracked: Any = None  # the sweep's configuration, until its parent run is asked for
    worker: bool = False  # of a launcher: what goes on elsewhere is not shown here
    job: tuple[Path, bool, list[str]] = (Path(), False, [])
    fresh: bool = False  # the single run's directory is new, so it may be removed again

    @classmethod
    def forget(cls) -> None:
        """Before a command: nothing has begun yet."""
        cls.folder, cls.total, cls.first, cls.fresh, cls.overrides = None, None, None, False, ()
        cls.sign = cls.tracked = cls.aim = None
        cls.job = (Path(), False, [])

    def on_multirun_start(self, config: Any, **_: Any) -> None:
        from omegaconf.errors import OmegaConfBaseException

        from harness.cli.composition import compose_once

        try:
            folder = Path(str(config.hydra.sweep.dir)).absolute()
        except OmegaConfBaseException:
            return  # Hydra says it once more, and we once
        with _unbegun():
            _stays(config)
            search.check(config)
            resume.check_place(folder, "hydra.sweep.dir")
            varied = None if search.of(config) else point.params(config)
            resume.check(folder, point.typed(config), varied, config.runs_dir)
        Watch.keep = resume.keep(folder, point.typed(config))
        Watch.folder, Watch.began = folder, time.time()
        Watch.done, Watch.failed = {}, failed(folder)
        _count(folder)
        Watch.shared = frozenset(map(spelled, point.typed(config)))
        seed = search.seeded(config)
        Watch.overrides, Watch.sign, Watch.tracked = point.swept(config), config.get("sign"), config
        Watch.total = None if search.of(config) else jobs(list(Watch.overrides))
        Watch.aim, Watch.there = Watch.total or search.trials(config), len(Watch.done)
        (Watch.folder / TOLD).unlink(missing_ok=True)
        said = lines.begun(config, Watch.overrides, Watch.total, Watch.there, folder, seed)
        compose_once(config, folder, not Watch.there, Watch.total, said)
        if remote.queued(config, "Slurm"):
            slurm.answer_from_queue()
        if remote.queued(config):  # what its jobs say goes to their own logs
            remote.begin(partial(_count, Watch.folder), Watch.total)
        if search.of(config):
            search.quieten()
        if not search.of_grid(config):
            point.of_sweep(config, Watch.folder)
        encrypt = config.get("encrypt")
        secret = bool(encrypt or config.get("decrypt")) and encrypt != "none"
        point.closed(Watch.folder, secret)

    def on_job_start(self, config: Any, **_: Any) -> None:
        hydra = config.hydra
        folder, sweep = Path(hydra.runtime.output_dir), hydra.mode.name == "MULTIRUN"
        Watch.job = (folder, sweep, point.typed(config))

    def on_run_start(self, config: Any, **_: Any) -> None:
        from omegaconf.errors import OmegaConfBaseException

        with suppress(OmegaConfBaseException):  # Hydra says it once more, and we once
            folder = Path(str(config.hydra.run.dir)).absolute()
            Watch.job, Watch.fresh = (folder, False, []), not folder.exists()
            with _unbegun():
                _stays(config)
                check_typed(point.typed(config), config.hydra.runtime.choices)
                resume.check_place(folder, "hydra.run.dir")
                resume.check_apart(folder)
                resume.check_run(folder, point.typed(config), primary_of(config.hydra))
            if keys := ", ".join(point.params(config)):
                print(
                    f"note: this config sweeps {keys}; add -m to run the sweep (running a single point now)",
                    file=sys.stderr,
                )

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
        try:
            return self._watched(cfg)
        except Exception as problem:
            if Watch.worker:  # only such a one is brought back from there
                raise
            raise Ended(problem) from None

    def _watched(self, cfg: Any) -> Any:
        _begun(cfg)
        folder, sweep, overrides = Watch.job
        if folder == Path():  # nobody said where: not into the working directory
            raise ConfigProblem(UNWATCHED)
        try:
            with point.alone(folder) if sweep else nullcontext():
                return self._run(cfg, folder, sweep, overrides)
        except Exception as problem:
            if sweep and disk_is_full(problem):
                why = f"\n{problem}" if isinstance(problem, HarnessError) else ""
                raise DiskFull(f"No space left on the disk{left()}{why}") from problem
            raise

    def _run(self, cfg: Any, folder: Path, sweep: bool, overrides: list[str]) -> Any:
        from hydra.core.hydra_config import HydraConfig

        from harness.task import dispatch

        cfg = aliases.applied(cfg, HydraConfig.get().runtime.choices)
        wanted = list(cfg.get("report", {}).get("objectives") or [])
        if sweep:  # two points may be given one folder, and only they say so
            if folder.parent != Watch.folder:
                raise ConfigProblem(
                    f"hydra.sweep.subdir puts a point in {folder}: give a name without '/', a folder right below the sweep's."
                )
            resume.check_run(folder, overrides, primary_of(HydraConfig.get()))
        if sweep and (kept := point.kept(cfg, folder)):
            return search.answer(folder, wanted) if wanted else kept
        point.of_point(cfg, folder)
        start = time.perf_counter()
        with _present(overrides) if sweep else nullcontext() as passing:
            settings = partial(config.typed, cfg, swept=sweep)
            outcome = dispatch(settings, folder, sweep, Watch.fresh, passing)
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
        track.begin_sweep(settings.track, settings.runs_dir, Watch.folder, Watch.began, Watch.aim)


def _revive(token: str, state: dict[str, Any], typed: list[str]) -> Job:
    process.patient()
    interrupt.remembered()
    Watch.worker = True
    sys.argv = typed  # the record names the command that was typed, not the worker's own
    for key, value in state.items():
        setattr(Watch, key, value)
    config.register(token)
    return Job(token)


def _count(folder: Path) -> int:
    """How many points are finished, those left out that run again. Asked after each of them, so only the
    others are looked at."""
    names = {entry.name for entry in os.scandir(folder)} if folder.is_dir() else set()
    there = {n: w for n in names - Watch.done.keys() if (w := written(folder / n))}
    new = {n: sealed(folder / n) or w for n, w in there.items() if w != Watch.failed.get(n)}
    Watch.done = {n: when for n, when in Watch.done.items() if n in names} | new
    return len(Watch.done)


def lost(problem: Exception) -> str | None:
    """One plain message for what a launcher raised in a sweep; None outside of one.

    Jobs report their own failures, so this is the launcher's: a worker that was killed, a cluster
    that is not there. Its traceback goes to `launcher.log` in the sweep's directory.
    """
    folder = Watch.folder
    if folder is None or not (folder / "multirun.yaml").is_file():
        return None
    from harness.present.sweep import again

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
    finished_points = f"{done - len(failed(folder))}{total} points are finished{table}"
    return f"; {finished_points}. Go on with: python -m harness -m resume={shlex.quote(str(place))}"


def _tell(outcome: Any, name: str, overrides: list[str], seconds: float, told: Any) -> None:
    """One line per point (see `lines.point`); from the second on with the time that the rest will take at
    the pace since the first, which imports and compiles."""
    from harness.report.terminal.bar import span

    with _next() as done:
        count, left = f"{done}", ""
        if Watch.aim:
            count = f"{done:>{len(str(Watch.aim))}}/{Watch.aim}"
            began, counted = Watch.first = Watch.first or (time.monotonic(), done)
            if counted < done < Watch.aim:
                pace = (time.monotonic() - began) / (done - counted)
                left = f", {span(pace * (Watch.aim - done))} left"
        line = lines.point(outcome, name, _varied(overrides), f"{seconds:4.1f} s{left:<14}", told)
        print(printable(f"[{count}] {line}", layout=True), flush=True)


def _varied(overrides: list[str]) -> list[str]:
    """The overrides of a point that its sweep varies."""
    return [o for o in overrides if spelled(o) not in Watch.shared]


def _present(overrides: list[str]) -> AbstractContextManager[Any]:
    """The line of the point that is made now; a launcher's workers have none, their terminal is another's."""
    assert Watch.folder is not None
    if Watch.worker:
        return nullcontext()
    told = Watch.folder / TOLD
    number = Watch.there + (told.stat().st_size if told.is_file() else 0) + 1
    return lines.present(number, Watch.aim, _varied(overrides))


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
