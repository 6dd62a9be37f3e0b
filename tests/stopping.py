"""A job of its own process that is told to end at some moment, and what it leaves."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


class Running:
    """The command line as a process of its own that is told to end once something is to be seen."""

    def __init__(self, place: Path, *arguments: str):
        env = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.place = place
        with (place / "out").open("w") as out, (place / "err").open("w") as err:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "harness", *arguments], cwd=place, env=env,
                stdout=out, stderr=err,
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
            )  # fmt: skip

    def stop(self, when: Callable[["Running"], bool], number: int = signal.SIGINT) -> str:
        """Wait for `when`, send the signal; check the end and return the one line that it said."""
        give_up = time.monotonic() + 120
        while not when(self):
            assert self.process.poll() is None, "it ended before: " + self.err
            assert time.monotonic() < give_up, self.err
            time.sleep(0.002)
        self.process.send_signal(number)
        assert self.process.wait(60) == 128 + number, self.err
        assert "Traceback" not in self.err + self.out and "ignored" not in self.err
        said = [line for line in self.err.splitlines() if line.startswith("harness: ")]
        assert len(said) == 1, self.err
        assert said[0].split()[1].rstrip(";") in ("interrupted", "terminated")
        left = [p for p in self.place.rglob(".*") if p.suffix == ".tmp" or p.suffix[1:].isdigit()]
        assert not left
        return said[0]

    @property
    def out(self) -> str:
        return (self.place / "out").read_text()

    @property
    def err(self) -> str:
        return (self.place / "err").read_text()


def says(text: str) -> Callable[[Running], bool]:
    return lambda running: text in running.out + running.err


def folders(place: Path) -> list[Path]:
    """The run directories that are left."""
    return [p for p in place.glob("runs/*/*") if p.is_dir() and p.parent.name != "artifacts"]


def listens(running: Running) -> bool:
    """Whether it handles SIGTERM, which Python by itself does not."""
    status = Path(f"/proc/{running.process.pid}/status").read_text()
    caught = int(re.search(r"SigCgt:\s*([0-9a-f]+)", status)[1], 16)
    return bool(caught >> (signal.SIGTERM - 1) & 1)


def after(seen: Callable[[Running], bool], seconds: float) -> Callable[[Running], bool]:
    """Somewhere in what comes after `seen`."""

    def wait(running: Running) -> bool:
        if there := seen(running):
            time.sleep(seconds)
        return there

    return wait
