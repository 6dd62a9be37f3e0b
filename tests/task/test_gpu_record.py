"""What `make gpu` runs: the same stages, small and on a CPU; every command line of the full size composes."""

import json
import os
import sys

import pytest

from tests.task import gpu_record, gpu_wheels


def test_every_stage_is_a_command_line_that_composes(compose):
    for stage in gpu_record.stages("cpu", small=False):
        arguments = [a for a in stage.arguments if a != "-m"]
        first = [a.split(",")[0] if "{" not in a and "[" not in a else a for a in arguments]
        assert compose(*first).device == "cpu"


@pytest.mark.slow
def test_stages_leave_figures_and_a_page(tmp_path, capsys):
    asked = f"--device cpu --small --out {tmp_path} --only save_gpu"
    code = gpu_record.main(asked.split())
    assert code == 0, capsys.readouterr().out
    document = json.loads((tmp_path / "gpu.json").read_text())
    assert document["where"]["device"] == "cpu" and document["where"]["torch"]
    (saved,) = document["stages"]
    assert saved["outcome"] == "done"
    assert saved["rows"][0]["same_first_token"] and saved["rows"][0]["speedup"] > 0
    page = (tmp_path / "gpu.md").read_text()
    assert "## save_gpu: done" in page and saved["command"] in page


def test_a_stage_that_fails_or_runs_out_of_time_says_so(tmp_path):
    broken = gpu_record.Stage("broken", 60, ("task=repeat", "no_such_key=1"), "repeat.json", ())
    entry = gpu_record.ran(broken, tmp_path, dict(gpu_record.os.environ), 60)
    assert (
        entry["outcome"] == "failed"
        and "no_such_key" in (tmp_path / "broken/console.log").read_text()
    )
    late = gpu_record.ran(broken, tmp_path, {}, 1)
    assert late["outcome"] == "out of time" and late["rows"] == []


def test_a_command_out_of_time_is_ended_with_what_it_started():
    nested = "import subprocess, sys; print('begun', flush=True); subprocess.run([sys.executable, '-c', 'import time; time.sleep(60)'])"  # fmt: skip
    code, took, text = gpu_record.timed([sys.executable, "-c", nested], dict(os.environ), 3)
    assert code is None and took < 30 and "begun" in text


def test_wheels_are_asked_for_without_what_a_gpu_machine_has():
    needed = gpu_wheels.needed("hydra-core")
    assert {"hydra-core", "omegaconf", "antlr4-python3-runtime"} <= needed
    assert "torch" not in gpu_wheels.needed("pandera")
    assert "tokenizers" in gpu_wheels.needed("transformers")
