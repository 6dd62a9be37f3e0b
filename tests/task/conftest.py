"""One recorded run and one recorded sweep, shared by the tests that audit, tamper and resume."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FAST = ["model=tiny", "steps=6", "compare.noise_chunk=8"]


def harness(*arguments: str, module: str = "harness", **options) -> subprocess.CompletedProcess:
    """The command line, as a user runs it."""
    env = {**os.environ, "HF_HUB_OFFLINE": "1", "PYTHONPATH": str(ROOT), "COLUMNS": "160"}
    return subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=ROOT, env=env, capture_output=True, text=True, timeout=500, **options,
    )  # fmt: skip


@pytest.fixture(scope="session")
def runs(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="session")
def swept(runs) -> Path:
    """A sweep of six points, two of which fail (a prompt too short for its batch)."""
    done = harness(
        "-m", *FAST, f"runs_dir={runs}", "name=swept",
        "cache=dynamic,cloned,manual", "prompt.batch=1,9",
    )  # fmt: skip
    assert done.returncode == 2, done.stderr
    (folder,) = (runs / "swept").iterdir()
    (folder / "console.txt").write_text(done.stdout)
    return folder


@pytest.fixture(scope="session")
def recorded(runs) -> Path:
    """One run, with sampling, so that seeds matter."""
    done = harness(*FAST, f"runs_dir={runs}", "name=recorded", "sampling=sample")
    assert done.returncode == 0, done.stderr
    (folder,) = (runs / "recorded").iterdir()
    return folder
