"""Without numba everything works: slower, as exactly, and with one line that says so."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from harness.report.terminal.console import Say

ROOT = Path(__file__).resolve().parents[2]

# a child process sees this first, and keeps the line of whoever imports them in spite of it
HIDDEN = """
import sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("numba", "llvmlite"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
"""

# every cache goes on from one state, few tokens and many at a time; errors against float64, by cache
CONTINUED = """
import sys, warnings
import torch
from harness.attention.kernels.cpu import program, stream
from harness.cache.registry import decoder
from harness.pipeline import yardstick
from tests.cache.test_decoders import built, captured, settings

warnings.simplefilter("always")
compiled = "numba" in sys.argv
with warnings.catch_warnings(record=True) as said:
    for dtype in (torch.float32, torch.bfloat16):
        loaded = built(hidden_size=320, intermediate_size=700, head_dim=64, max_position_embeddings=2048)
        loaded.model.to(dtype)
        state = captured(loaded, tokens=1200).state
        ids = torch.randint(3, 96, (1, 9), generator=torch.Generator().manual_seed(2))
        oracle = yardstick.alone(loaded.oracle, state, ids)
        plain = (yardstick.alone(loaded, state, ids).double() - oracle).abs().max()
        for name in ("manual", "view", "static", "cloned", "auto"):
            ours = decoder(loaded, state, settings(name))
            logits = torch.cat([ours.step(part) for part in ids.split([1, 1, 3, 1, 1, 1, 1], 1)], 1)
            error = (logits.double() - oracle).abs().max()
            print(name, str(dtype), float(error / plain))
assert program.available() == compiled == ("numba" in sys.modules)
weight = torch.randn(512, 512)
assert stream.serves(1, weight.numel(), weight) == compiled
print("said", [str(w.message) for w in said if "numba" in str(w.message)])
"""


@pytest.fixture
def run(tmp_path):
    def run(*arguments, hidden=True, cwd=ROOT):
        (tmp_path / "sitecustomize.py").write_text(HIDDEN if hidden else "")
        env = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
        done = subprocess.run(
            [sys.executable, *arguments], cwd=cwd, env=env, capture_output=True, text=True,
            timeout=500,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done

    return run


@pytest.mark.slow
def test_the_decoders_pass_their_own_tests(run):
    """What they must be to the library, to their own commit and to each other, run again without it."""
    chosen = "goes_on_as or own_continuation or a_committed_state or view"
    done = run("-m", "pytest", "-n", "0", "-p", "no:cacheprovider", "-k", chosen,
               "tests/cache/test_decoders.py")  # fmt: skip
    assert int(re.search(r"(\d+) passed", done.stdout)[1]) > 20 and "failed" not in done.stdout


@pytest.mark.parametrize("hidden", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_every_cache_is_as_near_to_float64_as_the_library(run, hidden):
    """Where programs would run, and, with numba in sight, do: the same errors, and a line or none."""
    lines = run("-c", CONTINUED, *([] if hidden else ["numba"]), hidden=hidden).stdout.splitlines()
    assert len(lines) == 11
    for line in lines[:-1]:
        assert float(line.split()[-1]) <= 2, line
    assert ("without numba decode steps are slower" in lines[-1]) == hidden
    assert lines[-1].count("pip install 'harness[kernels]'") == hidden


@pytest.mark.slow
def test_the_console_says_it_once_and_the_log_why(run, harness, tmp_path):
    """However many steps there are; where numba is in sight, nobody says anything."""
    done = run("-m", "harness", "steps=4", "track=none", "cache=manual", cwd=tmp_path)
    assert done.stderr.count("without numba") == 1 and "without numba" not in done.stdout
    (log,) = tmp_path.glob("runs/experiment/*/harness.log")
    assert log.read_text().count("No module named 'numba'") == 1
    assert "without numba" not in harness("steps=2", "track=none", "cache=manual").out


def test_a_process_of_many_jobs_says_it_once(capfd):
    for job in (Say(quiet=True), Say(), Say()):
        job.stage("work")
        job.once("slower here")
        job.note("and on")
    assert capfd.readouterr().err == "  work ... slower here ... and on ...   work ... and on ... "
