"""Compose the configuration, dispatch to the task, end with the right exit code."""

import os
import sys

from harness import interrupt, process
from harness.errors import DiskFull

os.environ.setdefault("MLFLOW_DISABLE_TELEMETRY", "true")
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
# idle threads sleep: where others use the cores too, spinning ones make a decode step 15 times slower
os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")


def main() -> int:
    """Run one job or a sweep; return the exit code. Ctrl-C and `kill` end it cleanly: 130 and 143."""
    with interrupt.listening():
        try:
            return _run(sys.argv[1:])
        except KeyboardInterrupt as stop:
            return _fail(f"{interrupt.word()}{_kept(stop)}", interrupt.code())
        except DiskFull as stop:
            return _fail(str(stop), 2)
        except ModuleNotFoundError as problem:
            if not (said := process.lacking(problem)):
                raise
            return _fail(said, 2)


def command() -> None:
    """The installed command: `main`, then the end of the process, which nothing disturbs any more."""
    process.begin()
    code = main()
    interrupt.deaf()
    process.leave(code)


def _run(argv: list[str]) -> int:
    from harness import config, extras
    from harness.cli import arguments, help, verbs
    from harness.errors import HarnessError

    if {"-h", "--help"} & set(argv):
        try:
            arguments.check_folder(argv)
            text = (
                verbs.help(argv[0])
                if argv[0] in verbs.VERBS
                else help.show(config.conf_dir(), argv)
            )
        except HarnessError as problem:
            return _fail(str(problem), problem.exit_code)
        print(text, flush=True)
        return 0
    if "--version" in argv or (argv[:1] and argv[0] in verbs.VERBS):
        return _verb(argv)
    from harness.cli import point, resume, summary, sweep

    sweep.Watch.forget()
    os.environ["HYDRA_FULL_ERROR"] = "1"  # so that errors reach us instead of being printed
    try:
        import hydra

        arguments.check_flags(argv)
        arguments.check_trust(argv)
        if (said := resume.delivered(argv)) is not None:
            print(said)
            return 0
        argv = arguments.ordered(arguments.unplussed(argv))
        sys.argv[1:] = argv = resume.resumed(arguments.literal_text(argv))
        extras.for_launcher(argv)
        job = sweep.Job(config.register())
        app = hydra.main(
            version_base="1.3", config_path=str(config.conf_dir()), config_name="config"
        )
        try:
            with sweep.plain():
                app(job)()
        finally:
            with interrupt.held():
                code = summary.conclude()
    except SystemExit as end:  # Hydra has said why
        return 2 if end.code else 0
    except sweep.Unbegun as problem:
        return _fail(str(problem), 2)
    except HarnessError as problem:
        point.unbegun(sweep.Watch.folder)
        return _fail(str(problem), problem.exit_code)
    except Exception as problem:
        if interrupt.stopped():  # a library made another error of it
            raise KeyboardInterrupt from None
        if (message := config.explain(problem, argv)) is not None:
            point.unbegun(sweep.Watch.folder)
            return _fail(message, 2)
        if isinstance(problem, OSError):
            where = problem.filename or "the run directory"
            remedy = sweep.left() if sweep.Watch.folder else ". Choose runs_dir=DIR."
            return _fail(f"cannot write {where}: {problem.strerror}{remedy}", 2)
        if (message := sweep.lost(problem)) is not None:
            return _fail(message, 1)
        raise
    return max([code, *(o.exit_code for o in job.outcomes)])


def _verb(argv: list[str]) -> int:
    """A word that stands alone: no job."""
    from harness.cli import verbs
    from harness.errors import HarnessError

    if "--version" in argv:
        print(verbs.versions())
        return 0
    try:
        return verbs.VERBS[argv[0]](argv[1:])
    except HarnessError as problem:
        return _fail(str(problem), problem.exit_code)


def _kept(stop: KeyboardInterrupt) -> str:
    """What a job that was told to end leaves behind, as the rest of a sentence."""
    with interrupt.held():
        from harness.cli import sweep

        return str(stop) or sweep.left()


def _fail(message: str, code: int) -> int:
    from harness.report.terminal.fold import shown

    print(shown(f"harness: {message}", sys.stderr), file=sys.stderr)
    return code


if __name__ == "__main__":
    command()
