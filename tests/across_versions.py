"""Record under one Transformers, audit under another, both ways: the figures behind the claim that
a record outlives its libraries. Run by hand, it fetches packages:

    python tests/across_versions.py 5.17.0 5.23.0
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parent.parent
CASES = (
    ("model=tiny", "cache=manual"),
    ("model=tiny_gpt2", "cache=cloned"),
    ("model=tiny_gemma3", "cache=cloned"),
)


def overlay(version: str, place: Path) -> Path:
    """A folder with that version, and with whatever it needs in another version than is here."""
    folder = place / version
    install(folder, f"transformers=={version}")
    (found,) = folder.glob("transformers-*.dist-info")
    needed = [Requirement(r) for r in metadata.Distribution.at(found).requires or []]
    for need in needed:
        if need.marker is None or need.marker.evaluate({"extra": ""}):
            try:
                here = metadata.version(need.name)
            except metadata.PackageNotFoundError:
                here = None
            if here is None or here not in need.specifier:
                install(folder, f"{need.name}{need.specifier}")
    return folder


def install(folder: Path, what: str) -> None:
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--upgrade"]
    subprocess.run([*pip, "--target", str(folder), what], check=True)


def harness(folder: Path, *arguments: str) -> subprocess.CompletedProcess:
    env = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]),
        "HF_HUB_OFFLINE": "1",
    }
    return subprocess.run([sys.executable, "-m", "harness", *arguments], cwd=ROOT, env=env,
                          capture_output=True, text=True)  # fmt: skip


def main(versions: list[str]) -> int:
    place = Path(tempfile.mkdtemp(prefix="across-versions-"))
    folders = {v: overlay(v, place) for v in versions}
    worst = 0
    for model, cache in CASES:
        for old in versions:
            name = f"{model.partition('=')[2]}-{old}"
            made = harness(
                folders[old], model, cache, f"name={name}", f"runs_dir={place}", "track=none"
            )
            if made.returncode:
                print(f"{model} under {old}: cannot be recorded: {made.stderr.strip()[-300:]}")
                worst = 1
                continue
            (record,) = (place / name).iterdir()
            for new in versions:
                worst |= audited(place, folders[new], model, record, old, new)
    return worst


def audited(place: Path, folder: Path, model: str, record: Path, old: str, new: str) -> int:
    name = f"audit-{record.parent.name}-{new}"
    done = harness(folder, "task=audit", f"run={record}", f"name={name}", f"runs_dir={place}", "track=none")  # fmt: skip
    (found,) = (place / name).iterdir()
    document = json.loads((found / "audit.json").read_text())
    ran = json.loads((found / "again" / "run" / "result.json").read_text())
    assert ran["environment"]["versions"]["transformers"] == new, "the overlay was not used"
    print(f"{model:<18} recorded {old}, audited {new}: {document['verdict']}, "
          f"compared {document['compared']}, exit {done.returncode}")  # fmt: skip
    for row in document["differences"]:
        print(f"    {row['what']}: {str(row['recorded'])[:40]} -> {str(row['found'])[:40]}")
    return done.returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["5.17.0", "5.23.0"]))
