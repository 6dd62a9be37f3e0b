"""An optional package that is not installed: one message with the command that installs it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from harness import extras

ROOT = Path(__file__).resolve().parent.parent

# a child process sees this first: the packages named in HIDE cannot be found
BLOCKER = """
import os, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if any(name == h or name.startswith(h + ".") for h in os.environ["HIDE"].split(",")):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""
SWEEP = ["-m", "seed=1,2", "steps=2", "track=none"]

# (packages that are hidden, arguments, the extra that brings them)
CASES = [
    ("joblib", [*SWEEP, "hydra/launcher=joblib"], "joblib"),
    ("hydra_plugins", [*SWEEP, "hydra/launcher=joblib"], "joblib"),
    ("submitit", [*SWEEP, "hydra/launcher=submitit_slurm"], "submitit"),
    ("ray", [*SWEEP, "hydra/launcher=ray"], "ray"),
    ("psycopg,psycopg2", ["track.uri=postgresql://me@localhost/db"], "postgres"),
    ("s3fs", ["task=save", "out=s3://bucket/mine"], "remote"),
    ("fsspec", ["task=resume", "snapshot=s3://bucket/mine"], "remote"),
    ("gcsfs", ["task=inspect", "snapshot=gs://bucket/mine"], "gs"),
    ("gcsfs", ["task=diff", "a=gs://bucket/mine", "b=mine"], "gs"),
]


@pytest.mark.parametrize("hidden, arguments, extra", CASES, ids=lambda v: str(v)[:40])
def test_a_missing_extra_is_named_with_its_command(tmp_path, hidden, arguments, extra) -> None:
    (tmp_path / "sitecustomize.py").write_text(BLOCKER)
    env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}", "HIDE": hidden}
    done = subprocess.run(
        [sys.executable, "-m", "harness", *arguments], cwd=tmp_path, env=env, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 2, done.stdout + done.stderr
    (line,) = done.stderr.splitlines()
    assert line.startswith("harness: ") and f"pip install 'harness[{extra}]'" in line
    assert not list(tmp_path.glob("runs/*/*"))


def test_every_extra_is_known(tmp_path) -> None:
    import tomllib

    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(declared["optional-dependencies"]) - {"test"} <= set(extras.NEEDS)
