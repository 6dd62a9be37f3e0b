"""The packages that a GPU machine without network lacks, as wheels: collected where there is one, unpacked there."""

import subprocess
import sys
from importlib import metadata
from pathlib import Path


def installed(wheels: Path, site: Path) -> Path:
    """The wheels of a folder, unpacked to `site`."""
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-index", "--no-deps", "--no-compile"]
    subprocess.run(
        [*pip, "--upgrade", "--target", str(site), *map(str, wheels.glob("*.whl"))], check=True
    )
    return site


def collected(folder: Path, python: str) -> None:
    """Wheels of what the harness needs beside PyTorch and Transformers and theirs, for `python` on
    64-bit Linux. Nothing is installed."""
    have = {
        "torch",
        "transformers",
        "numpy",
    }  # what these need there, another version of them needs not
    wanted = set().union(*map(needed, ("blake3", "blosc2", "hydra-core", "omegaconf", "jinja2", "matplotlib",
                                       "pandas", "pandera", "rich", "pytest", "pytest-xdist")))  # fmt: skip
    folder.mkdir(parents=True, exist_ok=True)
    pip = [sys.executable, "-m", "pip"]
    linux = [f"--platform=manylinux_2_{n}_x86_64" for n in (39, 34, 28, 27, 24, 17)]
    binary = ["--only-binary=:all:", f"--python-version={python}", "--implementation=cp", *linux]
    for name in sorted(wanted - have):
        exact = f"{name}=={metadata.version(name)}"
        asked = ["--platform=manylinux2014_x86_64", "--no-deps", "-q", "-d", str(folder), exact]
        if subprocess.run([*pip, "download", *binary, *asked], capture_output=True).returncode:
            built = [
                *pip,
                "wheel",
                "-q",
                "--no-deps",
                "-w",
                str(folder),
                exact,
            ]  # source only, pure Python
            subprocess.run(built, check=True)
    size = sum(f.stat().st_size for f in folder.glob("*.whl"))
    print(f"{len(list(folder.glob('*.whl')))} wheels, {size / 2**20:.0f} MiB in {folder}")


def needed(name: str) -> set[str]:
    """A package and everything it needs, by the names of what is installed here."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    names: set[str] = set()
    waiting = [name]
    while waiting:
        name = canonicalize_name(waiting.pop())
        try:
            requires = metadata.requires(name) or []
        except metadata.PackageNotFoundError:
            continue
        if name not in names:
            names.add(name)
            asked = map(Requirement, requires)
            waiting += [
                r.name for r in asked if r.marker is None or r.marker.evaluate({"extra": ""})
            ]
    return names
