"""Hydra's launchers, really run: joblib's workers, submitit on this machine, and what submitit would
hand to Slurm. A worker that dies costs its own points only, and says so plainly."""

import importlib.util
import math
import os
import shlex
import signal
import subprocess
import sys
import time
import warnings
from pathlib import Path

import pytest
import yaml
from tracking import ENV, ROOT, free_port, start, stop, whole

from harness.snapshot import objective, record

JOBLIB = importlib.util.find_spec("hydra_plugins.hydra_joblib_launcher") is not None
SUBMITIT = importlib.util.find_spec("hydra_plugins.hydra_submitit_launcher") is not None
OPTUNA = importlib.util.find_spec("hydra_plugins.hydra_optuna_sweeper") is not None
RAY = importlib.util.find_spec("hydra_plugins.hydra_ray_launcher") is not None
needs_joblib = pytest.mark.skipif(not JOBLIB, reason="pip install 'harness[joblib]'")
needs_submitit = pytest.mark.skipif(not SUBMITIT, reason="pip install 'harness[submitit]'")
FOUR = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=4")
QUICK = ("steps=1", "prompt=text", "compare.oracle=false")


def only(folder: Path) -> Path:
    (found,) = folder.iterdir()
    return found


@needs_joblib
@pytest.mark.slow
@pytest.mark.parametrize("workers, points", [(2, 2), (4, 100)])
def test_joblib_workers_on_a_fresh_store(shell, tmp_path, workers, points):
    done = shell("-m", *QUICK, f"seed=range({points})", FOUR[0], f"hydra.launcher.n_jobs={workers}",
                 f"runs_dir={tmp_path}", "name=many")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    whole(tmp_path / "mlflow.db", only(tmp_path / "many"), points)


@needs_joblib
@pytest.mark.slow
def test_four_joblib_workers_on_a_server(shell, tmp_path, postgres):
    """The same through a real server over PostgreSQL, artifacts too."""
    port = free_port()
    server = start(postgres, port, tmp_path)
    try:
        done = shell("-m", "steps=4", "seed=range(100)", *FOUR, f"runs_dir={tmp_path / 'runs'}",
                     "name=many", f"track.uri=http://127.0.0.1:{port}")  # fmt: skip
    finally:
        stop(server)
    assert done.returncode == 0, done.stdout + done.stderr
    whole(postgres, only(tmp_path / "runs" / "many"), 100)
    assert len(list((tmp_path / "kept").rglob("result.json"))) == 100


@pytest.mark.skipif(not OPTUNA, reason="pip install 'harness[optuna]'")
def test_a_search_is_told_its_two_objectives(harness, place):
    """Optuna really searches: each point's budget is its own, and the best ones are written down."""
    done = harness(
        "-m",
        "experiment=prune_search",
        "hydra.sweeper.n_trials=3",
        "prompt.samples=2",
        track="mlflow",
    )
    assert done.code == 0, done.out
    (folder,) = place.glob("runs/prune_search/*")
    found = yaml.safe_load((folder / "optimization_results.yaml").read_text())["solutions"]
    told = {
        objective.objectives(f, ["evaluate.contains", "evaluate.kv_bytes"]) for f in done.folders
    }
    assert len(told) == 3 and all(0 <= recall <= 1 < size for recall, size in told)
    assert {tuple(s["values"]) for s in found} <= told
    best = max(told, key=lambda pair: (pair[0], -pair[1]))
    assert best in {tuple(s["values"]) for s in found}
    assert "a search of 3 points: prune.ratio=interval(0.02, 1.0)" in done.out
    assert "no-name" not in done.out and "unjudged" not in done.out
    with warnings.catch_warnings(record=True) as leaked:  # of trials that all came out alike
        for module in ("optuna.samplers._tpe.sampler", "another"):
            warnings.warn_explicit("in divide", RuntimeWarning, module, 1, module=module)
    assert [str(told.filename) for told in leaked] == ["another"]
    assert "on the Pareto front" in done.out
    (again,) = (line.partition(": ")[2] for line in done.out.splitlines() if "best again: " in line)
    words = shlex.split(again)  # `python -m harness` or what it is called here, and what is typed
    start = next(i for i, word in enumerate(words) if word.endswith("harness")) + 1
    one = harness(*words[start:])
    assert one.code == 0 and objective.objectives(
        one.folders[0], ["evaluate.contains", "evaluate.kv_bytes"]
    ) == pytest.approx(best)


