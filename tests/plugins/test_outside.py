"""A variant from a user's own folder: chosen, recorded as data, and imported by an audit only on trust."""

import sys

import pytest

POLICY = """
from harness.prune import Policy

class EveryOther(Policy):
    def score(self, layer, rank, keep):
        return (rank % 2 == 0).double()
"""
YAML = "# Every other token.\n_target_: every_other.EveryOther\nname: mine\nratio: 0.5\n"
CHOSEN = ("--config-dir", "conf", "prune=mine", "compare=lossy", "steps=4")


@pytest.fixture
def outside(place, clean):
    """A folder with one policy and its YAML."""
    (place / "conf" / "prune").mkdir(parents=True)
    (place / "every_other.py").write_text(POLICY)
    (place / "conf" / "prune" / "mine.yaml").write_text(YAML)
    return place


def test_a_policy_from_outside_prunes_and_is_audited_on_trust_alone(harness, outside):
    made = harness(*CHOSEN, "plugins.path=.")
    assert made.code == 0, made.out
    assert made.result["size"]["kept_tokens"] < 0.6 * made.result["size"]["tokens"]
    sys.modules.pop("every_other")
    audit = ["task=audit", f"run={made.folders[0]}"]
    refused = harness(*audit, "plugins.path=.")
    assert refused.code == 2 and "plugins.trust=[every_other]" in refused.out
    assert "Traceback" not in refused.out and "every_other" not in sys.modules
    assert [line for line in refused.out.splitlines() if "harness:" in line] == [
        refused.out.strip().splitlines()[-1]
    ]
    trusted = harness(*audit, "plugins.trust=[every_other]", "plugins.path=.")
    assert trusted.code == 0, trusted.out


def test_an_audit_of_a_cache_from_outside_asks_for_its_file_and_accuses_nothing(harness, outside):
    (outside / "conf" / "cache").mkdir()
    (outside / "my_plain.py").write_text(
        "from harness.cache.cloned import Cloned\n\nclass Plain(Cloned):\n    def commit(self, branch=0):\n        return super().commit(branch)\n"
    )
    (outside / "conf" / "cache" / "plain.yaml").write_text(
        "# Mine.\n_target_: my_plain.Plain\nname: plain\n"
    )
    made = harness("--config-dir", "conf", "plugins.path=.", "cache=plain", "steps=2")
    assert made.code == 0, made.out
    audit = ("task=audit", f"run={made.folders[0]}", "plugins.trust=[my_plain]", "plugins.path=.")
    alone = harness(*audit)
    assert alone.code == 2 and "has cache=plain, an option of its maker's own" in alone.out
    assert "Say where it is: --config-dir DIR" in alone.out and "DIFFERS" not in alone.out
    assert harness("--config-dir", "conf", *audit).code == 0


@pytest.mark.parametrize(
    ("written", "asked", "read"),
    [
        ("1e-3", [], "0.001"),
        ("-2E6", ["prune.eps=1e-3"], "0.001"),
        ("1.5e3", ["prune.eps=0.5"], "0.5"),
        ("e3", [], "'e3'"),
    ],
)
def test_a_number_in_a_yaml_is_what_hydra_reads(harness, outside, written, asked, read):
    score = POLICY.replace("return (", "raise SystemError(repr(self.settings.eps)) or (")
    (outside / "every_other.py").write_text(score)
    (outside / "conf" / "prune" / "mine.yaml").write_text(f"{YAML}eps: {written}\n")
    wrong = harness(*CHOSEN, "plugins.path=.", *asked)
    assert f"SystemError: {read}\n" in wrong.out, wrong.out


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("every_other.EveryOther", "plugins.path=DIR"),
        ("json.NoSuch", "json has no NoSuch"),
        ("json.JSONDecoder", "is no harness.prune.Policy"),
    ],
)
def test_a_target_that_cannot_be_built_is_one_message(harness, outside, target, said):
    yaml = outside / "conf" / "prune" / "mine.yaml"
    yaml.write_text(YAML.replace("every_other.EveryOther", target))
    wrong = harness(*CHOSEN)
    assert wrong.code == 2 and said in wrong.out and "Traceback" not in wrong.out


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("import numpyy", "No module named 'numpyy'. In "),
        ("from harness import no_such", "importing every_other failed: ImportError: "),
        ("import json; json.nope", "importing every_other failed: AttributeError: "),
    ],
)
def test_what_fails_as_its_module_is_imported_is_told_by_its_line(harness, outside, line, said):
    (outside / "every_other.py").write_text(f"# mine\n{line}\n{POLICY}")
    wrong = harness(*CHOSEN, "plugins.path=.")
    assert wrong.code == 2 and said in wrong.out, wrong.out
    assert (
        f"every_other.py:2 (<module>): {line}" in wrong.out and "Give plugins.path" not in wrong.out
    )


def test_an_option_from_outside_is_suggested(harness, outside):
    near = harness("--config-dir", "conf", "prune=mine_", "steps=4")
    assert near.code == 2 and "mine" in near.out.replace("mine_", "")


ENCODER = """
from harness.tokenizer import Encoded, Encoder, account, plain

class Closed(Encoder):
    def encode(self, tokenizer, text, turns):
        ids = (*plain(tokenizer, text), *[tokenizer.eos_token_id] * self.settings.ends)
        return Encoded(ids, text, "closed", account(tokenizer, ids, {len(ids) - 1: "closed by ours"}))
"""


def test_a_tokenizer_policy_from_outside_says_which_ids_are_sent(harness, place, clean):
    (place / "conf" / "tokenizer").mkdir(parents=True)
    (place / "my_encoder.py").write_text(ENCODER)
    yaml = "# Closed by EOS.\n_target_: my_encoder.Closed\nname: closed\nends: 1\n"
    (place / "conf" / "tokenizer" / "closed.yaml").write_text(yaml)
    chosen = ("--config-dir", "conf", "plugins.path=.", "tokenizer=closed", "prompt=text",
              "prompt.text='let k be 5 .'", "steps=2")  # fmt: skip
    one, two = harness(*chosen), harness(*chosen, "tokenizer.ends=2")
    assert one.code == two.code == 0, one.out + two.out
    assert two.result["size"]["tokens"] == one.result["size"]["tokens"] + 1
    wrong = harness(*chosen, "tokenizer.bos=false")
    assert wrong.code == 2 and "tokenizer.bos is not read by tokenizer=closed" in wrong.out
