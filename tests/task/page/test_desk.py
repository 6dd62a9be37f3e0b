"""The desk without a page: what each act does to the state, and what comes back after a restore."""

from dataclasses import replace

import pytest
import torch

from harness.capture.observe import observe_again
from harness.errors import HarnessError, InputProblem, RestoreRefused, SnapshotInvalid
from harness.model.oracle import Cost
from harness.pipeline import drive
from harness.pipeline.diagnosis import diagnose
from harness.pipeline.rewind import cut
from harness.prune.base import EVERY_QUERY
from harness.save import store
from harness.task.ui import picture
from harness.task.ui.acts import Page
from harness.task.ui.desk import POLICIES, QUANTIZERS, Desk
from harness.task.ui.shelf import Shelf
from tests.pipeline.test_judge import Remembering

EPS = torch.finfo(torch.float32).eps  # scores are kept in float32
TEXT = "let k be 5 . the bird sang in the tree . the old man walked to the river . what is"
SAMPLED = {"temperature": 1.3, "top_p": 0.95, "repetition_penalty": 1.1}


@pytest.fixture
def desk(session, tmp_path):
    def make(*overrides: str, folder=tmp_path) -> Desk:
        opened = session("task=ui", *overrides)
        return Desk(opened, Shelf(folder / "snapshots", opened.cfg.save), folder)

    return make


def begun(desk: Desk, steps: int = 0) -> Desk:
    desk.begin(TEXT)
    for _ in range(steps):
        desk.step()
    return desk


@pytest.mark.parametrize("how", ["greedy", "sample"])
def test_after_a_save_another_desk_writes_the_same_tokens(desk, how):
    one = desk()
    one.sample(how, **(SAMPLED if how == "sample" else {}))
    begun(one, 5)
    one.save("pause")
    expected = [one.step() for _ in range(12)]
    two = desk()
    two.load("pause")
    assert two.sampling.name == how and [two.step() for _ in range(12)] == expected
    if how == "sample":  # the twin: another generator goes another way
        two.load("pause")
        other = torch.Generator().manual_seed(99).get_state()
        two.branches[two.current] = replace(two.branch, state=replace(two.branch.state, rng=other))
        assert [two.step() for _ in range(12)] != expected


def test_a_loaded_desk_shows_what_the_saved_one_showed(desk):
    one = begun(desk(), 6)
    one.prune("heavy_hitter", 15)
    one.step()
    one.save("pause")
    two = desk()
    two.load("pause")
    assert two.brightness() == one.brightness() and two.branch.own == one.branch.own
    assert two.holders().tolist() == one.holders().tolist()
    assert picture.thought(two) == picture.thought(one) and picture.likely(two) == picture.likely(
        one
    )


@pytest.mark.parametrize("how", ["greedy", "sample"])
def test_steps_are_those_of_the_uninterrupted_run(desk, how):
    from harness.pipeline.line import Line

    one = desk()
    one.sample(how, **(SAMPLED if how == "sample" else {}))
    begun(one)
    start = one.branch.state
    tokens = [one.step() for _ in range(10)]
    cfg = replace(one.cfg, steps=10, sampling=one.sampling)
    reference = Line(replace(one._session, cfg=cfg)).uninterrupted(start)
    assert reference.ids[0, :10].tolist() == tokens
    assert one.branch.own == tuple(range(start.tokens, start.tokens + 10))
    assert [g.kept for g in one.branch.growth] == list(range(start.tokens, start.tokens + 11))


@pytest.mark.parametrize("cache", ["manual", "view", "cloned"])
def test_brightness_is_what_a_whole_run_would_see(desk, cache):
    """Fed token by token and in one piece of text; recomputed in one pass it is the same."""
    one = begun(desk(f"cache={cache}"), 4)
    one.say(" and the bird sang")
    again = observe_again(one.loaded, one.branch.state, EVERY_QUERY)
    for held, fresh in zip(one.branch.state.layers, again.layers, strict=True):
        torch.testing.assert_close(held.received, fresh.received, atol=32 * EPS, rtol=32 * EPS)
    heads = one.loaded.text_config.num_attention_heads
    total = sum(one.brightness())
    given = heads * one.branch.state.tokens  # each query gives one per head
    assert abs(total - given) < 4 * EPS * given


