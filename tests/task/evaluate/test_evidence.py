"""`task=evaluate` counts no witness twice, and no cell stands under a budget it did not keep."""

import json

import pytest

from harness.errors import ConfigProblem
from harness.pipeline import environment
from harness.pipeline.evaluation import identity
from harness.pipeline.evaluation.cells import Cells
from harness.pipeline.prune import policy_of, pruned
from harness.prune.knorm import KNorm
from harness.snapshot.state import State

ASK = ("task=evaluate", "prompt=jsonl", "prompt.path=p.jsonl", "task.prunes=[none]", "steps=2")


def test_a_question_asked_twice_and_a_cache_named_twice_are_one_witness(harness, place) -> None:
    rows = [
        {"context": f"let k be {n} .", "question": "what is k ?", "expected": str(n)}
        for n in (1, 2, 1, 1)
    ]
    (place / "p.jsonl").write_text("\n".join(map(json.dumps, rows)))
    done = harness(*ASK, "task.asked=[after]", "task.caches=[manual,manual]")
    assert done.code == 0, done.out
    assert {r["n"] for r in json.loads((done.folders[0] / "evaluate.json").read_text())} == {2}


class Lazy(KNorm):
    """Says that it prunes."""

    def prune(self, state: State) -> State:
        return state


@pytest.mark.parametrize("name", ["knorm", "snapkv", "chain"])
def test_a_policy_that_keeps_more_than_its_budget_is_refused(captured, monkeypatch, name) -> None:
    stages = "prune.stages=[{name: knorm, ratio: 0.9}, {name: knorm, ratio: 0.5}]"
    apart = stages if name == "chain" else "prune.budget=adaptive"
    opened, one = captured(f"prune={name}", "prune.ratio=0.5", apart)
    policy, whole = policy_of(opened.cfg.prune), one.state
    small = pruned(policy, whole)
    assert small.kept_tokens < whole.kept_tokens
    monkeypatch.setattr(type(policy), "prune", Lazy.prune)
    with pytest.raises(ConfigProblem, match="its budget is"):
        pruned(policy, whole)


def test_answers_of_other_code_or_another_machine_are_not_gone_on_from(
    session, monkeypatch
) -> None:
    opened = session("task=evaluate", "task.prunes=[knorm]")
    cells = Cells(opened.cfg)
    before = identity(opened, cells, [])
    assert identity(opened, cells, []) == before
    cells._policies["knorm", 0.5] = Lazy(opened.cfg.prune.__class__(name="knorm", ratio=0.5))
    assert identity(opened, cells, []) != before  # a policy from outside, by its text
    cells = Cells(opened.cfg)
    for what, other in (("code", "other"), ("_cpu", "another")):  # whose last bits are others
        with monkeypatch.context() as patch:
            patch.setattr(environment, what, lambda other=other: other)
            assert identity(opened, cells, []) != before
    assert identity(opened, cells, []) == before


def test_codes_that_are_larger_than_what_they_code_are_told_as_large(harness, place) -> None:
    """A scale for each number: once told as the bytes of the numbers themselves."""
    row = {"context": "let k be 5 .", "question": "what is k ?", "expected": "5"}
    (place / "p.jsonl").write_text(json.dumps(row))
    done = harness(*ASK, "task.asked=[after]", "task.quantizers=[int4]", "quantize=int4", "quantize.group=1", "quantize.recent=0", "cache=manual")  # fmt: skip
    assert done.code == 0, done.out
    rows = json.loads((done.folders[0] / "evaluate.json").read_text())
    size = {r["quantize"]: r["kv_bytes"] for r in rows}
    assert size["int4"] > size["none"]
