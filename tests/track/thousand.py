"""A sweep of many cheap points through one Slurm job array on this machine, and what each part of it costs.

    make thousand ARGS='--points 1000 --per-job 250 --launcher slurm'

slurm: a Slurm of one node, started for this (root, slurm-wlm, munge). local: processes of submitit.
basic: this process alone. A point is `task=verify` of a small snapshot (`--tracked`: a whole run of one
step, recorded by MLflow).
"""

import argparse
import json
import re
import resource
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

import slurm
from tracking import ENV, ROOT, ask

PACKED = {"slurm": "submitit_slurm_packed", "local": "submitit_local_packed"}
TOLD = re.compile(r"^\[ *\d+/\d+\] .*? ([\d.]+) s", re.MULTILINE)
CHEAP = ("task=verify", "track=none")
TRACKED = ("text='let k be 5 .'", "prompt=text", "steps=1", "compare.oracle=false")


def harness(place: Path, *arguments: str, env: dict[str, str]) -> tuple[str, float, float, float]:
    """What a command said; its seconds, its CPU seconds with all it waited for, its peak in MiB."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    command = [sys.executable, "-m", "harness", *arguments]
    done = subprocess.run(command, cwd=place, env=env, text=True, capture_output=True)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return done.stdout, wall, cpu, after.ru_maxrss / 1024


def figures(folder: Path, points: int) -> dict[str, object]:
    """Sizes of the tables, and what reading and drawing them costs."""
    from harness.cli import done
    from harness.report.sweep import write
    from harness.results import points as pages

    began = time.perf_counter()
    found = done.finished(folder)
    rows = pages.rows(found)
    read = time.perf_counter()
    write(folder, rows, points)
    drawn = time.perf_counter()
    assert len(rows) == points == len({row["point"] for row in rows}), "each point once"
    assert not [p for p in found if (p / "pending.json").exists()], "nothing waits for MLflow"
    return {
        "rows_s": round(read - began, 2),
        "pages_s": round(drawn - read, 2),
        "csv_MB": round((folder / "sweep.csv").stat().st_size / 1e6, 2),
        "page_MB": round((folder / "sweep.html").stat().st_size / 1e6, 2),
        "sweep_json_MB": round((folder / "sweep.json").stat().st_size / 1e6, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--points", type=int, default=1000)
    parser.add_argument("--per-job", type=int, default=250)
    parser.add_argument("--launcher", choices=[*PACKED, "basic"], default="slurm")
    parser.add_argument("--tracked", action="store_true")
    asked = parser.parse_args()
    if asked.launcher == "slurm" and (why := slurm.missing()):
        sys.exit(f"{why}. Or: --launcher local")
    with tempfile.TemporaryDirectory(prefix="thousand-") as folder:
        place = Path(folder)
        cluster = slurm.cluster(place / "slurm") if asked.launcher == "slurm" else nullcontext({})
        with cluster as more:
            measured(asked, place, {**ENV, "OMP_NUM_THREADS": "1", **more})


def measured(asked: argparse.Namespace, place: Path, env: dict[str, str]) -> None:
    """Run the sweep, resume it when it is complete, print the figures as JSON."""
    point = TRACKED if asked.tracked else (*CHEAP, f"snapshot={place / 'snapshot'}")
    if not asked.tracked:
        harness(place, "task=save", f"out={place / 'snapshot'}", "track=none", env=env)
    launcher = []
    if asked.launcher in PACKED:
        launcher = [f"hydra/launcher={PACKED[asked.launcher]}",
                    f"hydra.launcher.points_per_job={asked.per_job}"]  # fmt: skip
    said, wall, cpu, peak = harness(
        place, "-m", *point, f"seed=range({asked.points})", "name=many", *launcher, env=env
    )
    (sweep,) = (place / "runs" / "many").iterdir()
    logs = [p.read_text() for p in sweep.glob(".submitit/*/*_log.out")] or [said]
    work = sum(float(seconds) for log in logs for seconds in TOLD.findall(log))
    told = {
        "launcher": asked.launcher, "points": asked.points, "jobs": len(logs), "wall_s": round(wall, 1),
        "cpu_s": round(cpu, 1), "points_themselves_s": round(work, 1), "largest_process_MiB": round(peak),
        **figures(sweep, asked.points),
    }  # fmt: skip
    _, wall, cpu, _ = harness(place, "-m", f"resume={sweep}", env=env)
    told |= {"resume_wall_s": round(wall, 1), "resume_cpu_s": round(cpu, 1)}
    if asked.tracked:
        nested = "select count(distinct run_uuid) from tags where key = 'mlflow.parentRunId'"
        ((runs,),) = ask(place / "runs" / "mlflow.db", nested)
        assert runs == asked.points, f"{runs} runs are nested"
        told["mlflow_MB"] = round((place / "runs" / "mlflow.db").stat().st_size / 1e6, 1)
    print(json.dumps(told, indent=2))


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
