"""A sweep on a Ray of two nodes, one of which dies in the middle: nothing is lost, nothing is there twice."""

import importlib.util
import subprocess
import sys
import time
from pathlib import Path

import pytest
import ray_cluster
from tracking import ROOT, below, kill, whole

RAY = importlib.util.find_spec("hydra_plugins.hydra_ray_launcher") is not None
LAUNCHER = "hydra.launcher.ray"


@pytest.mark.slow
@pytest.mark.skipif(not RAY, reason="pip install 'harness[ray]'")
@pytest.mark.parametrize("retries", [0, 3], ids=["its points run again by hand", "or by Ray"])
def test_a_node_that_dies_costs_nothing(tmp_path, retries):
    with ray_cluster.cluster() as (address, node):
        process = subprocess.Popen(
            [sys.executable, "-m", "harness", "-m", "steps=4", "seed=range(8)", "hydra/launcher=ray",
             f"{LAUNCHER}.init.address={address}", f"+{LAUNCHER}.init.object_store_memory=null",
             f"+{LAUNCHER}.remote.max_retries={retries}", f"runs_dir={tmp_path}", "name=ray"],
            cwd=ROOT, env=ray_cluster.QUIET, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        )  # fmt: skip
        give_up = time.time() + 240
        while not (list(tmp_path.glob("ray/*/*/record.json")) and at_work(node.pid)):
            assert process.poll() is None and time.time() < give_up
            time.sleep(0.05)
        kill(node)
        said = process.communicate(timeout=240)[0]
    (folder,) = (tmp_path / "ray").iterdir()
    if not retries:
        assert process.returncode == 1 and "-m resume=" in said and "Traceback" not in said, said
        assert len(list(folder.glob("*/record.json"))) < 8
        again = [sys.executable, "-m", "harness", "-m", f"resume={folder}"]
        subprocess.run(again, cwd=ROOT, env=ray_cluster.QUIET, check=True, capture_output=True)
    else:
        assert process.returncode == 0, said
    whole(tmp_path / "mlflow.db", folder, 8)


def at_work(pid: int) -> bool:
    """Whether a node computes a point."""
    for process in below(pid):
        try:
            line = Path(f"/proc/{process}/cmdline").read_bytes()
        except OSError:
            continue
        if b"ray::" in line and b"_run_job" in line:
            return True
    return False
