"""An installed package offers options by entry points: no folder and no path is named."""

import os
from pathlib import Path

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


def test_an_installed_package_brings_its_options(process, place):
    package, dist = place / "site" / "my_package", place / "site" / "my_package-1.0.dist-info"
    (package / "conf" / "prune").mkdir(parents=True)
    dist.mkdir()
    (dist / "METADATA").write_text(METADATA)
    (dist / "entry_points.txt").write_text(POINTS)
    (package / "__init__.py").write_text("")
    (package / "policy.py").write_text(POLICY)
    yaml = "# One of so many.\n_target_: my_package.policy.Oddly\nname: oddly\nevery: 3\n"
    (package / "conf" / "prune" / "oddly.yaml").write_text(yaml)
    env = {"PYTHONPATH": os.pathsep.join([str(ROOT), str(place / "site")])}
    made = process("prune=oddly", "prune.every=4", *RUN, env=env)
    assert made.code == 0 and made.result["size"]["kept_tokens"] == 24, made.out
    bare = process("prune=evenly", *RUN, env=env)  # no YAML: the group's shared keys alone
    assert bare.code == 0 and bare.result["size"]["kept_tokens"] == 24, bare.out
    near = process("prune=odly", *RUN, env=env)
    assert near.code == 2 and "Did you mean 'oddly'" in near.out, near.out
    refused = process("task=audit", f"run={made.folders[0]}", "track=none", env=env)
    assert refused.code == 2 and "plugins.trust=[my_package]" in refused.out, refused.out
    helped = process("--help", env=env)
    assert helped.code == 0 and "oddly" in helped.out and "evenly" in helped.out
