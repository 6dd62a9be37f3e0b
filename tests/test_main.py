"""The front door: help at once, mistakes answered in one message, any directory, offline, a wheel."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# (arguments, exit code, what the message must say)
MISTAKES = [
    (["modle=tiny"], 2, "Did you mean 'model'"),
    (["model=tinny"], 2, "Did you mean 'tiny'"),
    (["model.sed=1"], 2, "'model.sed' is not a key"),
    (["cache=manul"], 2, "Did you mean 'manual'"),
    (["task=resum"], 2, "Did you mean 'resume'"),
    (["steps=abc"], 2, "Integer"),
    (["steps=-1"], 2, "1 or more"),
    (["dtype=float31"], 2, "Did you mean 'float32'"),
    (["+typo=1"], 2, "'typo' is not a key"),
    (["device=cuda:9"], 2, "no usable CUDA device"),
    (["model=path"], 2, "model.path=DIR"),
    (["model=path", "model.path=nowhere"], 2, "config.json"),
    (["model=shape", "model.architecture=lama"], 2, "Did you mean 'llama'"),
    (["model=gpt2"], 2, "model=path model.path=DIR"),
    (["task=resume"], 2, "snapshot=DIR"),
    (["task=resume", "snapshot=nowhere"], 2, "no such directory"),
    (["prompt=file"], 2, "prompt.path=FILE"),
    (["prompt=file", "prompt.path=nowhere"], 2, "nowhere"),
    (["text=", "tokenizer=raw"], 2, "empty"),
    (["steps=5000"], 2, "positions"),
    (["sampling=sample", "sampling.temperature=0"], 2, "sampling=greedy"),
    (["model=tiny_gpt2", "tokenizer=chat", "cache=manual", "model.architecture=bert"], 2, "bert"),
    (["prune=keep_last", "prune.ratio=2"], 2, "0 < ratio <= 1"),
    (["task=inspect"], 2, "snapshot=DIR"),
    (["name"], 2, "name"),
]


@pytest.mark.parametrize(
    "arguments, code, says", MISTAKES, ids=lambda v: " ".join(v) if isinstance(v, list) else None
)
def test_a_mistake_is_answered_by_one_message(harness, arguments, code, says) -> None:
    done = harness(*arguments)
    assert done.code == code, done.out
    assert says in done.out and "Traceback" not in done.out
    assert done.out.count("harness: ") == 1


def test_a_tracking_server_that_is_away_costs_no_result(harness) -> None:
    done = harness("track.uri=http://127.0.0.1:9", "steps=2", "prompt=text")
    assert done.code == 0 and "Traceback" not in done.out
    assert "The result is safe in" in done.out
    assert (done.folders[0] / "pending.json").is_file()


def test_help_lists_every_group_and_answers_at_once(process) -> None:
    start = time.perf_counter()
    done = process("--help")
    seconds = time.perf_counter() - start
    assert done.code == 0
    for word in ("task", "model", "tokenizer", "cache", "prune", "save", "manual", "tiny_gemma3"):
        assert word in done.out
    assert max(len(line) for line in done.out.splitlines()) <= 80
    assert seconds < 2  # generous on a busy machine; it takes about 0.05 s


def test_every_task_has_a_help_with_an_example(process) -> None:
    from harness import config, help

    for name in help.options(config.conf_dir(), "task"):
        text = help.show(config.conf_dir(), [f"task={name}", "--help"])
        assert "example:" in text, name
        assert len(text.splitlines()) <= 24


def test_cfg_job_prints_the_composed_config(process) -> None:
    done = process("--cfg", "job", "cache=cloned")
    assert done.code == 0 and "name: cloned" in done.out


def test_from_another_directory_as_its_own_process_offline(process, place) -> None:
    done = process("steps=4", "prompt=text", env={"HF_HUB_OFFLINE": "1"})
    assert done.code == 0, done.out
    assert done.result["verdict"] in ("exact", "equivalent")
    assert (place / "runs" / "mlflow.db").is_file()
    assert "\x1b[" not in done.out  # no colour codes when nobody looks
    assert (
        max(
            len(line)
            for line in done.out.splitlines()
            if "runs/" not in line and "continuation" not in line
        )
        <= 100
    )


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
    """Build the wheel, install it without its dependencies beside ours, run it elsewhere."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "-q"]
    subprocess.run([*pip, "wheel", "--no-deps", "-w", tmp_path / "w", ROOT], check=True)
    (wheel,) = (tmp_path / "w").glob("*.whl")
    subprocess.run([*pip, "install", "--no-deps", "--target", tmp_path / "site", wheel], check=True)
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    done = subprocess.run([sys.executable, "-m", "harness", "steps=4"], cwd=tmp_path, env=env,
                          capture_output=True, text=True)  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert list(tmp_path.glob("runs/experiment/*/result.json"))
