"""What of a difference follows from another: from other tokens, from pruning. What does not is told apart."""

from dataclasses import replace
from types import MappingProxyType

import pytest
import torch

from harness.pipeline.reduction import pruned_by
from harness.snapshot.state import LayerState, State
from harness.task import diff
from harness.task.diff import consequence
from harness.task.diff.deviation import explained

TEXT = "text=let k be 5 . the bird sang ."


def marked(one: State, two: State) -> list:
    return consequence.marked(explained(one, two), one, two)


def own(one: State, two: State) -> list[tuple[str, str]]:
    return [(d.what, d.where) for d in marked(one, two) if not d.follows]


def moved(state: State, part: str, token: int, by: float = 1e-6) -> State:
    """With one number of layer 1 moved, of the token that is held at index `token`."""
    layer: LayerState = state.layers[1]
    (segment,) = layer.segments
    tensor = getattr(segment, part).clone()
    tensor[0, 0, token, 0] += by
    changed = replace(layer, segments=(replace(segment, **{part: tensor}),))
    return replace(state, layers=(state.layers[0], changed, *state.layers[2:]))


@pytest.fixture
def one(captured) -> State:
    return captured("prompt=text", TEXT)[1].state


def test_all_that_comes_after_another_token_follows_from_it(captured, one) -> None:
    two = captured("prompt=text", TEXT.replace("bird", "man"))[1].state
    at = consequence.parted(one, two)
    assert at == 7 and own(one, two) == [("token_ids", "[0, 7]")]
    rest = diff._reason(marked(one, two), {}, "", diff.figured(marked(one, two), {}))
    assert (
        rest.startswith("other texts, which part at token 8 (index 7)")
        and "follow from that" in rest
    )
    longer = captured("prompt=text", f"{TEXT.replace('bird', 'man')} ok .")[1].state
    forms = {d.what for d in marked(one, longer) if d.follows}
    assert {"token_ids", "attention_mask", "next_position", "logits"} <= forms


@pytest.mark.parametrize("part", ["key", "value"])
def test_what_differs_before_the_texts_part_follows_from_nothing(captured, one, part) -> None:
    two = captured("prompt=text", TEXT.replace("bird", "man"))[1].state
    before = [what for what, _ in own(one, moved(two, part, 6))]
    assert before == ["token_ids", f"layer.1.{part}, before the texts part"]
    assert own(one, moved(two, part, 7)) == [("token_ids", "[0, 7]")], "the twin: after it"


@pytest.mark.parametrize(
    "policy, options",
    [("keep_last", {"tokens": 4}), ("keydiff", {"tokens": 4, "per_head": True})],
)
def test_a_pruned_state_differs_by_being_pruned_where_what_it_holds_is_the_same(
    one, policy, options
) -> None:
    small = pruned_by(None, one, policy, options)  # type: ignore[arg-type]
    for pair in ((one, small), (small, one)):
        assert own(*pair) == [consequence.PRUNED] and consequence.only_pruned(marked(*pair))
        said = diff._reason(marked(*pair), {}, diff._lossy(*pair), diff.figured(marked(*pair), {}))
        assert said.endswith("the same in both, bit for bit, and nothing else differs")
    for part in ("key", "value"):
        wrong = marked(moved(small, part, 2), one)
        assert f"layer.1.{part}, of the tokens that both hold" in {d.what for d in wrong}
        assert not consequence.only_pruned(wrong)


def test_nothing_is_said_to_follow_of_padded_states_and_of_other_positions(one) -> None:
    other = one.token_ids.clone()
    other[0, 3] += 1
    two = replace(one, token_ids=other)
    mask = one.attention_mask.clone()
    mask[0, 0] = 0
    padded = [replace(state, attention_mask=mask) for state in (one, two)]
    assert not any(d.derived for d in marked(*padded)) and consequence.parted(*padded) == 3
    small = pruned_by(None, one, "keep_last", {"tokens": 4})  # type: ignore[arg-type]
    (kept,) = small.layers[0].segments
    moved_on = replace(kept, positions=kept.positions + 100)
    small = replace(
        small, layers=(replace(small.layers[0], segments=(moved_on,)), *small.layers[1:])
    )
    assert not consequence.only_pruned(marked(one, small))
    assert ("layer.0.key", "form") in own(one, small)


def test_texts_of_which_one_begins_the_other_and_other_batches_part_nowhere(one) -> None:
    begun = replace(one, token_ids=one.token_ids[:, :5])
    twice = replace(one, token_ids=torch.cat([one.token_ids] * 2))
    assert consequence.parted(one, begun) is None and consequence.parted(one, twice) is None
    bare = [replace(s, documents=MappingProxyType({})) for s in (one, begun)]
    assert consequence.parted(*bare) is None
