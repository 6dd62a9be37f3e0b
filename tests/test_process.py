"""A command's process: nothing imported that it does not use, and an end that loses nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

END = """
import atexit, sys, threading
from harness import process
process.begin()
atexit.register(lambda: sys.stdout.write("registered\\n"))
class Late:
    def __del__(self): print("taken apart")
late = Late()
{}
print("written", end=" ")
process.leave(7)
"""


def ended(extra: str = "", **how: object) -> subprocess.CompletedProcess[str]:
    asked = {
        "capture_output": True,
        "text": True,
        "cwd": ROOT,
        "env": {**os.environ, "PYTHONUNBUFFERED": ""},
        **how,
    }
    return subprocess.run([sys.executable, "-c", END.format(extra)], **asked)  # type: ignore[call-overload]


def test_the_end_flushes_runs_what_is_registered_and_takes_nothing_apart() -> None:
    done = ended()
    assert done.returncode == 7
    assert done.stdout.split() == ["written", "registered"]


def test_a_thread_s_work_is_waited_for_and_a_daemon_s_is_not() -> None:
    """Libraries in C++ have aborted where modules were taken apart while a thread was about."""
    threads = (
        "import time\n"
        "work = lambda: (threading.main_thread().join(), print('thread'))\n"
        "threading.Thread(target=work).start()\n"
        "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    )
    done = ended(threads, timeout=30)
    assert done.returncode == 7
    assert done.stdout.split() == ["written", "thread", "registered"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_reader_that_has_gone_changes_neither_the_work_nor_its_code(tmp_path, unbuffered) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    work = (
        f"for _ in range(3): print('x' * 9999, flush=True)\nopen({str(tmp_path / 'done')!r}, 'w')"
    )
    env = {**os.environ, "PYTHONUNBUFFERED": unbuffered}
    done = ended(work, capture_output=False, stdout=writing, stderr=subprocess.PIPE, env=env)
    os.close(writing)
    assert (done.returncode, done.stderr) == (7, "") and (tmp_path / "done").exists()


@pytest.mark.parametrize("package", ["hypothesis", "mlflow", "matplotlib"])
def test_help_imports_nothing_that_it_does_not_use(package: str) -> None:
    code = (
        "import sys; from harness import __main__ as m; sys.argv[1:] = ['--help'];"
        f"m.main(); sys.exit(any(k.partition('.')[0] in ('{package}', 'importlib_metadata') "
        "or k in ('importlib.metadata', 'email', 'tempfile', 'torch') "
        "for k in sys.modules))"
    )
    asked = [sys.executable, "-S", "-c", code]
    places = os.pathsep.join(p for p in [str(ROOT), *sys.path] if p)
    env = {**os.environ, "PYTHONPATH": places}
    assert subprocess.run(asked, capture_output=True, env=env).returncode == 0
