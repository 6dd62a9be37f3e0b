"""Record under one Transformers, audit and resume under another, both ways: the figures behind the
claim that a record outlives its libraries. `make across` runs it; it fetches packages:

    python tests/task/across_versions.py 5.17.0 5.23.0
"""

import json
import os
import subprocess
import sys
import tempfile
from importlib import metadata
from itertools import product
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement

from harness.save import store

ROOT = Path(__file__).resolve().parents[2]
VERSIONS = ("5.17.0", "5.23.0")  # the oldest and the newest that pyproject.toml declares
MODELS = ("tiny", "tiny_gpt2", "tiny_gemma3")
RECORDED = (f"model={','.join(MODELS)}", "cache=manual,cloned")


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


def harness(version: str, place: Path, name: str, *arguments: str) -> tuple[int, Path]:
    """The command line under one version: `(exit code, the folder it wrote)`."""
    path = os.pathsep.join([str(place / version), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-m", "harness", *arguments, f"name={name}", f"runs_dir={place}", "track=none"],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": path, "HF_HUB_OFFLINE": "1"},
        capture_output=True, text=True,
    )  # fmt: skip
    if not (place / name).is_dir():
        raise SystemExit(f"{name} left nothing behind:\n{done.stdout}\n{done.stderr}")
    return done.returncode, max((place / name).iterdir())


def record(version: str, place: Path) -> Path:
    """A sweep over the models under `version`; its folder."""
    code, folder = harness(version, place, f"recorded-{version}", "-m", *RECORDED,
                           "hydra.sweep.subdir=${model.name}-${cache.name}")  # fmt: skip
    assert code == 0, f"the sweep cannot be recorded under {version}: {folder}"
    return folder


def audited(sweep: Path, version: str, place: Path, name: str) -> tuple[dict[str, Any], float]:
    """The audit of `sweep` under `version`, and the largest difference in any tensor of any state."""
    _, folder = harness(version, place, name, "task=audit", f"run={sweep}")
    largest = 0.0
    for point in (folder / "again").iterdir():
        ran = json.loads((point / "result.json").read_text())["environment"]["versions"]
        assert ran["transformers"] == version, "the overlay was not used"
        largest = max(largest, apart(sweep / point.name / "snapshot", point / "snapshot"))
    return json.loads((folder / "audit.json").read_text()), largest


def apart(a: Path, b: Path) -> float:
    """The largest absolute difference between two snapshots' tensors (K/V, positions, logits)."""
    pairs = zip(store.load(a)[0].tensors(), store.load(b)[0].tensors(), strict=True)
    return max(
        float((x.double() - y.double()).abs().max()) for (_, x), (_, y) in pairs if x.numel()
    )


def resumed(point: Path, model: str, version: str, place: Path, name: str) -> str:
    """What `task=resume` under `version` says about the snapshot in `point`."""
    code, folder = harness(version, place, name, "task=resume", f"model={model}", "steps=16",
                           f"snapshot={point / 'snapshot'}", "text= what is k ?")  # fmt: skip
    result = json.loads((folder / "result.json").read_text())
    if "metrics" not in result:
        return f"{model} {result['verdict']}, exit {code}: {result['reason']}"
    return (f"{model} {result['verdict']}, largest logit difference "
            f"{result['metrics']['max_abs_diff']:.2g} (noise floor {result['noise_floor']['max_abs_diff']:.2g})")  # fmt: skip


def main(versions: list[str]) -> int:
    """Every ordered pair of versions; 1 when any audit differs or any snapshot is not equivalent."""
    place = Path(tempfile.mkdtemp(prefix="across-versions-"))
    for version in versions:
        overlay(version, place)
    records = {version: record(version, place) for version in versions}
    worst = 0
    for old, new in product(versions, repeat=2):
        document, largest = audited(records[old], new, place, f"audit-{old}-{new}")
        print(f"recorded {old}, audited {new}: {document['points']} runs {document['verdict']}, "
              f"compared {document['compared']}, largest difference in any tensor {largest:.2g}")  # fmt: skip
        for row in document["differences"]:
            print(f"    {row.get('point')} {row['what']}: {str(row['recorded'])[:40]} -> {str(row['found'])[:40]}")  # fmt: skip
        worst |= document["verdict"] != "same"
        for model in MODELS if old != new else ():
            said = resumed(records[old] / f"{model}-manual", model, new, place, f"resume-{old}-{new}-{model}")  # fmt: skip
            print(f"saved {old}, resumed {new}: {said}", flush=True)
            worst |= not said.startswith((f"{model} exact", f"{model} equivalent"))
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or list(VERSIONS)))
