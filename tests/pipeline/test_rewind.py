"""Going back: at every cut the logits are those of a run over the first tokens alone, and the way
there is the cheap one."""

import shutil
from dataclasses import replace

import pytest
import torch

from harness.capture import new_cache, positions_of, prefill
from harness.errors import InputProblem
from harness.model.sampler import Sampler
from harness.pipeline import drive, rewind
from harness.pipeline.rewind import checkpoints, rewound
from harness.save import store

WINDOW, FIRST, MORE = 24, 40, 12
MODELS = ("tiny", "tiny_gemma3", "tiny_hybrid")


@pytest.fixture(scope="module")
def thoughts(session, tmp_path_factory):
    """Per model `(session, folder, last state)`: a prompt and three continuations, each a snapshot."""
    made = {}

    def make(name):
        if name not in made:
            opened = session(f"model={name}", f"prompt.ids={list(range(60, 60 + FIRST))}")
            folder = tmp_path_factory.mktemp(name)
            state = opened.capture(opened.encoded(), Sampler(opened.cfg.sampling)).state
            for place in ("a", "b", "c", "d"):
                if place != "a":
                    decoder = rewind.continuation(
                        opened.loaded, state, opened.cfg.cache, opened.cfg.prune
                    )
                    drive.drive(decoder, Sampler(opened.cfg.sampling), MORE)
                    state = decoder.commit()
                store.save(state, folder / place, opened.cfg.save)
                state, _ = store.load(folder / place)
            made[name] = opened, folder, state
        return made[name]

    return make


def errors(opened, state, back):
    """`(of going back, of plain prefills)` against float64 over the first tokens alone."""
    ids = state.token_ids[:, : back.at]
    exact = opened.loaded.oracle.uncached(ids, 1)[:, -1]
    mask, cache = torch.ones_like(ids), new_cache(opened.loaded)
    chunked = prefill(opened.loaded, ids, mask, positions_of(mask), cache, 16)[:, -1]
    plain = opened.loaded.uncached(ids, 1)[:, -1]
    gaps = [float((t.double() - exact).abs().max()) for t in (back.state.logits, plain, chunked)]
    return gaps[0], max(gaps[1:])


@pytest.mark.parametrize("name", MODELS)
def test_at_every_cut_it_is_what_the_first_tokens_give(name, thoughts) -> None:
    opened, folder, state = thoughts(name)
    seen = []
    for at in (*range(1, state.tokens, 7), FIRST, FIRST + 1, state.tokens):
        back = rewound(opened.loaded, state, at, opened.cfg.cache, checkpoints(folder / "d"))
        assert torch.equal(back.state.token_ids, state.token_ids[:, :at])
        assert back.state.tokens == at == int(back.state.next_position)
        seen.append(errors(opened, state, back))
    went, plain = map(max, zip(*seen, strict=True))
    assert went <= 2 * plain, (went, plain)


@pytest.mark.parametrize("name", MODELS)
def test_what_comes_next_comes_from_there(name, thoughts) -> None:
    opened, folder, state = thoughts(name)
    at = FIRST + 5
    back = rewound(opened.loaded, state, at, opened.cfg.cache, checkpoints(folder / "d"))
    decoder = rewind.continuation(opened.loaded, back.state, opened.cfg.cache, opened.cfg.prune)
    decoder.step(state.token_ids[:, at : at + 6])
    again = replace(back, state=decoder.commit(), at=at + 6)
    went, plain = errors(opened, state, again)
    assert went <= 4 * plain
    assert torch.equal(again.state.token_ids, state.token_ids[:, : at + 6])


def test_the_way_back_is_the_cheap_one(thoughts) -> None:
    def way(name, at, lineage=True):
        opened, folder, state = thoughts(name)
        points = checkpoints(folder / "d") if lineage else ()
        back = rewound(opened.loaded, state, at, opened.cfg.cache, points)
        return back.how, back.replayed, back.source

    assert way("tiny", 10) == ("cut", 1, None)
    for name in MODELS[1:]:
        assert way(name, FIRST + 2 * MORE + 1) == ("checkpoint", 1, "c")
        assert way(name, FIRST + MORE + 3) == ("checkpoint", 3, "b")
        assert way(name, FIRST + MORE) == ("checkpoint", 0, "b")
        assert way(name, FIRST + 3) == ("checkpoint", 3, "a")
        assert way(name, 10) == ("prefill", 10, None)
        assert way(name, FIRST + 3, lineage=False) == ("prefill", FIRST + 3, None)


def test_a_snapshot_that_is_gone_or_another_thought_is_no_checkpoint(thoughts, tmp_path) -> None:
    opened, folder, state = thoughts("tiny_hybrid")
    loaded, cache, at = opened.loaded, opened.cfg.cache, FIRST + MORE + 3
    shutil.copytree(folder, tmp_path / "broken")
    payload = next(p for p in (tmp_path / "broken" / "b").iterdir() if p.name.startswith("state"))
    data = payload.read_bytes()
    payload.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    back = rewound(loaded, state, at, cache, checkpoints(tmp_path / "broken" / "d"))
    assert (back.source, back.replayed) == ("a", MORE + 3)  # the chain broke; its files know more
    other = replace(state, token_ids=state.token_ids.flip(1))
    assert rewound(loaded, other, at, cache, checkpoints(folder / "d")).how == "prefill"


def test_a_window_that_is_cut_all_the_same_is_seen(thoughts, monkeypatch) -> None:
    """The corrupted twin: without the rule for windows the logits are far off."""
    opened, _, state = thoughts("tiny_gemma3")
    monkeypatch.setattr(rewind, "_whole", lambda entries: True)
    back = rewound(opened.loaded, state, FIRST + MORE + 3, opened.cfg.cache)
    went, plain = errors(opened, state, back)
    assert went > 100 * plain


def test_what_was_pruned_away_is_no_place_to_go_back_to(session, thoughts) -> None:
    opened, _, state = thoughts("tiny")
    policy = session("model=tiny", "prune=sink_window", "prune.tokens=20").cfg.prune
    small = rewind_pruned(opened, state, policy)
    with pytest.raises(InputProblem, match="inside what was pruned away"):
        rewound(opened.loaded, small, 30, opened.cfg.cache)
    back = rewound(opened.loaded, small, state.tokens - 3, opened.cfg.cache)
    assert back.state.kept_tokens == 17 and back.state.pruned


def rewind_pruned(opened, state, settings):
    from harness.pipeline.prune import policy_of, scored

    policy = policy_of(settings)
    return policy.prune(scored(opened.loaded, policy, state))


def test_several_rows_are_refused(captured) -> None:
    opened, live = captured("prompt.batch=2")
    with pytest.raises(InputProblem, match="2 rows"):
        rewound(opened.loaded, live.state, 5, opened.cfg.cache)
