"""An installed package offers options by entry points: no folder and no path is named."""

import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
METADATA = "Metadata-Version: 2.1\nName: my-package\nVersion: 1.0\n"
POINTS = """[harness.prune]
oddly = my_package.policy:Oddly
evenly = my_package.policy:Evenly
"""
POLICY = """
from harness.prune import Policy

class Oddly(Policy):
    def score(self, layer, rank, keep):
        return (rank % self.settings.every == 1).double()

class Evenly(Policy):
    def score(self, layer, rank, keep):
        return (rank % 2 == 0).double()
"""
RUN = ("compare=lossy", "steps=1", "track=none", "compare.oracle=false", "prune.tokens=24")


@pytest.fixture
def installed(place):
    """The environment in which such a package is installed."""
    package, dist = place / "site" / "my_package", place / "site" / "my_package-1.0.dist-info"
    (package / "conf" / "prune").mkdir(parents=True)
    dist.mkdir()
    (dist / "METADATA").write_text(METADATA)
    (dist / "entry_points.txt").write_text(POINTS)
    (package / "__init__.py").write_text("")
    (package / "policy.py").write_text(POLICY)
    yaml = "# One of so many.\n_target_: my_package.policy.Oddly\nname: oddly\nevery: 3\n"
    (package / "conf" / "prune" / "oddly.yaml").write_text(yaml)
    return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(place / "site")])}


def test_an_installed_package_brings_its_options(process, installed):
    made = process("prune=oddly", "prune.every=4", *RUN, env=installed)
    assert made.code == 0 and made.result["size"]["kept_tokens"] == 24, made.out
    near = process("prune=odly", *RUN, env=installed)
    assert near.code == 2 and "Did you mean 'oddly'" in near.out, near.out


@pytest.mark.slow
def test_one_without_a_yaml_is_listed_and_its_record_trusted_by_name_alone(process, installed):
    bare = process("prune=evenly", *RUN, env=installed)  # the group's shared keys alone
    assert bare.code == 0 and bare.result["size"]["kept_tokens"] == 24, bare.out
    refused = process("task=audit", f"run={bare.folders[0]}", "track=none", env=installed)
    assert refused.code == 2 and "plugins.trust=[my_package]" in refused.out, refused.out
    helped = process("--help", env=installed)
    assert helped.code == 0 and "oddly" in helped.out and "evenly" in helped.out