def test_an_objective_that_is_not_there_is_no_number(tmp_path):
    (tmp_path / "result.json").write_text('{"size": {"kv_bytes": 12}, "verdict": "exact"}')
    told = objective.objectives(tmp_path, ["size.kv_bytes", "size.none", "verdict", "bench.x"])
    assert told[0] == 12 and all(math.isnan(value) for value in told[1:])


@needs_submitit
@pytest.mark.slow
def test_submitit_on_this_machine(shell, tmp_path):
    """Each point is a job of its own; the jobs create the store at the same time."""
    done = shell("-m", "steps=4", "seed=1,2,3", "hydra/launcher=submitit_local",
                 f"runs_dir={tmp_path}", "name=submitit")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    whole(tmp_path / "mlflow.db", only(tmp_path / "submitit"), 3)
    for path in only(tmp_path / "submitit").glob("*/result.json"):
        assert "seed=1,2,3" in record.read(path)["environment"]["command"], "as it was typed"


@needs_submitit
@pytest.mark.slow
def test_several_points_in_each_job(shell, tmp_path):
    """The points keep their numbers, and every one of a pack is run."""
    done = shell("-m", *QUICK, "seed=5,6,7,8,9", "track=none",
                 "hydra/launcher=submitit_local_packed", "hydra.launcher.points_per_job=3",
                 f"runs_dir={tmp_path}", "name=packed")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    folder = only(tmp_path / "packed")
    assert len(list(folder.glob(".submitit/*/*_submitted.pkl"))) == 2
    made = {p.parent.name: record.read(p)["config"] for p in folder.glob("*/record.json")}
    assert {name: config["seed"] for name, config in made.items()} == {
        str(i): 5 + i for i in range(5)
    }
    assert len((folder / "sweep.csv").read_text().splitlines()) == 6


# What `sbatch` and `srun` would be on a cluster: the job script is kept and every task of its array is
# run here, in its order, with the variables that Slurm sets.
SBATCH = """#!/bin/sh
for script; do :; done
cp "$script" {place}/submitted.sh
tasks=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\)%.*/\\1/p' "$script")
(for task in $(seq 0 "$tasks"); do
  SLURM_JOB_ID=7 SLURM_ARRAY_JOB_ID=7 SLURM_ARRAY_TASK_ID=$task SLURM_NTASKS=1 SLURM_NNODES=1 \\
  SLURM_NODELIST=here SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0 SLURM_JOB_NODELIST=here \\
  sh "$script"
done; touch {place}/done) >{place}/jobs.log 2>&1 </dev/null &
echo "Submitted batch job 7"
"""
SACCT = """#!/bin/sh
state=RUNNING; [ -e {place}/done ] && state=COMPLETED
printf 'JobID|State\\n7_0|%s\\n7_1|%s\\n' $state $state
"""
SRUN = """#!/bin/sh
while [ "${1#-}" != "$1" ]; do
  case "$1" in --output|--error) shift 2 ;; *) shift ;; esac
done
exec "$@"
"""


