"""One story per task. `dispatch` runs the one that the configuration names."""

import logging
import sys
import traceback
from collections.abc import Callable
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from harness import blame, extras, interrupt, variants
from harness.config import options as task_options
from harness.config import tracking
from harness.config.place import check as check_places
from harness.errors import ConfigProblem, HarnessError, TooLong, disk_is_full, suggestion
from harness.pipeline import failure
from harness.report.terminal.console import Say
from harness.report.terminal.point import Passing
from harness.results import metric
from harness.save.access import using

BENCHES = {"restore_bench": "bench", "format_bench": "bench"}  # settings of one task
UNTRACKED = ("inspect", "verify", "ui")  # they leave nothing on a tracking server
CLEAR = (
    "harness: encrypt= covers snapshots. The record in {} (.hydra, result.json, record.json, report.html, "
    "a sweep's table) and a tracking server hold the prompt and what was said in clear, the files for your "
    "eyes only. Put runs_dir= on an encrypted disk and use track=none, or delete the record afterwards."
)


def names() -> list[str]:
    """Every task: one YAML under `conf/task/` and, beside this, one file with `run` (one for all benches)."""
    return task_options("task")


def dispatch(
    configure: Callable[[], Any],
    folder: Path,
    sweep: bool,
    fresh: bool = False,
    passing: Passing | None = None,
) -> Any:
    """Run the task of the configuration that `configure` returns; return its Outcome.

    An expected failure is one message and an exit code: no traceback, nothing half-written. What goes
    wrong in a variant of the user's own is an input that cannot be used (2), any other surprise a fault of
    ours (1). A failed point of a sweep leaves a `result.json` with its reason. fresh: `folder` is this
    job's own and may be removed. passing: where a point of a sweep shows its progress. Raises Stopped, saying what is left, when the job is told to end; a point
    of a sweep raises what a full disk made of it.
    """
    from harness.pipeline.finish import Outcome, shown
    from harness.report.terminal.console import Say

    say, cfg, before = Say(sweep, passing), None, None
    folder.mkdir(parents=True, exist_ok=True)
    with suppress(PermissionError):  # somebody else's, who has opened it to this user
        folder.chmod(0o700)  # its record holds the prompt
    try:
        cfg = configure()
        variants.trust(cfg.plugins.trust, cfg.plugins.path)
        before = failure.stamp(cfg)
        if cfg.task.name not in names():
            near = suggestion(cfg.task.name, names())
            raise ConfigProblem(f"task={cfg.task.name} is not a task.{near}")
        extras.for_job(cfg)
        metric.measure(cfg.compare.metrics)
        check_places(cfg)
        variants.check_chosen(cfg)
        if not sweep and (folder / "result.json").is_file():
            say.note(f"{shown(folder)} has this run already; its record is replaced")
        _log_to(folder)
        where = tracking.told(cfg.track.name, cfg.track.uri, cfg.track.experiment)
        if where and cfg.task.name not in UNTRACKED:
            say.note(where)
        limit = interrupt.limited(cfg.limit_s, TooLong(cfg.limit_s or 0))
        with limit, using(cfg) as access, say.watched():
            if access.encrypt and not say.quiet:
                say.problem(CLEAR.format(shown(folder)))
            return _story(cfg.task.name, say).run(cfg, folder, say)
    except HarnessError as problem:
        if (
            sweep and interrupt.stopped()
        ):  # what a library made of Ctrl-C in its middle is no fault of this point
            with interrupt.held():
                say.broken()
            raise interrupt.Stopped("") from None
        if sweep and disk_is_full(problem):
            raise
        if not sweep:  # whose line of this point says it
            say.problem(f"harness: {problem}")
            if kept := say.kept():
                say.problem(f"kept: {kept}.")
        verdict = "refused" if problem.exit_code == 3 else "failed"
        if sweep or problem.exit_code != 2 or not fresh:
            failure.record_failure(cfg, folder, verdict, problem, say)
        else:
            _log_to(None)  # what is logged from now on would look for the folder again
            failure.remove(folder)
        return Outcome(problem.exit_code, verdict, str(folder), str(problem))
    except (Exception, KeyboardInterrupt) as problem:
        if isinstance(problem, KeyboardInterrupt) or interrupt.stopped():
            with interrupt.held():
                say.broken()
                said = (
                    ""
                    if sweep
                    else failure.left_behind(cfg, folder, say.what, before, fresh, say.kept())
                )
            raise interrupt.Stopped(said) from None
        if sweep and disk_is_full(problem):
            raise
        with suppress(OSError):
            (folder / "harness.log").open("a").write(traceback.format_exc())
        said = f"unexpected {type(problem).__name__}: {problem}{blame.meant(problem)}"
        whose = blame.author(problem) or blame.installation(problem)
        fault = f"It came from {whose}" if whose else "This is a fault of the harness"
        place = f"{fault}\nThe details are in {folder / 'harness.log'}."
        if not sweep:
            say.problem(f"harness: {said}\n{place}")
            if kept := say.kept():
                say.problem(f"kept: {kept}.")
        failure.record_failure(cfg, folder, "failed", problem, say, place)
        return Outcome(failure.exit_code(problem), "failed", str(folder), f"{said}. {place}")


def _story(name: str, say: Say) -> Any:
    """The module of a task. What torch takes to import is said by name, once."""
    if "torch" not in sys.modules:
        say.stage("torch")
        say.done(str(import_module("torch").__version__))
    return import_module(f"harness.task.{BENCHES.get(name, name)}")


def _log_to(folder: Path | None) -> None:
    """Stages and libraries' warnings go to the run's own log, not to the console; nowhere without a folder.
    With `hydra.verbose=true`, which lowers the level, what else libraries tell goes there too."""
    logging.raiseExceptions = False  # a log on a full disk is no news: who needs the disk says it
    root = logging.getLogger()
    for old in list(root.handlers):
        root.removeHandler(old)
        old.close()
    handler: logging.Handler = logging.NullHandler()
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        handler = logging.FileHandler(folder / "harness.log", encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root.addHandler(handler)
    root.setLevel(min(root.level or logging.INFO, logging.INFO))
    logging.getLogger("numba").setLevel(logging.INFO)  # 38,000 lines of byte code for a kernel
    logging.captureWarnings(True)
