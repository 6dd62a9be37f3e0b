"""Every policy's choice, computed by hand, and what holds for all of them."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import settings as effort
from hypothesis import strategies as st

from harness.config import sibling
from harness.errors import ConfigProblem, HarnessError, InputProblem, UnsupportedModel
from harness.prune.registry import names, policy

from .conftest import by_hand, settings

NORMS = torch.tensor([5.0, 1.0, 4.0, 2.0, 6.0, 3.0, 8.0, 7.0])
KEYS = NORMS[None, None, :, None].expand(1, 2, 8, 4)
# attention received, one row per query of the last four
ROWS = torch.tensor(
    [
        [
            [9.0, 0, 0, 0, 0, 0, 0, 0],
            [0.0, 0, 0, 3, 0, 0, 0, 0],
            [0.0, 0, 0, 3, 0, 0, 0, 0],
            [0.0, 4, 0, 0, 0, 0, 0, 1],
        ]
    ]
)
TOTAL = ROWS.sum(1, keepdim=True)  # [9, 4, 0, 6, 0, 0, 0, 1]

CASES = [
    ("keep_last", {}, None, [4, 5, 6, 7]),
    ("keep_last", {"protect": 1}, None, [0, 5, 6, 7]),
    ("keep_last", {"protect": "prefix"}, None, [0, 1, 2, 7]),
    ("keep_last", {"tokens": 3}, None, [5, 6, 7]),
    ("keep_last", {"tokens": 8}, None, list(range(8))),
    ("sink_window", {"sinks": 1}, None, [0, 5, 6, 7]),
    ("sink_window", {"sinks": 3}, None, [0, 1, 2, 7]),
    ("sink_window", {"sinks": 0}, None, [4, 5, 6, 7]),
    ("sink_window", {"sinks": 4}, None, [0, 1, 2, 3]),
    ("knorm", {}, None, [1, 2, 3, 5]),
    ("knorm", {"protect": 1}, None, [0, 1, 3, 5]),
    ("heavy_hitter", {"recent": 0.0}, TOTAL, [0, 1, 3, 7]),
    ("heavy_hitter", {"recent": 0.5}, TOTAL, [0, 3, 6, 7]),
    ("heavy_hitter", {"recent": 1.0}, TOTAL, [4, 5, 6, 7]),
    # window 4 shrinks to half the budget, 2: the last two rows vote [0, 4, 0, 3] for tokens 0..3
    ("snapkv", {"window": 4, "pool": 1}, ROWS, [1, 3, 6, 7]),
    # one query votes, smoothed over three: 4/3 for tokens 0, 1 and 2; of equals the later stay
    ("snapkv", {"window": 1, "pool": 3, "tokens": 3}, ROWS, [1, 2, 7]),
    # first the 6 with least norm (1, 3, 5, 2, 0, 4), then one sink and the window of those
    # the same sum, per query that could give it: 9/8, 4/7, 0, 6/5, 0, 0, 0, 1/1
    ("heavy_hitter", {"recent": 0.0, "average": True, "tokens": 3}, TOTAL, [0, 3, 7]),
    # the last of four queries looked at token 1 and at itself, which stays in any case
    ("tova", {"tokens": 2}, ROWS, [1, 7]),
    # all keys point the same way: equals, of which the later stay
    ("keydiff", {}, None, [4, 5, 6, 7]),
    # what is expected times the norm of the value, 9 5 and 6 2 and 4 1: the first token is a sink
    ("expected_attention", {"tokens": 3, "sinks": 0}, TOTAL, [0, 3, 7]),
    ("expected_attention", {"tokens": 2, "sinks": 1}, TOTAL, [0, 3]),
    ("expected_attention", {"tokens": 2, "sinks": 2}, TOTAL, [0, 1]),
    ("chain", {"stages": [{"name": "knorm", "ratio": 0.75}, {"name": "sink_window", "sinks": 1}]}, None, [0, 3, 4, 5]),
    # a first stage that would leave 2 of 8 stops at the chain's own 4
    ("chain", {"stages": [{"name": "knorm", "ratio": 0.25}, {"name": "keep_last"}]}, None, [1, 2, 3, 5]),
    ("chain", {"stages": [{"name": "knorm", "tokens": 4}, {"name": "keep_last", "ratio": 0.5}]}, None, [3, 5]),
]  # fmt: skip


@pytest.mark.parametrize(("name", "given", "received", "kept"), CASES)
def test_choice_by_hand(name, given, received, kept):
    state = by_hand(KEYS, received=received)
    small = policy(settings(name, **given)).prune(state)
    layer = small.layers[0]
    assert layer.positions.tolist() == [kept]  # both heads are alike here
    assert layer.key[0, 0, :, 0].tolist() == NORMS[kept].tolist()
    assert layer.value[0, 0, :, 0].tolist() == (-NORMS[kept]).tolist()
    assert small.next_position.tolist() == [8]  # original positions: gaps stay
    assert small.documents["kv_format"]["pruned"][-1]["kept_tokens"] == len(kept)
    assert sum(small.documents["kv_format"]["layers"][0]["segments"]) == len(kept)
    assert state.layers[0].kept == 8  # the State given is only read


def test_keydiff_keeps_what_points_elsewhere():
    """By hand, each head for itself: three keys of a head point one way, one does not."""
    one = torch.tensor([[1.0, 0], [1, 0.1], [0, 1], [1, -0.1]])
    other = torch.tensor([[0.0, 5], [3, 0], [0.1, 5], [0, 5]])
    state = by_hand(torch.stack([one, other])[None])
    kept = policy(settings("keydiff", tokens=1)).prune(state).layers[0].positions
    assert kept.tolist() == [[[2], [1]]]
    whole = policy(settings("keydiff", tokens=2, per_head=False)).prune(state).layers[0].positions
    assert whole.tolist() == [[1, 2]]


def test_every_policy_has_a_case():
    assert {c[0] for c in CASES} | {"random"} == set(names())


def test_random_depends_on_its_seed_and_nothing_else():
    state = by_hand(torch.rand(1, 1, 40, 4))

    def kept(seed):
        return policy(settings("random", seed=seed)).prune(state).layers[0].positions.tolist()

    assert kept(1) == kept(1) != kept(2)


def test_padding_goes_first_and_rows_choose_for_themselves():
    keys = torch.tensor([[3.0, 1, 2, 5, 4, 6], [9, 9, 9, 2, 3, 1]])[:, None, :, None].expand(2, 1, 6, 2)  # fmt: skip
    state = by_hand(keys, lengths=[6, 3])
    kept = policy(settings("knorm", tokens=3)).prune(state).layers[0].positions
    assert kept.tolist() == [[0, 1, 2], [0, 1, 2]]
    kept = policy(settings("knorm", tokens=4)).prune(state).layers[0].positions
    assert kept.tolist() == [[0, 1, 2, 4], [-1, 0, 1, 2]]  # one padding token fills the row


def test_shared_choice_is_the_mean_over_layers():
    state = by_hand(KEYS, windows=(None, None))
    flipped = by_hand(KEYS.flip(2) * 3, windows=(None, None))
    layers = (state.layers[0], flipped.layers[1])
    mixed = state.with_layers(layers)
    alone = policy(settings("knorm")).prune(mixed)
    assert not torch.equal(alone.layers[0].positions, alone.layers[1].positions)
    one = policy(settings("knorm", shared=True)).prune(mixed)
    mean = NORMS + 3 * NORMS.flip(0)
    expected = mean.argsort()[:4].sort().values.tolist()
    assert one.layers[0].positions.tolist() == one.layers[1].positions.tolist() == [expected]


def test_contiguous_choices_stay_views():
    keys = torch.rand(1, 2, 64, 4)
    state = by_hand(keys)
    last = policy(settings("keep_last")).prune(state).layers[0]
    assert last.segments[0].key.data_ptr() == keys[:, :, 32:].data_ptr()
    sinks = policy(settings("sink_window")).prune(state).layers[0]
    assert [s.tokens for s in sinks.segments] == [4, 28]
    storage = keys.untyped_storage().data_ptr()
    assert all(s.key.untyped_storage().data_ptr() == storage for s in sinks.segments)


@effort(max_examples=120, deadline=None)
@given(data=st.data())
def test_what_holds_for_every_policy(data):
    """Budget met exactly, positions strictly rising, protected prefix kept, nothing written."""
    name = data.draw(st.sampled_from(sorted(set(names()) - {"chain"})))
    batch, heads = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 3))
    tokens = data.draw(st.integers(2, 40))
    window = data.draw(st.none() | st.integers(2, 50))
    lengths = [data.draw(st.integers(1, tokens)) for _ in range(batch)]
    keep = data.draw(st.integers(1, tokens))
    protect = data.draw(st.integers(0, keep))
    seed = data.draw(st.integers(0, 1000))
    g = torch.Generator().manual_seed(seed)
    keys = torch.rand(batch, heads, tokens, 4, generator=g)
    form = data.draw(st.sampled_from([(batch, 6, tokens), (batch, heads, 6, tokens)]))
    received = torch.rand(form, generator=g)  # as format 1 stored it, and per head
    state = by_hand(keys, (None, window, None), lengths, received)
    shared = data.draw(st.booleans())
    chosen = sibling(
        "prune", SimpleNamespace(prune=settings(name), called={}), name, tokens=keep, protect=protect, shared=shared, seed=seed,
        sinks=min(keep, 4), recent=data.draw(st.sampled_from([0.0, 0.5, 1.0])),
        window=data.draw(st.integers(1, 6)), pool=data.draw(st.integers(1, 7)), ratio=None,
        per_head=data.draw(st.sampled_from([None, False])),
    )  # fmt: skip
    if window is not None and protect > min(keep, window - 1) and max(lengths) < window:
        return
    versions = [t._version for _, t in state.tensors()]
    small = policy(chosen).prune(state)
    assert versions == [t._version for _, t in state.tensors()]
    for old, new in zip(state.layers, small.layers, strict=True):
        kept, positions = min(keep, old.kept), new.positions
        assert new.kept == kept == positions.shape[-1] == new.received.shape[-1]
        assert not (chosen.per_head is False and new.per_head)
        assert bool((positions.diff(dim=-1) > 0).all())
        for row in range(batch):
            held = old.positions[row]
            real = int((held >= 0).sum())
            prefix = {p for p in held.tolist() if 0 <= p < protect}
            for head in range(heads):
                mine = positions[row, head] if new.per_head else positions[row]
                assert int((mine >= 0).sum()) == min(real, kept)
                assert prefix <= set(mine.tolist())
                places = [held.tolist().index(p) for p in mine.tolist()]
                assert torch.equal(new.key[row, head], old.key[row, head][places])
                assert torch.equal(new.value[row, head], old.value[row, head][places])
                both = [la.received[row, head] if la.received.dim() == 4 else la.received[row] for la in (new, old)]  # fmt: skip
                assert torch.equal(both[0], both[1][:, places])
    if shared:
        assert torch.equal(small.layers[0].positions, small.layers[2].positions)
    assert small.kept_tokens == keep


BAD = [
    (lambda: settings("keep_last", tokens=0), ConfigProblem, "prune.tokens=0"),
    (lambda: settings("keep_last", tokens=-3), ConfigProblem, "prune.tokens=-3"),
    (lambda: settings("keep_last", ratio=0.0), ConfigProblem, "prune.ratio=0.0"),
    (lambda: settings("keep_last", ratio=1.5), ConfigProblem, "prune.ratio=1.5"),
    (lambda: settings("keep_last", protect="everything"), ConfigProblem, "prune.protect"),
    (lambda: settings("keep_last", tokens=9), InputProblem, "more than the 8 tokens"),
    (lambda: settings("keep_last", ratio=0.01), InputProblem, "keeps none"),
    (lambda: settings("keep_last", tokens=2, protect=3), InputProblem, "prune.protect"),
    (lambda: settings("sink_window", tokens=3), InputProblem, "prune.sinks=4"),
    (lambda: settings("heavy_hitter"), UnsupportedModel, "attention"),
    (lambda: settings("keep_lost"), ConfigProblem, "keep_last"),
    (lambda: settings("chain", stages=[]), ConfigProblem, "prune.stages"),
    (lambda: settings("chain", stages=[{"name": "knorm"}, {"name": "knorm"}]), ConfigProblem, "stage 0"),
    (lambda: settings("chain", stages=[{"name": "knorm", "tokns": 3}]), ConfigProblem, "tokens"),
    (lambda: settings("chain", stages=[{"name": "heavy_hitter", "ratio": 0.5}, {"name": "snapkv"}]), ConfigProblem, "observe"),
]  # fmt: skip


@pytest.mark.parametrize(("made", "error", "says"), BAD)
def test_bad_input_is_one_plain_message(made, error, says):
    with pytest.raises(HarnessError) as caught:
        policy(made()).prune(by_hand(KEYS))
    assert type(caught.value) is error and says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_model_without_keys_is_refused():
    state = by_hand(KEYS)
    empty = state.with_layers(tuple(type(la)(la.index, "linear_attention", seen=8) for la in state.layers))  # fmt: skip
    with pytest.raises(UnsupportedModel, match="no keys"):
        policy(settings("keep_last")).prune(empty)


@pytest.mark.parametrize("name", ["knorm", "snapkv"])
def test_a_model_with_an_index_over_its_keys_is_refused(name):
    state = by_hand(KEYS, received=ROWS)
    layers = tuple(replace(la, recurrent={"indexer_keys_0": KEYS[:, 0]}) for la in state.layers)
    with pytest.raises(
        UnsupportedModel, match=f"prune={name} cannot serve.*an index over its keys"
    ):
        policy(settings(name)).prune(state.with_layers(layers))
