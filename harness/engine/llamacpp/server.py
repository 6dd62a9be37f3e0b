"""A llama.cpp server of our own: a child process that listens on 127.0.0.1 and dies with us."""

import json
import os
import secrets
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.engine.wire import Wire
from harness.errors import InputProblem, printable

CHILD = Path(__file__).with_name("child.py")
LOG = "server.log"  # in the slots' folder
STOP_S = 10
LONGEST_S = 6 * 3600.0  # of one request: 16,384 tokens of a 1B model took more than ten minutes


class Server:
    """Started when made. wire: its JSON interface, behind a key of its own. Raises InputProblem with
    the last lines of its log when it does not come up."""

    def __init__(self, model: str, slots: Path, params: dict[str, Any]):
        key = secrets.token_hex(16)
        with (slots / LOG).open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(CHILD)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                text=True,
            )
        order = {"model": model, "slots": str(slots), "key": key, "params": params}
        try:
            self._tell(json.dumps(order))
            said = json.loads(self._line() or '{"problem": "it ended"}')
            if "problem" in said:
                log_end = _tail(slots / LOG)
                raise InputProblem(f"llama.cpp does not load {model}: {said['problem']}\n{log_end}")
            self.wire = Wire(said["address"], key, LONGEST_S)
        except BaseException:
            self.stop()
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def stop(self) -> None:
        """End it, by force if it does not listen. Stopping twice is fine."""
        try:
            self._tell("stop")
            self._process.wait(STOP_S)
        except (OSError, ValueError, subprocess.TimeoutExpired):
            self._process.kill()
            self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe:
                with suppress(OSError):  # what a broken pipe still held
                    pipe.close()

    def _tell(self, line: str) -> None:
        assert self._process.stdin
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()

    def _line(self) -> str:
        """The child's JSON line; llama.cpp may print before it."""
        assert self._process.stdout
        for line in self._process.stdout:
            if line.startswith("{"):
                return line
        return ""


def _tail(log: Path) -> str:
    lines = [x for x in log.read_text("utf-8", "replace").splitlines() if x.strip()]
    return "\n".join(f"  {printable(line)}" for line in lines[-6:])


def threads(count: int | None) -> int:
    """`count`, else as many as this process may use."""
    if count:
        return count
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
