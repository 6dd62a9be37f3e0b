"""Fresh processes without the seconds that imports take: a process that has imported what a run does
(MLflow is not among it) and has done nothing else forks for each command. A command has its own id,
working directory, environment, streams and end; what reads the environment while it is imported has
read that of the test session. (After a first run here, one with more threads would hang in its fork.)"""

import importlib
import json
import os
import runpy
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
IMPORTED = (
    "torch", "transformers.modeling_utils", "transformers.models.auto.modeling_auto", "hydra.main",
    "harness.pipeline.line", "harness.task.audit.replay", "harness.report.run.page", "harness.cli.sweep",
    "harness.cli.point", "harness.cli.summary", "harness.model.loaded", "matplotlib.figure",
    "transformers.models.llama.modeling_llama", "harness.cache.manual.llama", "harness.attention.kernels.cpu.compiled",
)  # fmt: skip


class Warm:
    """Starts commands, one at a time; what `subprocess.run` says of them."""

    def __init__(self, place: Path) -> None:
        self.place, self.lock = place, threading.Lock()
        self.server = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )  # fmt: skip

    def end(self) -> None:
        self.server.kill()
        self.server.wait(20)

    def run(self, command, *, cwd=None, env=None, timeout=900, capture_output, text):
        """`[sys.executable, "-m", MODULE, *ARGUMENTS]` or `-c CODE`: what `subprocess.run` says of it."""
        assert command[0] == sys.executable and capture_output and text
        out, err = self.place / "out", self.place / "err"
        asked = {"words": [str(word) for word in command[1:]], "out": str(out), "err": str(err),
                 "cwd": str(cwd or Path.cwd()), "env": env or dict(os.environ)}  # fmt: skip
        with self.lock:
            for file in (out, err):
                file.unlink(missing_ok=True)
            print(json.dumps(asked), file=self.server.stdin, flush=True)
            limit = threading.Timer(timeout, self.server.kill)
            limit.start()
            answer = self.server.stdout.readline()
            limit.cancel()
            assert answer, f"{command} did not end in {timeout} s"
            return subprocess.CompletedProcess(
                command, int(answer), out.read_text(), err.read_text()
            )


@contextmanager
def serving() -> Iterator[Callable[..., subprocess.CompletedProcess]]:
    """What takes the place of `subprocess.run`; started when it is first asked."""
    if sys.platform != "linux":  # elsewhere libraries do not stand a fork
        yield subprocess.run
        return
    with TemporaryDirectory(prefix="warm-") as place, ExitStack() as stack:

        @cache
        def warm() -> Warm:
            made = Warm(Path(place))
            stack.callback(made.end)
            return made

        yield lambda *given, **how: warm().run(*given, **how)


def child(asked: dict) -> None:
    """Become the process of a command, from here to its end."""
    for stream, name in ((1, "out"), (2, "err")):
        file = os.open(asked[name], os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        os.dup2(file, stream)
        os.close(file)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.chdir(asked["cwd"])
    os.environ.clear()
    os.environ.update(asked["env"])
    there = asked["env"].get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:1] = [asked["cwd"], *(p for p in there if p)]
    how, what, *sys.argv[1:] = asked["words"]
    if how == "-m":
        runpy.run_module(what, run_name="__main__", alter_sys=True)
    else:
        sys.argv[0], sys.modules["__main__"] = how, ModuleType("__main__")
        exec(what, vars(sys.modules["__main__"]))


def serve() -> None:
    from harness import process

    process.begin()
    for name in IMPORTED:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w")
    while asked := sys.stdin.buffer.raw.readline():
        if not (pid := os.fork()):
            return child(json.loads(asked))
        _, status = os.waitpid(pid, 0)
        print(os.waitstatus_to_exitcode(status), file=answers, flush=True)
    return None


if __name__ == "__main__":
    serve()
