"""Everything that is measured on a GPU, as one command (`make gpu`): from a bare machine with its own
PyTorch and Transformers to `gpu.json` and `gpu.md`. Needs no network: what else is needed comes as wheels
from `--wheels` (`make gpu-wheels` collects them). Each stage has its time and leaves its figures when
that runs out.

    python tests/task/gpu_record.py --out runs/gpu [--wheels .whl] [--device cpu --small]
"""

import argparse
import csv
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.task.gpu_wheels import collected, installed

ROOT = Path(__file__).resolve().parents[2]
CACHES = "cache=dynamic,cloned,static,view,manual"
MIXTURE = (
    "model=shape", "model.architecture=mixtral",
    "model.config={num_hidden_layers: 2, hidden_size: 64, intermediate_size: 96, num_attention_heads: 4, "
    "num_key_value_heads: 2, num_local_experts: 4, initializer_range: 0.1}",
)  # fmt: skip
SMALL = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 16, "vocab_size": 512}  # fmt: skip
MAIN = ("model", "cache", "dtype", "verdict", "max_abs_diff", "error_ratio", "mutated")


@dataclass(frozen=True)
class Stage:
    """One command line of the harness (or of pytest). table: the file that it leaves, and the columns
    that the page shows of it."""

    name: str
    seconds: int
    arguments: tuple[str, ...]
    table: str
    columns: tuple[str, ...]


def stages(device: str, small: bool) -> Iterator[Stage]:
    """All of it, what matters most first. small: the same commands at sizes for a test on a CPU."""
    shape = tuple(f"model.config.{k}={v}" for k, v in SMALL.items()) if small else ()
    dtypes = "dtype=float32" if small else "dtype=float32,bfloat16,float16"
    on = f"device={device}"
    models = "model=tiny" if small else "model=tiny,tiny_gemma3"
    caches = "cache=cloned,manual" if small else CACHES
    swept = ("-m", dtypes, on, "steps=8")
    yield Stage("families", 90, (*swept, caches, models), "sweep.csv", MAIN)
    caches = caches.replace("manual", "view" if small else "deepcopy")  # which has neither of these
    yield Stage("hybrid", 50, (*swept, caches, "model=tiny_hybrid"), "sweep.csv", MAIN)
    yield Stage("experts", 50, (*swept, caches, *MIXTURE), "sweep.csv", MAIN)
    columns = (
        "cache",
        "recorded",
        "batch",
        "runs",
        "bitwise_equal",
        "same_as_alone",
        "max_abs_diff",
    )
    for dtype in ("float32",) if small else ("float32", "bfloat16"):
        few = ("task.batches=[1,2]", "task.runs=2", "steps=2") if small else ("steps=16",)
        repeated = ("task=repeat", on, f"dtype={dtype}", *few)
        yield Stage(f"repeat {dtype}", 40, repeated, "repeat.json", columns)
    columns = ("verdict", "reason")
    there = ("steps=8", "prompt=text")
    yield Stage(
        "from the CPU",
        30,
        ("device=cpu", f"restore.device={device}", *there),
        "result.json",
        columns,
    )
    yield Stage("to the CPU", 30, (on, "restore.device=cpu", *there), "result.json", columns)
    yield decode(64 if small else 32768, on, shape, small)
    columns = ("context", "kv_bytes", "prefill_s", "load_s", "to_device_s", "first_token_s", "speedup",
               "save_s", "save_of_raw", "peak_device_bytes", "same_first_token")  # fmt: skip
    long = ("task.contexts=[8192,32768,131072]", "task.repeats=2")  # 17 GB each time at the last
    for experiment, seconds, few in (("save_gpu", 110, ()), ("save_gpu_8b", 220, long)):
        few = ("task.contexts=[64]", "task.repeats=1") if small else few
        arguments = (f"experiment={experiment}", on, *shape, *few)
        yield Stage(experiment, seconds, arguments, "bench.json", columns)
    for context in () if small else (131072, 2048, 8192):
        yield decode(context, on, shape, small)


