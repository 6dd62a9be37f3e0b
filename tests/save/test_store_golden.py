"""What older harnesses wrote is read by this one, bit for bit; what newer ones wrote is refused."""

import shutil
from pathlib import Path

import pytest
from store_states import apart, assert_same, grown, make_state

from harness.errors import SnapshotInvalid
from harness.save import registry, store
from harness.snapshot import manifest as manifests

GOLDEN = Path(__file__).parent / "golden"
CASES = sorted(p for v in GOLDEN.glob("v*") for p in v.iterdir())


def test_there_is_one_of_every_version_and_format():
    formats = set(registry.shipped()) - {"memory"}
    for version in range(1, manifests.FORMAT_VERSION + 1):
        assert {p.name for p in (GOLDEN / f"v{version}").iterdir()} == formats


@pytest.mark.parametrize("case", CASES, ids=[f"{p.parent.name}-{p.name}" for p in CASES])
def test_a_golden_snapshot_is_read(case, tmp_path):
    shutil.copytree(case, tmp_path / "x")  # a checkout may be anything, also hard linked
    parent = make_state("bfloat16", tokens=8)
    parent = apart(parent) if case.parent.name == "v2" else parent
    assert_same(parent, store.load(tmp_path / "x" / "a")[0])
    back, manifest = store.load(tmp_path / "x" / "b")
    assert_same(grown(parent, 3, 700), back)
    assert manifest["lineage"]


@pytest.mark.parametrize("version", [manifests.FORMAT_VERSION + 1, 99])
def test_a_newer_format_is_refused_and_said_so(tmp_path, version):
    shutil.copytree(GOLDEN / f"v{manifests.FORMAT_VERSION}" / "safetensors" / "a", tmp_path / "a")
    path = tmp_path / "a" / "manifest.json"
    manifest = manifests.parse(path.read_bytes(), "golden")
    manifest["format_version"] = version
    manifest["id"] = manifests.identity(manifest)
    path.write_bytes(manifests.dump(manifest))
    with pytest.raises(SnapshotInvalid, match=f"format_version {version} is newer .*upgrade"):
        store.load(tmp_path / "a")


def test_the_goldens_are_small():
    assert (
        sum(p.stat().st_size for p in GOLDEN.rglob("*") if p.is_file())
        < 200_000 * manifests.FORMAT_VERSION
    )