@pytest.mark.parametrize("policy", POLICIES)
def test_prune_holds_the_budget_and_the_thought_goes_on(desk, policy):
    one = begun(desk(), 4)
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
    assert one.holders().tolist() == held and sum(held) >= 12 * len(before.layers)
    assert one.brightness() == pytest.approx([b / max(h, 1) for b, h in zip(bright, held)])
    assert all(b == 0 for b, h in zip(one.brightness(), held) if not h)
    one.step()
    assert one.branch.state.kept_tokens == 13 and one.branch.growth[-2].kept == 12
    assert one.branch.state.documents["kv_format"]["pruned"][-1]["policy"] == policy


def test_a_branch_shares_memory_and_goes_its_own_way(desk):
    one = begun(desk(), 2)
    assert one.fork() == "B"
    a, b = one.branches["A"].state, one.branches["B"].state
    assert a is b
    one.say(" k ?")
    assert one.branches["A"].state is a and one.branch.state.tokens > a.tokens
    found = one.compare("A", "B")
    assert found.parted == a.tokens and not found.metrics["bitwise_equal"]
    p, q = a.logits[0].double().softmax(-1), one.branch.state.logits[0].double().softmax(-1)
    for token, _, in_a, in_b in found.rows:
        assert (in_a, in_b) == (float(p[token]), float(q[token]))
    one.switch("A")
    assert one.current == "A"
    same = desk()
    begun(same).fork()
    assert same.compare("A", "B").parted is None
    assert same.compare("A", "B").metrics["bitwise_equal"]


def test_the_verdict_of_a_whole_and_of_a_pruned_thought(desk):
    one = begun(desk(), 3)
    whole = one.verdict(8)
    assert whole.verdict in ("exact", "equivalent") and "recomputed" in whole.against
    assert whole.stored_bytes > 0 and whole.steps == 8 and whole.noise
    one.prune("knorm", 9)
    small = one.verdict(8)
    assert small.verdict == "exact" and "in memory" in small.against
    assert one.shelf.names() == []  # the proof is no snapshot of the person's
    assert not list(one.scratch.rglob("manifest.json"))  # nor is it left anywhere else


def test_the_verdict_notices_a_restore_that_is_not_the_same(desk, monkeypatch):
    """The twin: a store that gives back values moved by one token."""
    one = begun(desk(), 3)
    one.prune("keep_last", 12)
    read = store.load

    def stale(source):
        state, manifest = read(source)
        layer = state.layers[0]
        moved = replace(layer.segments[0], value=layer.segments[0].value.roll(1, 2))
        layers = (replace(layer, segments=(moved,)), *state.layers[1:])
        return replace(state, layers=layers), manifest

    monkeypatch.setattr(store, "load", stale)
    assert one.verdict(8).verdict in ("drifted", "diverged")


def test_what_a_model_keeps_outside_of_its_cache_is_missed_by_a_pruned_thought(
    session, tmp_path, monkeypatch
):
    """Beside memory too: the thought in memory leaves on the model what the restored one would want."""
    import harness

    opened = session("task=ui", "cache=view")
    model = Remembering(opened.loaded.model.config).eval()
    model.load_state_dict(opened.loaded.model.state_dict())
    remembers = replace(opened, loaded=harness.wrap(model, opened.loaded.tokenizer))
    one = begun(Desk(remembers, Shelf(tmp_path / "snapshots", opened.cfg.save), tmp_path), 3)
    one.prune("keep_last", 12)
    assert one.verdict(8).verdict in ("drifted", "diverged")
    monkeypatch.setattr(drive, "aside", lambda loaded, state: None)
    assert one.verdict(8).verdict == "exact"


def test_acts_that_cannot_be_done_say_why_and_change_nothing(desk):
    one = desk()
    for act in (one.step, lambda: one.prune("knorm", 1), lambda: one.save("x"), one.fork, lambda: one.verdict(4)):  # fmt: skip
        with pytest.raises(InputProblem, match="no thought yet"):
            act()
    begun(one)
    held = one.branch
    for act in (
        lambda: one.prune("knorm", held.state.tokens + 1),
        lambda: one.prune("nonsense", 2),
        lambda: one.say(""),
        lambda: one.say("the bird sang . " * 4000),
        lambda: one.load("nowhere"),
        lambda: one.switch("Z"),
        lambda: one.compare("A", "A"),
        lambda: one.sample("sample", temperature=0.0),
    ):
        with pytest.raises(HarnessError):
            act()
        assert one.branch is held
    with pytest.raises(HarnessError):
        one.begin("   ")
    one.say("   ")  # spaces are text to add