def decode(context: int, on: str, shape: tuple[str, ...], small: bool) -> Stage:
    """A step of every cache over so many tokens, alone and with branches."""
    columns = (
        "cache",
        "context",
        "branches",
        "per_token_s",
        "ratio_to_dynamic",
        "times_limit",
        "open_s",
    )
    sized = (f"task.contexts=[{context}]", f"task.branch_contexts=[{context}]")
    few = ("task.branches=[2]", "task.runs=3", "task.compiled=false") if small else ()
    arguments = ("experiment=bench_gpu", on, *shape, *sized, *few)
    return Stage(f"decode {context}", 120, arguments, "bench.json", columns)


def record(
    out: Path, device: str, small: bool, wheels: Path | None, limit: float, only: list[str]
) -> int:
    """Run every stage, write `gpu.json` and `gpu.md` after each; how many stages failed. only: the names of
    stages that run anew, beside what the others left before."""
    out.mkdir(parents=True, exist_ok=True)
    left = out / "gpu.json"
    known = json.loads(left.read_text())["stages"] if only and left.is_file() else []
    path = [str(ROOT)]
    if wheels is not None:
        path.insert(0, str(installed(wheels, out / "site")))
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(path), "HF_HUB_OFFLINE": "1",
           "MLFLOW_DISABLE_TELEMETRY": "true"}  # fmt: skip
    done: list[dict[str, Any]] = []
    began, order = time.monotonic(), ["tests", *(s.name for s in stages(device, small))]

    facts = where(env)

    def keep(entry: dict[str, Any]) -> None:
        done.append({**entry, "device": facts.get("device")})
        both = {e["name"]: e for e in (*known, *done)}.values()
        rows = sorted(both, key=lambda e: order.index(e["name"]) if e["name"] in order else -1)
        document = {"where": facts, "stages": rows}
        left.write_text(json.dumps(document, indent=1) + "\n")
        (out / "gpu.md").write_text(page(document))
        print(f"{entry['name']}: {entry['outcome']} ({entry['seconds']:.0f} s)", flush=True)

    if "tests" in only or not (small or only):
        keep(tests(out, env, limit))
    for stage in stages(device, small):
        if only and stage.name not in only:
            continue
        rest = limit - (time.monotonic() - began)
        keep(ran(stage, out, env, min(stage.seconds, rest)))
    return sum(entry["outcome"] not in ("done", "out of time") for entry in done)


def tests(out: Path, env: dict[str, str], limit: float) -> dict[str, Any]:
    """The tests that need a GPU, by pytest's own summary. Only their files are read: others import what
    such a machine need not have."""
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-n",
        "4",
        "-m",
        "gpu",
        "-p",
        "no:cacheprovider",
    ]
    code, seconds, text = timed([*command, *map(str, marked())], env, min(90, limit))
    last = text.strip().splitlines()[-1:] or ["nothing was printed"]
    (out / "tests.log").write_text(text)
    outcome = "done" if code == 0 else "out of time" if code is None else "failed"
    rows = [{"summary": last[0]}]
    return {"name": "tests", "command": "pytest -m gpu", "outcome": outcome, "seconds": seconds,
            "columns": ["summary"], "rows": rows}  # fmt: skip


def marked() -> list[Path]:
    """The test files that have a test for a GPU."""
    mark = "@pytest.mark." + "gpu"
    return [f for f in sorted((ROOT / "tests").rglob("test_*.py")) if mark in f.read_text()]


def ran(stage: Stage, out: Path, env: dict[str, str], seconds: float) -> dict[str, Any]:
    """One stage and the rows it left, however it ended."""
    place = out / stage.name.replace(" ", "_")
    shutil.rmtree(place, ignore_errors=True)  # of an earlier time
    key = "hydra.sweep.dir" if "-m" in stage.arguments else "hydra.run.dir"
    arguments = [*stage.arguments, "track=none"]
    command = [sys.executable, "-m", "harness", *arguments, f"{key}={place}"]
    code, took, text = timed(command, env, seconds) if seconds > 5 else (None, 0.0, "")
    place.mkdir(parents=True, exist_ok=True)
    (place / "console.log").write_text(text)
    # a sweep that has a verdict worse than required ends with 1: the rows say which
    outcome = "out of time" if code is None else "done" if code in (0, 1) else "failed"
    rows = left_by(place, stage)
    if any(row.get("verdict") == "failed" for row in rows):
        outcome = "failed"
    return {"name": stage.name, "command": "python -m harness " + " ".join(map(quoted, arguments)),
            "outcome": outcome if rows or code is None else "failed", "seconds": took,
            "columns": list(stage.columns), "rows": [{c: r.get(c) for c in stage.columns} for r in rows]}  # fmt: skip


