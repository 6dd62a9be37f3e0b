"""`prune.at=N`: a bound on memory that holds while decoding, whatever the policy and the cache."""

import pytest
import torch

from harness.cache.registry import decoder
from harness.compare.soundness import FACTOR
from harness.config import CacheConfig
from harness.errors import ConfigProblem
from harness.pipeline.budget import Bounded
from harness.prune.registry import policy

from .conftest import build, ids_of, settings, take

NEXT = torch.tensor([ids_of(17, 9)])


def bounded(name, cache="manual", at=4, **given):
    loaded = build()
    whole = take(loaded, [ids_of(30)]).state
    chosen = settings(name, tokens=12, at=at, **given)
    return loaded, whole, chosen, Bounded(loaded, whole, CacheConfig(name=cache), chosen)


@pytest.mark.parametrize("cache", ["manual", "cloned"])
@pytest.mark.parametrize("name", ["sink_window", "keydiff", "heavy_hitter", "expected_attention"])
def test_no_layer_ever_holds_more_than_the_budget_and_n(name, cache):
    _, whole, _, run = bounded(name, cache)
    before = run.fingerprint(digest=True)
    for place in range(17):
        assert run.step(NEXT[:, place : place + 1]).shape[:2] == (1, 1)
        for layer in run.commit().layers:
            assert layer.kept <= 12 + 4 and layer.seen == 31 + place
            assert bool((layer.positions.diff(dim=-1) > 0).all())
    assert run.account() == {"every": 4, "budget": 12, "most_held": 16, "prunings": 5}
    assert run.fingerprint(digest=True) == before and whole.layers[0].kept == 30
    assert len(run.commit().documents["kv_format"]["pruned"]) == 1


@pytest.mark.parametrize("positions", ["original", "reindexed"])
def test_it_is_commit_and_prune_by_hand(positions):
    """And however the tokens are handed over, one by one or all at once, they are the same."""
    from harness.pipeline.prune import moves
    from harness.prune.positions import reindexed

    loaded, whole, chosen, run = bounded("keydiff", positions=positions)

    def small(state):
        kept = policy(chosen).prune(state)
        return reindexed(kept, moves(loaded, whole)) if positions == "reindexed" else kept

    state, expected = small(whole), []
    for part in NEXT.split(4, 1):
        hand = decoder(loaded, state, CacheConfig(name="manual"))
        expected += [hand.step(one) for one in part.split(1, 1)]
        state = small(hand.commit()) if part.shape[1] == 4 else hand.commit()
    got = torch.cat([run.step(one) for one in NEXT.split(1, 1)], 1)
    assert torch.equal(got, torch.cat(expected, 1))
    for a, b in zip(run.commit().layers, state.layers, strict=True):
        assert torch.equal(a.key, b.key) and torch.equal(a.positions, b.positions)
    *_, other = bounded("keydiff", positions=positions)
    plain = [decoder(loaded, whole, CacheConfig(name="manual")) for _ in range(2)]
    singly = torch.cat([plain[0].step(one) for one in NEXT.split(1, 1)], 1)
    noise = float(
        (plain[1].step(NEXT) - singly).abs().max()
    )  # what the cut does with nothing pruned
    allowed = FACTOR * max(noise, float(got.abs().max()) * torch.finfo(got.dtype).eps)
    assert (other.step(NEXT) - got).abs().max() <= allowed
    *_, never = bounded("keydiff", at=1000, positions=positions)  # the twin: it does prune
    apart = torch.cat([never.step(one) for one in NEXT.split(1, 1)], 1) - got
    assert apart.abs().max() > allowed


def test_branches_are_refused():
    loaded = build()
    whole = take(loaded, [ids_of(30)]).state
    with pytest.raises(ConfigProblem, match="branches"):
        Bounded(loaded, whole, CacheConfig(name="manual", branches=2), settings("knorm", at=4))


def test_an_experiment_holds_its_bound_and_says_so(harness):
    done = harness("prune=keydiff", "prune.tokens=10", "prune.at=4", "steps=11", "compare=lossy")
    assert done.result["bound"] == {"every": 4, "budget": 10, "most_held": 14, "prunings": 2}
    assert done.result["mutation"]["mutated"] is False
    assert harness("prune=keydiff", "prune.at=0").code == 2
    assert harness("prune=keydiff", "prune.at=always").code == 2
