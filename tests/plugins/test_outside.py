"""A policy from a user's own folder: chosen, recorded as data, and imported by an audit only on trust."""

import pytest

POLICY = """
from harness.prune import Policy

class EveryOther(Policy):
    def score(self, layer, rank, keep):
        return (rank % 2 == 0).double()
"""


@pytest.fixture
def outside(place):
    (place / "conf" / "prune").mkdir(parents=True)
    (place / "every_other.py").write_text(POLICY)
    yaml = "# Every other token.\n_target_: every_other.EveryOther\nname: mine\nratio: 0.5\n"
    (place / "conf" / "prune" / "mine.yaml").write_text(yaml)
    return place


def test_a_policy_from_outside_prunes_and_is_audited_on_trust_alone(process, outside):
    made = process("--config-dir", "conf", "prune=mine", "plugins.path=.", "compare=lossy",
                   "steps=4", "track=none")  # fmt: skip
    assert made.code == 0, made.out
    assert made.result["size"]["kept_tokens"] < 0.6 * made.result["size"]["tokens"]
    audit = ["task=audit", f"run={made.folders[0]}", "track=none"]
    refused = process(*audit)
    assert refused.code == 2 and "plugins.trust=[every_other]" in refused.out
    assert "Traceback" not in refused.out
    trusted = process(*audit, "plugins.trust=[every_other]", "plugins.path=.")
    assert trusted.code == 0, trusted.out


def test_a_target_that_cannot_be_imported_is_one_message(process, outside):
    missing = process("--config-dir", "conf", "prune=mine", "steps=4", "track=none",
                      env={"PYTHONSAFEPATH": "1"})  # fmt: skip
    assert (
        missing.code == 2 and "plugins.path=DIR" in missing.out and "Traceback" not in missing.out
    )