def left_by(place: Path, stage: Stage) -> list[dict[str, Any]]:
    """The rows of a stage's table; none where it did not come to that."""
    file = place / stage.table
    if stage.table == "sweep.csv":  # a sweep that was stopped has its points, and no table yet
        if file.is_file():
            with file.open(newline="") as table:
                return [dict(row) for row in csv.DictReader(table)]
        points = sorted(place.glob("*/result.json"))
        return [{"verdict": json.loads(p.read_text())["verdict"]} for p in points]
    if not file.is_file():
        return []
    document = json.loads(file.read_text())
    return document if isinstance(document, list) else [{c: document[c] for c in stage.columns}]


def timed(command: list[str], env: dict[str, str], seconds: float) -> tuple[int | None, float, str]:
    """Exit code (None when stopped), seconds and output; a command out of time is asked to end first."""
    start = time.monotonic()
    process = subprocess.Popen(command, cwd=ROOT, env=env, text=True, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, start_new_session=True)  # fmt: skip
    try:
        text, _ = process.communicate(timeout=seconds)
        return process.returncode, time.monotonic() - start, text
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGINT)
        try:
            text, _ = process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            text, _ = process.communicate()
        return None, time.monotonic() - start, text


def where(env: dict[str, str]) -> dict[str, Any]:
    """The machine, asked of the same interpreter that runs the stages."""
    code = (
        "import json, torch, transformers; c = torch.cuda.is_available(); print(json.dumps({"
        "'torch': torch.__version__, 'transformers': transformers.__version__, 'cuda': torch.version.cuda,"
        "'device': torch.cuda.get_device_name() if c else 'cpu',"
        "'device_bytes': torch.cuda.get_device_properties(0).total_memory if c else None}))"
    )
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    facts = json.loads(done.stdout) if done.returncode == 0 else {"problem": done.stderr[-300:]}
    return {"python": platform.python_version(), "cores": os.cpu_count(), **facts}


def page(document: dict[str, Any]) -> str:
    """The same as Markdown, one table a stage."""
    facts = ", ".join(f"{k} {v}" for k, v in document["where"].items() if v is not None)
    out = [f"Measured with {facts}.\n"]
    for stage in document["stages"]:
        elsewhere = stage.get("device", document["where"].get("device")) != document["where"].get(
            "device"
        )
        out.append(f"## {stage['name']}: {stage['outcome']}\n\n`{stage['command']}`\n")
        out += [f"On {stage['device']}.\n"] * elsewhere
        if rows := stage["rows"]:
            columns = [c for c in stage["columns"] if any(c in row for row in rows)]
            out += ["| " + " | ".join(columns) + " |", "|" + "---|" * len(columns)]
            out += ["| " + " | ".join(shown(row.get(c)) for c in columns) + " |" for row in rows]
            out.append("")
    return "\n".join(out)


def shown(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else "" if value is None else str(value)


def quoted(argument: str) -> str:
    return f"'{argument}'" if set(argument) & set("[]{} ") else argument


def main(arguments: list[str] | None = None, say: Callable[[str], object] = print) -> int:
    """0 when no stage failed (out of time is no failure)."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "gpu")
    parser.add_argument("--wheels", type=Path, help="a folder of wheels to unpack first")
    parser.add_argument(
        "--collect", metavar="PYTHON", help="only fill --wheels, for that Python (3.12)"
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="sizes for a test on a CPU")
    parser.add_argument("--only", nargs="*", default=[], metavar="STAGE", help="these stages alone")
    parser.add_argument(
        "--seconds",
        type=float,
        default=460,
        help="for everything; what is out of time runs by --only",
    )
    asked = parser.parse_args(arguments)
    if asked.collect:
        collected(asked.wheels or ROOT / ".whl", asked.collect)
        return 0
    failed = record(
        asked.out.absolute(), asked.device, asked.small, asked.wheels, asked.seconds, asked.only
    )
    say(f"{asked.out}/gpu.json and gpu.md; stages failed: {failed}")
    return min(failed, 1)


if __name__ == "__main__":
    sys.exit(main())
