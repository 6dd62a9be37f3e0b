"""A sweep on a real Slurm: one node, started for the test. A job that dies in the middle is requeued;
nothing is lost and nothing is there twice."""

import importlib.util
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import slurm
from tracking import ENV, ROOT, whole

SUBMITIT = importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is not None
WHY = "pip install 'harness[submitit]'" if not SUBMITIT else slurm.missing()


def task(number: int) -> list[int]:
    """The processes in which that task of the job array computes."""
    found = []
    for place in Path("/proc").glob("[0-9]*"):
        try:
            line, env = (place / "cmdline").read_bytes(), (place / "environ").read_bytes()
        except OSError:
            continue
        mine = f"SLURM_ARRAY_TASK_ID={number}".encode() in env.split(b"\0")
        found += [int(place.name)] * (mine and b"submitit.core._submit" in line)
    return found


@pytest.mark.slow
@pytest.mark.skipif(bool(WHY), reason=WHY)
def test_a_job_that_is_killed_and_requeued_costs_nothing(tmp_path, shell):
    with slurm.cluster(tmp_path / "slurm") as cluster:
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", "-m", "steps=4", "seed=1,2,3,4",
             "hydra/launcher=submitit_slurm", "hydra.launcher.timeout_min=10",
             f"runs_dir={tmp_path}", "name=sweep"],
            cwd=ROOT, env={**ENV, **cluster}, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        give_up = time.time() + 240
        while not list(tmp_path.glob("sweep/*/1/.hydra")):
            assert process.poll() is None and time.time() < give_up
            time.sleep(0.05)
        assert task(1), "the point that began runs in a job of the array"
        for pid in task(1):
            os.kill(pid, signal.SIGKILL)
        job = subprocess.run(["squeue", "-h", "-r", "-o", "%i"], env=cluster, text=True,
                             capture_output=True).stdout.split()  # fmt: skip
        (array,) = {name.partition("_")[0] for name in job}
        subprocess.run(["scontrol", "requeue", f"{array}_1"], env=cluster, check=True)
        said = process.communicate(timeout=240)[0]
    assert process.returncode == 0, said
    assert not any(word in said for word in ("sacct", "accounting", "Traceback")), said
    (folder,) = (tmp_path / "sweep").iterdir()
    whole(tmp_path / "mlflow.db", folder, 4)
    told = (folder / ".submitit" / f"{array}_1" / f"{array}_1_0_log.out").read_text()
    assert told.count("Starting with JobEnvironment") == 2, "it was begun twice"
