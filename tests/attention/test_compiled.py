"""Compiled code has the same last bits whether this run or an earlier one had it compiled."""

import subprocess
import sys
from pathlib import Path

import numba
import pytest

from harness.attention.kernels.cpu import compiled

ROOT = Path(__file__).resolve().parents[2]
# a digest of what a program computes, and the helpers that this process compiled by themselves
BITS = """
from hashlib import sha256
import torch
from harness.attention.kernels.cpu import arithmetic, stream
torch.manual_seed(0)
query, key, value = (torch.randn(1, 3, n, 40) for n in (1, 77, 77))
made = stream.attend(query, [(key.bfloat16(), value.bfloat16())])
helpers = [f for f in vars(arithmetic).values() if getattr(f, "overloads", None)]
print(sha256(made.numpy().tobytes()).hexdigest(), len(helpers))
"""


class Asked(Exception):
    pass


def test_what_the_cache_lacks_is_compiled_by_another_process(monkeypatch, tmp_path):
    """Here helpers would exist twice, and the loader could take the ones that no later run has."""

    def run(command, **_):
        raise Asked(command[-1])

    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(subprocess, "run", run)
    with pytest.raises(Asked, match=r"runner\('bfloat16'"):
        compiled.runner.__wrapped__("bfloat16")


@pytest.mark.slow
def test_cold_and_warm_have_the_same_bits(monkeypatch, tmp_path):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    command = [sys.executable, "-c", BITS]
    cold, warm = (subprocess.check_output(command, cwd=ROOT, text=True) for _ in range(2))
    assert cold == warm and cold.split()[1] == "0"
    assert [*tmp_path.rglob("*.nbc")], "nothing was kept"
