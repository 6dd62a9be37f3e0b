"""The thought without a page: what each act does to the state, and what comes back after a restore."""

from dataclasses import replace

import pytest
import torch
from begin import EPS, SAMPLED, begun

from harness.capture.observe import observe_again
from harness.errors import HarnessError, InputProblem, RestoreRefused, SnapshotInvalid
from harness.model.oracle import Cost
from harness.prune.base import EVERY_QUERY
from harness.save import store
from harness.task.ui import picture
from harness.task.ui.handlers import Page


@pytest.mark.parametrize("how", ["greedy", "sample"])
def test_after_a_save_another_session_writes_the_same_tokens(thought, how):
    one = thought()
    one.sample(how, **(SAMPLED if how == "sample" else {}))
    begun(one, 5)
    one.save("pause")
    expected = [one.step() for _ in range(12)]
    two = thought()
    two.load("pause")
    assert two.sampling.name == how and [two.step() for _ in range(12)] == expected
    if how == "sample":  # the twin: another generator goes another way
        two.load("pause")
        other = torch.Generator().manual_seed(99).get_state()
        two.branches[two.current] = replace(two.branch, state=replace(two.branch.state, rng=other))
        assert [two.step() for _ in range(12)] != expected


def test_a_loaded_session_shows_what_the_saved_one_showed(thought):
    one = begun(thought(), 6)
    one.prune("heavy_hitter", 15)
    one.step()
    one.save("pause")
    two = thought()
    two.load("pause")
    assert two.brightness() == one.brightness() and two.branch.own == one.branch.own
    assert two.holders()[0].tolist() == one.holders()[0].tolist()
    assert picture.thought(two) == picture.thought(one) and picture.likely(two) == picture.likely(
        one
    )


@pytest.mark.parametrize("how", ["greedy", "sample"])
def test_steps_are_those_of_the_uninterrupted_run(thought, how):
    from harness.pipeline.line import Line

    one = thought()
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
def test_brightness_is_what_a_whole_run_would_see(thought, cache):
    """Fed token by token and in one piece of text; recomputed in one pass it is the same."""
    one = begun(thought(f"cache={cache}"), 4)
    one.add(" and the bird sang")
    again = observe_again(one.loaded, one.branch.state, EVERY_QUERY)
    for held, fresh in zip(one.branch.state.layers, again.layers, strict=True):
        torch.testing.assert_close(held.received, fresh.received, atol=32 * EPS, rtol=32 * EPS)
    heads = one.loaded.text_config.num_attention_heads
    total = sum(one.brightness())
    given = heads * one.branch.state.tokens  # each query gives one per head
    assert abs(total - given) < 4 * EPS * given


def test_a_branch_shares_memory_and_goes_its_own_way(thought):
    one = begun(thought(), 2)
    assert one.fork() == "B"
    a, b = one.branches["A"].state, one.branches["B"].state
    assert a is b
    one.add(" k ?")
    assert one.branches["A"].state is a and one.branch.state.tokens > a.tokens
    found = one.compare("A", "B")
    assert found.parted == a.tokens and not found.metrics["bitwise_equal"]
    p, q = a.logits[0].double().softmax(-1), one.branch.state.logits[0].double().softmax(-1)
    for token, _, in_a, in_b in found.rows:
        assert (in_a, in_b) == (float(p[token]), float(q[token]))
    one.switch("A")
    assert one.current == "A"
    same = thought()
    begun(same).fork()
    assert same.compare("A", "B").parted is None
    assert same.compare("A", "B").metrics["bitwise_equal"]


def test_the_verdict_notices_a_restore_that_is_not_the_same(thought, monkeypatch):
    """The twin: a store that gives back values moved by one token."""
    one = begun(thought(), 3)
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


def test_acts_that_cannot_be_done_say_why_and_change_nothing(thought):
    one = thought()
    for act in (one.step, lambda: one.prune("knorm", 1), lambda: one.save("x"), one.fork, lambda: one.verdict(4)):  # fmt: skip
        with pytest.raises(InputProblem, match="no thought yet"):
            act()
    begun(one)
    held = one.branch
    for act in (
        lambda: one.prune("knorm", held.state.tokens + 1),
        lambda: one.prune("nonsense", 2),
        lambda: one.add(""),
        lambda: one.add("the bird sang . " * 4000),
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
    one.add("   ")  # spaces are text to add


def test_a_foreign_or_damaged_snapshot_is_refused_and_the_thought_stays(thought, session):
    begun(thought("model=tiny_gpt2")).save("foreign")
    one = begun(thought())
    one.save("mine")
    held = one.branch
    with pytest.raises(RestoreRefused):
        one.load("foreign")
    manifest = one.store.folder / "mine" / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"next_position"', '"next_positions"'))
    with pytest.raises(SnapshotInvalid):
        one.load("mine")
    assert one.branch is held


@pytest.mark.parametrize("model", ["tiny_gpt2", "tiny_gemma3"])
def test_other_families_do_the_whole_round(thought, model):
    one = begun(thought(f"model={model}"), 3)
    assert one.brightness() is not None
    one.save("pause")
    expected = [one.step() for _ in range(4)]
    one.load("pause")
    assert [one.step() for _ in range(4)] == expected
    assert one.verdict(4).verdict in ("exact", "equivalent")


def test_a_second_save_stores_the_new_tokens_only(thought):
    one = begun(thought())
    one.save("one")
    one.step()
    assert one.save("two")["lineage"][0]["place"] == "one"


def test_pictures_leave_nothing_for_the_page_to_read(thought):
    one = thought()
    one.begin("<script>alert(1)</script> {{value}} ${1+1} `x` \"quoted\" 'it' & \n end")
    shown = picture.thought(one) + picture.likely(one) + picture.cache(one)
    for mark in ("<script", "{{", "${", "`"):
        assert mark not in shown
    assert picture.safe("<a b='c'>{") == "&lt;a b=&#x27;c&#x27;&gt;&#123;"
    assert picture.size(1023) == "1023 B" and picture.size(2048) == "2.0 KiB"


def test_long_work_is_announced_by_the_page(thought, monkeypatch):
    one = begun(thought())
    assert one.judging_time(4) == ""
    monkeypatch.setattr(Cost, "worth_saying", property(lambda cost: True))
    page = object.__new__(Page)  # its acts alone: what they say first touches no control
    page.steps = 4
    (said, _), *_ = page._judge(one)
    assert said.startswith("Saving, restoring, judging, about ")