def test_a_foreign_or_damaged_snapshot_is_refused_and_the_thought_stays(desk, session):
    begun(desk("model=tiny_gpt2")).save("foreign")
    one = begun(desk())
    one.save("mine")
    held = one.branch
    with pytest.raises(RestoreRefused):
        one.load("foreign")
    manifest = one.shelf.folder / "mine" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"next_position"', '"next_positions"'))
    with pytest.raises(SnapshotInvalid):
        one.load("mine")
    assert one.branch is held


@pytest.mark.parametrize("model", ["tiny_gpt2", "tiny_gemma3"])
def test_other_families_do_the_whole_round(desk, model):
    one = begun(desk(f"model={model}"), 3)
    assert one.brightness() is not None
    one.save("pause")
    expected = [one.step() for _ in range(4)]
    one.load("pause")
    assert [one.step() for _ in range(4)] == expected
    assert one.verdict(4).verdict in ("exact", "equivalent")


def test_a_second_save_stores_the_new_tokens_only(desk):
    one = begun(desk())
    one.save("one")
    one.step()
    assert one.save("two")["lineage"][0]["place"] == "one"


def test_pictures_leave_nothing_for_the_page_to_read(desk):
    one = desk()
    one.begin("<script>alert(1)</script> {{value}} ${1+1} `x` \"quoted\" 'it' & \n end")
    shown = picture.thought(one) + picture.likely(one) + picture.cache(one)
    for mark in ("<script", "{{", "${", "`"):
        assert mark not in shown
    assert picture.safe("<a b='c'>{") == "&lt;a b=&#x27;c&#x27;&gt;&#123;"
    assert picture.size(1023) == "1023 B" and picture.size(2048) == "2.0 KiB"


def test_long_work_is_announced_by_the_page(desk, monkeypatch):
    one = begun(desk())
    assert one.judging(4) == ""
    monkeypatch.setattr(Cost, "worth_saying", property(lambda cost: True))
    page = object.__new__(Page)  # its acts alone: what they say first touches no control
    page.steps = 4
    (said, _), *_ = page._judge(one)
    assert said.startswith("Saving, restoring, judging, about ")


def test_what_was_quantized_can_be_saved_loaded_and_judged(desk):
    one = begun(desk(), 2)
    whole = one.branch.state
    one.quantize("fp8_e4m3")
    made = one.verdict(4)
    assert made.verdict != "exact" and "recomputed" in made.against
    one.save("small")
    expected = one.branch
    one.load("small")
    assert torch.equal(one.branch.state.logits, expected.state.logits)
    assert not torch.equal(
        expected.state.logits, whole.logits
    )  # full precision would go on otherwise
    assert one.step() == int(expected.state.logits.argmax())


@pytest.mark.parametrize("name", QUANTIZERS)
def test_codes_stay_codes_whatever_is_done_with_them(desk, name):
    """Stepped, gone back in, saved, loaded, pruned: as small as was said, and never refused."""
    one = begun(desk("quantize=kivi", "quantize.recent=4") if name == "kivi" else desk(), 6)
    plain = one.branch.state.kv_bytes
    codes, _ = one.quantize(name)
    assert one.branch.state.kv_bytes == codes < plain
    one.save("all")
    assert (one.shelf.folder / "all").is_dir()
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


def test_a_quantizer_with_nothing_to_code_says_so(desk):
    one = begun(desk(), 2)
    with pytest.raises(InputProblem, match="nothing would change"):
        one.quantize("kivi")  # keeps more of the last tokens than there are
    assert "quantized" not in one.branch.state.documents["kv_format"]


def test_what_was_quantized_is_diagnosed_as_chosen_and_a_fault_in_it_is_not(desk):
    one = begun(desk(), 2)
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
def test_a_pruned_branch_is_compared_as_it_answers_now(desk, policy):
    one = begun(desk(), 2)
    one.fork()
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
