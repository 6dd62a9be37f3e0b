"""The tracking client in a process of its own, which gets ready while the job works.

Importing MLflow costs more than a short run records. So `begin` starts this process where a job starts;
the job's end waits only for the records themselves. One process serves all jobs of its parent. Nothing
depends on it: the run directory is complete before it is asked, it marks what it has not uploaded
(`pending.json`), it finishes what it has begun when its parent is killed, and where it is gone the
parent records by itself.
"""

import atexit
import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any

PATIENCE = 10.0  # seconds in which an interrupted upload says that it has ended
_recorder: list["Recorder"] = []  # of this process


class Gone(Exception):
    """The process ended before it answered."""


class Recorder:
    """The parent's end: one JSON line asks, one answers."""

    def __init__(self, settings: Any, runs_dir: str):
        self.parent = os.getpid()
        package = str(Path(__file__).resolve().parents[2])
        path = os.pathsep.join(filter(None, (package, os.environ.get("PYTHONPATH"))))
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness.track"], text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
        )  # fmt: skip
        self._write({"begin": plain(settings), "runs_dir": runs_dir, "place": str(Path.cwd())})
        atexit.register(self.end)

    @property
    def alive(self) -> bool:
        return self.parent == os.getpid() and self.process.poll() is None

    def ask(self, call: str, **arguments: Any) -> Any:
        """What `track.CALLS[call]` answers there. Raises Gone. A job that is told to end ends the
        upload as well: it waits until that is marked."""
        try:
            self._write({"call": call, "place": str(Path.cwd()), "arguments": arguments})
            line = self.process.stdout.readline() if self.process.stdout else ""
        except KeyboardInterrupt:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                self.process.kill()
            raise
        if not line:
            raise Gone
        answer = json.loads(line)
        if "fault" in answer:
            raise RuntimeError(answer["fault"])
        return answer["answer"]

    def tell(self, call: str, **arguments: Any) -> None:
        """Have `track.CALLS[call]` done there before anything that is asked later. Raises Gone."""
        self._write({"tell": call, "place": str(Path.cwd()), "arguments": arguments})

    def end(self) -> None:
        """Let it go: it ends by itself once nobody can ask any more."""
        if self.parent == os.getpid() and self.process.stdin:
            with suppress(OSError):  # it went before
                self.process.stdin.close()

    def _write(self, message: dict[str, Any]) -> None:
        try:
            assert self.process.stdin is not None
            self.process.stdin.write(json.dumps(message) + "\n")
            self.process.stdin.flush()
        except OSError:
            raise Gone from None


def begin(settings: Any, runs_dir: str) -> None:
    """Start the process for the store that `settings` names, unless one runs, none can be started or
    nothing is tracked."""
    if settings.name == "mlflow" and running() is None and "mlflow" not in sys.modules:
        with suppress(OSError, Gone):
            _recorder[:] = [Recorder(settings, str(runs_dir))]


def running() -> Recorder | None:
    """The process that serves this one; None where there is none."""
    return _recorder[0] if _recorder and _recorder[0].alive else None


def plain(settings: Any) -> dict[str, Any]:
    """The settings as JSON takes them."""
    return asdict(settings) if is_dataclass(settings) else vars(settings)  # type: ignore[arg-type]
