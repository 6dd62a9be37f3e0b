"""Where and how a result was measured: what is needed to run it again, or to explain a difference."""

import hashlib
import os
import platform
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from harness.snapshot.digest import digest_document

PACKAGES = (
    "torch", "transformers", "tokenizers", "safetensors", "numpy", "hydra-core", "omegaconf",
    "mlflow", "pandera", "pandas", "blake3", "blosc2",
)  # fmt: skip
VARIABLES = (
    "OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_CBWR", "ONEDNN_MAX_CPU_ISA",
    "ATEN_CPU_CAPABILITY", "CUBLAS_WORKSPACE_CONFIG", "CUDA_VISIBLE_DEVICES", "PYTHONHASHSEED",
    "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "HF_HUB_OFFLINE",
)  # fmt: skip
PACKAGE = Path(__file__).resolve().parent.parent


def environment(cfg: Any, device: str, attention: str) -> dict[str, Any]:
    """JSON-able record: versions, hardware, threads, seeds, dtype, code state, command line."""
    import torch

    cuda = device.startswith("cuda")
    return {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "python": platform.python_version(),
        "platform": platform.system() + "-" + platform.machine(),
        "versions": _versions(),
        "cpu": _cpu(),
        "cpu_capability": torch.backends.cpu.get_cpu_capability(),
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
        "cuda": torch.version.cuda if cuda else None,
        "gpu_driver": _driver() if cuda else None,
        "device": device,
        "dtype": cfg.dtype,
        "attention_implementation": attention,
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "matmul_precision": torch.get_float32_matmul_precision(),
        "variables": {k: os.environ[k] for k in VARIABLES if k in os.environ},
        "seed": cfg.seed,
        "sampling_seed": cfg.sampling.seed if cfg.sampling.seed is not None else cfg.seed,
        "model_seed": cfg.model.seed if cfg.model.architecture else None,
        "code": code(),
        "git": checkout(),
        "command": command(),
    }


@cache
def packages() -> dict[str, str]:
    """Every installed distribution and its version."""
    versions = {d.metadata["Name"]: d.version for d in metadata.distributions()}
    return {str(k): str(v) for k, v in sorted(versions.items(), key=lambda kv: str(kv[0]).lower())}


@cache
def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for name in PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = None
    return versions


def command() -> list[str]:
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
def _driver() -> str | None:
    try:
        return Path("/proc/driver/nvidia/version").read_text().splitlines()[0]
    except (OSError, IndexError):
        return None


@cache
def code() -> str:
    """Digest of the harness's own source: also known in a wheel, where there is no git."""
    files = sorted([*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.css")])  # pages are of both
    return digest_document([[str(f.relative_to(PACKAGE)), f.read_text("utf-8")] for f in files])


@cache
def checkout() -> dict[str, Any]:
    """Commit and digest of uncommitted changes of the harness's own checkout, if it is one."""

    def git(*args: str) -> bytes | None:
        try:
            process = subprocess.run(["git", *args], cwd=PACKAGE, capture_output=True, timeout=20)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return process.stdout if process.returncode == 0 else None

    commit = git("rev-parse", "HEAD")
    diff = git("diff", "HEAD")
    # new files too, which no diff shows; `code` digests them
    changed = git("status", "--porcelain")
    return {
        "commit": commit.decode().strip() if commit else None,
        "dirty": bool(changed),
        "diff_digest": hashlib.sha256(diff).hexdigest() if diff else None,
    }
