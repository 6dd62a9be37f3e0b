"""The front door: help at once, any directory, offline, a sweep, a wheel."""

import os
import resource
import shlex
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import pytest

from harness import __version__

ROOT = Path(__file__).resolve().parent.parent


def test_a_tracking_server_that_is_away_costs_no_result(harness) -> None:
    done = harness("track.uri=http://127.0.0.1:9", "steps=2", "prompt=text")
    assert done.code == 0 and "Traceback" not in done.out
    said = " ".join(done.out.split())
    assert "The result is safe in" in said and "track.uri=ADDRESS` does." in said
    assert "track.experiment" not in said
    assert (done.folders[0] / "pending.json").is_file()


def test_help_lists_every_group_and_answers_at_once() -> None:
    start = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "harness", "--help"], cwd=ROOT, capture_output=True, text=True)  # fmt: skip
    end = resource.getrusage(resource.RUSAGE_CHILDREN)
    seconds = end.ru_utime + end.ru_stime - start.ru_utime - start.ru_stime
    assert done.returncode == 0
    for word in ("task", "model", "tokenizer", "cache", "prune", "save", "manual", "tiny_gemma3"):
        assert word in done.stdout
    assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert 0.02 < seconds < 1  # of the processor, however busy; it takes about 0.1


@pytest.mark.parametrize(
    "points, given",
    [(0, ["--help"]), (2, ["-m", "task=inspect", "track=none"])],
    ids=["help", "sweep"],
)
def test_what_is_told_may_be_cut_short(tmp_path, points, given) -> None:
    """As by `| head`: the reader has gone before anything is written."""
    ours, theirs = os.pipe()
    os.close(ours)
    kept = [f"{ROOT}/runs/reference/tiny-{cache}-none/snapshot" for cache in ("view", "cloned")]
    given += [f"snapshot={','.join(kept)}"] * bool(points)
    done = subprocess.run([sys.executable, "-m", "harness", *given], cwd=tmp_path, stdout=theirs,
                          stderr=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)})  # fmt: skip
    os.close(theirs)
    assert done.returncode == 0 and "Broken pipe" not in done.stderr
    assert len(list(tmp_path.glob("runs/inspect/*/*/inspect.json"))) == points


def test_every_task_has_a_help_with_an_example(process) -> None:
    from harness import config
    from harness.cli import help

    for name in config.options("task"):
        text = help.show(config.conf_dir(), [f"task={name}", "--help"])
        assert "example:" in text, name
        assert len(text.splitlines()) <= 24


def test_version_is_ours(harness) -> None:
    done = harness("--version")
    assert done.code == 0 and done.out.startswith(f"harness {__version__}\n")
    assert "torch 2." in done.out
    assert f'version = "{__version__}"' in (ROOT / "pyproject.toml").read_text()


@pytest.mark.parametrize(
    "flags, says, not_says",
    [
        (["--cfg", "job", "--package", "sampling"], "@package sampling", "runs_dir"),
        (["--cfg", "job", "--resolve"], "name: experiment", "${task.name}"),
        (["--info", "searchpath"], "conf", "Traceback"),
    ],
)
def test_what_hydra_shows_is_shown(harness, flags, says, not_says) -> None:
    done = harness(*flags)
    assert done.code == 0 and says in done.out and not_says not in done.out


def test_cfg_job_prints_the_composed_config(process) -> None:
    done = process("--cfg", "job", "cache=cloned")
    assert done.code == 0 and "name: cloned" in done.out


# lines of figures, of which each is whole in a pipe, for whoever searches them
WHOLE = ("continuation:", "size:", "time:", "your cache:", "judged by:")


def test_from_another_directory_as_its_own_process_offline(process, place) -> None:
    done = process("steps=4", "prompt=text", "report.verbose=true", env={"HF_HUB_OFFLINE": "1"})
    assert done.code == 0, done.out
    assert done.result["verdict"] in ("exact", "equivalent")
    assert (place / "runs" / "mlflow.db").is_file()
    assert "\x1b[" not in done.out  # no colour codes when nobody looks
    assert (
        max(
            len(line)
            for line in done.out.splitlines()
            if "runs/" not in line and " -m harness " not in line and not line.startswith(WHOLE)
        )
        <= 100
    )
    lines = done.out.splitlines()
    for label in (*WHOLE, "next:", "mlflow run:"):
        (place_of,) = (n for n, line in enumerate(lines) if line.startswith(label))
        assert not lines[place_of + 1].startswith("  "), "none is folded"


def test_runs_cannot_be_written(process, place) -> None:
    (place / "runs").write_text("a file in the way")
    done = process("steps=2")
    assert done.code == 2 and "Traceback" not in done.out and "runs" in done.out


def test_a_sweep_covers_every_combination(harness) -> None:
    done = harness(
        "-m", "cache=dynamic,cloned,manual", "prompt=turns,text", "save=safetensors", "steps=4"
    )
    assert done.code == 0, done.out
    assert len(done.folders) == 6
    assert {r["verdict"] for r in done.results} <= {"exact", "equivalent"}


def test_a_failed_point_does_not_stop_the_others(harness) -> None:
    done = harness("-m", "model=tiny,tiny_gpt2", "cache=manual", "steps=2")
    verdicts = {r["verdict"] for r in done.results}
    assert len(done.folders) == 2 and done.code in (0, 2)
    assert verdicts & {"exact", "equivalent"}


@pytest.mark.slow
def test_an_installed_wheel_runs_anywhere(tmp_path) -> None:
    """Build the wheel, install it without its dependencies beside ours, and use its command in an
    empty directory: the main job, and the dashboard by the very words that the job printed."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path / "w", ROOT], check=True)
    (wheel,) = (tmp_path / "w").glob(f"harness-{__version__}-*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", tmp_path / "site", wheel], check=True)
    (tmp_path / "empty").mkdir()
    elsewhere = {"cwd": tmp_path / "empty", "text": True, "stdout": subprocess.PIPE,
                 "env": {**os.environ, "PYTHONPATH": str(tmp_path / "site")}}  # fmt: skip
    command = str(tmp_path / "site" / "bin" / "harness")
    said = subprocess.run([command, "--version"], check=True, **elsewhere).stdout
    assert said.startswith(f"harness {__version__}\n")
    done = subprocess.run([command, "steps=4"], stderr=subprocess.PIPE, **elsewhere)
    assert done.returncode == 0, done.stdout + done.stderr
    assert list((tmp_path / "empty").glob("runs/experiment/*/result.json"))
    line = next(x for x in done.stdout.splitlines() if x.startswith("dashboard:"))
    words = [*shlex.split(line.removeprefix("dashboard:")), f"port={free_port()}"]
    server = subprocess.Popen(words, start_new_session=True, **elsewhere)
    try:
        address = server.stdout.readline().split()[1].partition("#")[0]
        assert answers(address, until=time.time() + 120), address
    finally:
        os.killpg(server.pid, 15)
        server.wait(20)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def answers(address: str, until: float) -> bool:
    while time.time() < until:
        try:
            return urllib.request.urlopen(address, timeout=2).status == 200
        except OSError:
            time.sleep(0.3)
    return False
