"""A state that the thought made smaller: pruned or quantized, it goes on, is saved and is judged as chosen."""

from dataclasses import replace

import pytest
import torch
from begin import EPS, begun

from harness.errors import InputProblem
from harness.pipeline import drive
from harness.pipeline.diagnosis import diagnose
from harness.pipeline.rewind import cut
from harness.task.ui import picture
from harness.task.ui.handlers import pruned_message
from harness.task.ui.session import POLICIES, QUANTIZERS, PageSession
from harness.task.ui.snapshots import SnapshotStore
from harness.task.ui.verdict import UNASKED
from tests.pipeline.test_judge import Remembering


@pytest.mark.parametrize("policy", POLICIES)
def test_prune_holds_the_budget_and_the_thought_goes_on(thought, policy):
    one = begun(thought(), 4)
    before = one.branch.state
    assert one.prune(policy, 12) == before.tokens - 12
    assert one.branch.state.kept_tokens == 12 and before.kept_tokens == before.tokens
    held, bright = [0] * before.tokens, [0.0] * before.tokens
    for old, new in zip(before.layers, one.branch.state.layers, strict=True):
        heads = old.received.shape[1]
        kept = new.positions[0].expand(heads, 12).tolist()  # the tokens that each KV head holds
        for head, places in enumerate(kept):
            assert torch.equal(new.received[0, head], old.received[0, head][:, places])
            for place in places:
                bright[place] += float(old.received[0, head, :, place].sum())
        for place in set().union(*kept):
            held[place] += 1
    assert one.holders()[0].tolist() == held and sum(held) >= 12 * len(before.layers)
    assert one.brightness() == pytest.approx([b / max(h, 1) for b, h in zip(bright, held)])
    assert all(b == 0 for b, h in zip(one.brightness(), held) if not h)
    one.step()
    assert one.branch.state.kept_tokens == 13 and one.branch.growth[-2].kept == 12
    assert one.branch.state.documents["kv_format"]["pruned"][-1]["policy"] == policy


def test_the_verdict_of_a_whole_and_of_a_pruned_thought(thought):
    one = begun(thought(), 3)
    whole = one.verdict(8)
    assert whole.verdict in ("exact", "equivalent") and "recomputed" in whole.against
    assert whole.stored_bytes > 0 and whole.steps == 8 and whole.noise
    one.prune("knorm", 9)
    small = one.verdict(8)
    assert small.verdict == "exact" and "in memory" in small.against
    assert small.conclusion.endswith(UNASKED) and UNASKED not in whole.conclusion
    assert one.store.names() == []  # the proof is no snapshot of the person's
    assert not list(one.scratch.rglob("manifest.json"))  # nor is it left anywhere else


def test_what_a_model_keeps_outside_of_its_cache_is_missed_by_a_pruned_thought(
    session, tmp_path, monkeypatch
):
    """Beside memory too: the thought in memory leaves on the model what the restored one would want."""
    import harness

    opened = session("task=ui", "cache=view")
    model = Remembering(opened.loaded.model.config).eval()
    model.load_state_dict(opened.loaded.model.state_dict())
    remembers = replace(opened, loaded=harness.wrap(model, opened.loaded.tokenizer))
    one = begun(
        PageSession(remembers, SnapshotStore(tmp_path / "snapshots", opened.cfg.save), tmp_path), 3
    )
    one.prune("keep_last", 12)
    assert one.verdict(8).verdict in ("drifted", "diverged")
    monkeypatch.setattr(drive, "aside", lambda loaded, state: None)
    assert one.verdict(8).verdict == "exact"


def test_what_was_quantized_can_be_saved_loaded_and_judged(thought):
    one = begun(thought(), 2)
    whole = one.branch.state
    one.quantize("fp8_e4m3")
    made = one.verdict(4)
    assert made.verdict != "exact" and "recomputed" in made.against
    assert made.conclusion.startswith("Restore: as saved, within rounding. Quantizing: ")
    one.save("small")
    expected = one.branch
    one.load("small")
    assert torch.equal(one.branch.state.logits, expected.state.logits)
    assert not torch.equal(
        expected.state.logits, whole.logits
    )  # full precision would go on otherwise
    assert one.step() == int(expected.state.logits.argmax())


