"""A Slurm that keeps no accounts: submitit asks `sacct` how its jobs are, and would be told nothing."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

# what `sacct -o JobID,State,NodeList --parsable2` prints, for the jobs that the controller remembers
STAND_IN = """\
#!/bin/sh
echo "JobID|State|NodeList"
exec squeue --states=all --noheader --array --format="%i|%T|%N"
"""


def answer_from_queue() -> None:
    """Where `sacct` fails, let a program of that name answer this process from the queue instead: no
    warnings, and a job that died is known to have died. Nothing happens where it works."""
    if shutil.which("squeue") is None or shutil.which("sacct") is None:
        return
    asked = subprocess.run(["sacct", "-n", "-j", "1"], capture_output=True)
    if asked.returncode == 0:
        return
    folder = Path(tempfile.mkdtemp(prefix="harness-slurm-"))
    program = folder / "sacct"
    program.write_text(STAND_IN, "ascii")
    program.chmod(0o700)
    os.environ["PATH"] = f"{folder}{os.pathsep}{os.environ['PATH']}"
