"""Where and how a result was measured: what is needed to run it again, or to explain a difference."""

import hashlib
import os
import platform
import subprocess
import sys
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = (
    "torch", "transformers", "tokenizers", "safetensors", "numpy", "hydra-core", "omegaconf",
    "mlflow", "pandera", "pandas", "blake3",
)  # fmt: skip


def environment(cfg: Any, device: str, attention: str) -> dict[str, Any]:
    """JSON-able record: versions, hardware, threads, seeds, dtype, git state, command line."""
    import torch

    return {
        "python": platform.python_version(),
        "platform": platform.system() + "-" + platform.machine(),
        "versions": _versions(),
        "cpu": _cpu(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if device.startswith("cuda") else None,
        "device": device,
        "dtype": cfg.dtype,
        "attention_implementation": attention,
        "threads": torch.get_num_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "seed": cfg.seed,
        "sampling_seed": cfg.sampling.seed if cfg.sampling.seed is not None else cfg.seed,
        "git": _git(),
        "command": _command(),
    }


@cache
def _versions() -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _command() -> list[str]:
    """The arguments as typed; the program's own path is left out, it differs between machines."""
    return ["python", "-m", "harness", *sys.argv[1:]]


@cache
def _cpu() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or "unknown"


@cache
def _git() -> dict[str, Any]:
    """Commit and digest of uncommitted changes of the harness's own checkout, if it is one."""
    here = Path(__file__).resolve().parent

    def git(*args: str) -> bytes | None:
        try:
            done = subprocess.run(["git", *args], cwd=here, capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return done.stdout if done.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    diff = git("diff", "HEAD")
    return {
        "commit": commit.decode().strip() if commit else None,
        "dirty": bool(diff),
        "diff_digest": hashlib.sha256(diff).hexdigest() if diff else None,
    }