@pytest.mark.parametrize("name", QUANTIZERS)
def test_codes_stay_codes_whatever_is_done_with_them(thought, name):
    """Stepped, gone back in, saved, loaded, pruned: as small as was said, and never refused."""
    one = begun(thought("quantize=kivi", "quantize.recent=4") if name == "kivi" else thought(), 6)
    plain = one.branch.state.kv_bytes
    codes, _ = one.quantize(name)
    assert one.branch.state.kv_bytes == codes < plain
    one.save("all")
    assert (one.store.folder / "all").is_dir()
    one.step()
    assert one.branch.state.quantized and one.branch.state.kv_bytes < plain
    for at in (one.branch.state.tokens - 3, 10):
        one.back(at)
        one.save(f"back {at}")
        here = one.branch.state
        one.load(f"back {at}")
        assert torch.equal(one.branch.state.logits, here.logits) and one.branch.state.tokens == at
        one.step()
    one.prune("keep_last", 6)
    one.step()
    one.save("little")
    one.load("little")


def test_a_quantizer_with_nothing_to_code_says_so(thought):
    one = begun(thought(), 2)
    with pytest.raises(InputProblem, match="nothing would change"):
        one.quantize("kivi")  # keeps more of the last tokens than there are
    assert "quantized" not in one.branch.state.documents["kv_format"]


def test_what_was_quantized_is_diagnosed_as_chosen_and_a_fault_in_it_is_not(thought):
    one = begun(thought(), 2)
    one.quantize("fp8_e4m3")
    one.step()  # a token in full precision behind the codes
    state = one.branch.state
    told = diagnose(one.loaded, state)
    assert told.cause == "rounding" and "quantized on purpose" in told.evidence
    told = diagnose(one.loaded, replace(state, logits=state.logits + 0.5))
    assert told.cause == "logits"  # the twin: neither full precision nor the codes give these
    layer = state.layers[1]
    coded, *rest = layer.segments
    order = torch.arange(coded.tokens)
    order[[5, 9]] = order[[9, 5]]  # the twin: two tokens changed places
    moved = [
        replace(c, codes=c.codes[:, :, order], scale=c.scale[:, :, order])
        for c in (coded.key, coded.value)
    ]
    swapped = replace(coded, key=moved[0], value=moved[1])
    wrong = replace(layer, segments=(swapped, *rest))
    told = diagnose(one.loaded, state.with_layers((state.layers[0], wrong)))
    assert told.cause != "rounding" and "on purpose" not in told.evidence


@pytest.mark.parametrize("policy", ["keep_last", "random", "knorm"])
def test_a_pruned_branch_is_compared_as_it_answers_now(thought, policy):
    one = begun(thought(), 2)
    one.prune(policy, 12)
    state = one.branch.state
    found = one.compare("A", "B")
    assert found.metrics["kl_max"] > 0 and not found.stale
    held = [(la.positions == state.tokens - 1).all() for la in state.layers]
    if all(held):  # the oracle: the state cut before its last token, and that token fed
        fresh = cut(one.loaded, state, state.tokens).logits
        torch.testing.assert_close(state.logits, fresh, atol=1e3 * EPS, rtol=0)
    stale = replace(state, logits=one.branches["A"].state.logits)  # the twin: as it was before
    one.branches["B"] = replace(one.branch, state=stale)
    found = one.compare("A", "B")
    assert found.stale and "KL 0 nats" not in picture.comparison(found)
    one.switch("A")
    one.fork()
    assert "KL 0 nats" in picture.comparison(one.compare("A", "C"))  # the same thought is the same


def test_layers_that_keep_other_numbers_are_told_by_their_mean(thought):
    """Also where one of them keeps every token, which is no pruning that dropped nothing."""
    one = begun(thought("prune=snapkv", "prune.budget=pyramid", "prune.ratio=0.75"), 3)
    keep = round(0.75 * one.branch.state.tokens)
    said = pruned_message(one, "snapkv", one.prune("snapkv", keep), keep)
    state = one.branch.state
    assert state.pruned and state.kept_tokens == state.tokens
    assert said.startswith(
        f"Branch B: snapkv dropped tokens, {keep} are held on average, at most {state.tokens}."
    )
