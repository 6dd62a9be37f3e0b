"""Another Python than the one it was installed for: one line, and which one to use."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_a_python_without_the_packages_is_told_which_one_has_them(tmp_path) -> None:
    """A real interpreter that finds the project and none of what it needs."""
    bare = [sys.executable, "-S", "-m", "harness", "steps=2"]
    done = subprocess.run(
        bare, cwd=ROOT, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)}
    )
    assert done.returncode == 2 and "Traceback" not in done.stderr, done.stderr
    assert "has no package " in done.stderr and "which the harness needs" in done.stderr
    assert ".venv/bin/python -m harness" in done.stderr or "make run" in done.stderr


def test_a_module_of_somebody_else_that_is_missing_stays_an_error() -> None:
    from harness import process

    assert process.lacking(ModuleNotFoundError("no", name="my_own.policy")) == ""
    assert "torch" in process.lacking(ModuleNotFoundError("no", name="torch.cuda"))