@needs_submitit
@pytest.mark.slow
def test_what_slurm_would_be_given(shell, tmp_path):
    """The job script asks for what the launcher's keys say, and running it gives the whole sweep."""
    bins = tmp_path / "bin"
    bins.mkdir()
    for name, text in {"sbatch": SBATCH, "srun": SRUN, "sacct": SACCT}.items():
        (bins / name).write_text(text.replace("{place}", str(tmp_path)))
        (bins / name).chmod(0o755)
    done = shell("-m", *QUICK, "seed=1,2", "hydra/launcher=submitit_slurm",
                 "hydra.launcher.partition=gpu", "hydra.launcher.cpus_per_task=3",
                 "hydra.launcher.timeout_min=25", "hydra.launcher.mem_gb=6",
                 f"runs_dir={tmp_path / 'runs'}", "name=slurm",
                 PATH=f"{bins}{os.pathsep}{os.environ['PATH']}")  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    script = (tmp_path / "submitted.sh").read_text()
    for line in ("partition=gpu", "cpus-per-task=3", "time=25", "mem=6GB", "array=0-1%"):
        assert f"#SBATCH --{line}" in script, script
    whole(tmp_path / "runs" / "mlflow.db", only(tmp_path / "runs" / "slurm"), 2)


def workers(pid: int) -> list[int]:
    """The processes below `pid` that run a launcher's jobs."""
    found = []
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, children.read_text().split()):
            line = Path(f"/proc/{child}/cmdline").read_bytes()
            found += [child] * (b"popen_loky" in line) + workers(child)
    return found


@needs_joblib
@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="no /proc to find workers in")
def test_a_killed_worker_is_said_plainly_and_its_points_run_again(shell, tmp_path):
    process = subprocess.Popen(
        [sys.executable, "-m", "harness", "-m", "steps=4", "seed=1,2,3,4,5,6", "hydra/launcher=joblib",
         "hydra.launcher.n_jobs=2", f"runs_dir={tmp_path}", "name=lost"],
        cwd=ROOT, env=ENV, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
    )  # fmt: skip
    give_up = time.time() + 240
    while not list(tmp_path.glob("lost/*/*/record.json")):
        assert process.poll() is None and time.time() < give_up
        time.sleep(0.05)
    os.kill(workers(process.pid)[0], signal.SIGKILL)
    said = process.communicate(timeout=240)[0]
    assert process.returncode == 1 and "Traceback" not in said, said
    assert "the launcher failed with TerminatedWorkerError" in said and "-m resume=" in said
    folder = only(tmp_path / "lost")
    assert "TerminatedWorkerError" in (folder / "launcher.log").read_text()
    assert len(list(folder.glob("*/record.json"))) < 6
    done = shell("-m", f"resume={folder}")
    assert done.returncode == 0, done.stdout + done.stderr
    whole(tmp_path / "mlflow.db", folder, 6)


@pytest.mark.skipif(not RAY, reason="pip install 'harness[ray]'")
@pytest.mark.parametrize("cluster", [False, True], ids=["started here", "already there"])
def test_ray(shell, tmp_path, cluster):
    """Its workers create the store at the same time; a cluster that runs is reached by address."""
    port = free_port()
    ray, quiet = Path(sys.executable).with_name("ray"), {**ENV, "RAY_AUTH_MODE": "disabled"}
    address, memory = (
        "hydra.launcher.ray.init.address",
        "+hydra.launcher.ray.init.object_store_memory",
    )
    there = (f"{address}=127.0.0.1:{port}", f"{memory}=null") if cluster else ()
    if cluster:
        subprocess.run([ray, "start", "--head", "--num-cpus=2", "--port", str(port),
                        "--include-dashboard=false"], env=quiet, check=True, capture_output=True)  # fmt: skip
    try:
        done = shell("-m", "steps=4", "seed=range(6)", "hydra/launcher=ray", *there,
                     f"runs_dir={tmp_path}", "name=ray", RAY_AUTH_MODE="disabled")  # fmt: skip
    finally:
        if cluster:
            subprocess.run([ray, "stop", "--force"], env=quiet, check=True, capture_output=True)
    assert done.returncode == 0, done.stdout + done.stderr
    whole(tmp_path / "mlflow.db", only(tmp_path / "ray"), 6)
    result = record.read(only(tmp_path / "ray") / "5" / "result.json")
    assert "seed=range(6)" in result["environment"]["command"], "as it was typed"


def test_a_launcher_that_is_not_installed(harness):
    done = harness("-m", "hydra/launcher=rq", "seed=1,2")
    assert done.code == 2 and "hydra/launcher=rq is not installed" in done.out
