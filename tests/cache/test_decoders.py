"""Every cache continues one thought: against the library, against its own commit, and refused by name."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

from harness import api
from harness.cache.cloned import Cloned
from harness.cache.registry import decoder, names
from harness.capture import capture
from harness.config import option
from harness.errors import ConfigProblem, InputProblem, UnsupportedModel
from harness.model.loaded import Loaded
from harness.pipeline import drive, yardstick
from harness.task.architectures import examine, rows_of

SMALL = {"vocab_size": 96, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
         "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 0.1,
         "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
EXACT = {"dynamic", "cloned", "deepcopy"}


def built(kind="llama", attention="sdpa", **values):
    torch.manual_seed(0)
    chosen = {k: v for k, v in {**SMALL, **values}.items() if v is not None}
    config = AutoConfig.for_model(kind, **chosen)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=attention).eval()
    return Loaded(model, None, {"name": kind}, 0.0)


@pytest.fixture(scope="module")
def llama():
    return built()


def captured(loaded, tokens=20, batch=1):
    draw = torch.Generator().manual_seed(1)
    ids = torch.randint(3, 96, (batch, tokens), generator=draw)
    mask = torch.ones_like(ids)
    for row in range(1, batch):
        mask[row, : 3 * row] = 0
    return capture(loaded, ids, mask, {})


def near(found, expected, units=64):
    """Equal but for rounding: within `units` of half a last place of the largest expected float32. The
    sums of two layers in another order differ by some of them."""
    return (found - expected).abs().max() <= units * 2.0**-24 * expected.abs().max()


def settings(name, **values):
    return option("cache", name, **values)


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("batch", [1, 2])
def test_each_cache_goes_on_as_the_uninterrupted_run_does(llama, name, batch):
    found = captured(llama, batch=batch)
    fed = torch.randint(3, 96, (batch, 5), generator=torch.Generator().manual_seed(2))
    again = decoder(llama, found.state, settings(name))
    before = again.fingerprint(digest=True)
    logits = torch.cat([again.step(p) for p in fed.split([3, 1, 1], 1)], 1)
    live = drive.Uninterrupted(llama, found.live, found.state)
    plain = torch.cat([live.step(p) for p in fed.split([3, 1, 1], 1)], 1)
    oracle = yardstick.alone(llama.oracle, found.state, fed)
    if name in EXACT:
        assert torch.equal(logits, plain)
    noise = (yardstick.alone(llama, found.state, fed).double() - oracle).abs().max()
    floor = max(noise, (plain.double() - oracle).abs().max())
    assert (logits.double() - oracle).abs().max() <= 2 * floor
    assert (again.fingerprint(digest=True) != before) == (name == "dynamic")


@pytest.mark.parametrize("name", sorted(set(names()) - {"static"}))
def test_branches_share_one_past_and_each_is_its_own_continuation(llama, name):
    state = captured(llama).state
    fed = torch.randint(3, 96, (3, 4), generator=torch.Generator().manual_seed(3))
    many = decoder(llama, state, settings(name, branches=3))
    together = torch.cat([many.step(part) for part in fed.split(1, 1)], 1)
    for branch in range(3):
        one = decoder(llama, state, settings(name))
        alone = torch.cat([one.step(part) for part in fed[branch : branch + 1].split(1, 1)], 1)
        assert near(together[branch], alone[0])
        assert (together[branch] - together[branch - 1]).abs().max() > 1e-2  # a twin that differs
        kept, other = many.commit(branch), one.commit()
        assert torch.equal(kept.token_ids, other.token_ids)
        assert kept.layers[0].key.shape == other.layers[0].key.shape
    if name in ("manual", "view"):
        assert many.bytes_copied == 0
        assert many.commit().layers[0].segments[0].key.data_ptr() == state.layers[0].key.data_ptr()
        assert many.kv_bytes < 3 * state.kv_bytes + 3 * 2 * 2 * 64 * 2 * 16 * 4


@pytest.mark.parametrize("name", ["manual", "view"])
def test_a_committed_state_goes_on_as_if_nothing_had_been_committed(llama, name):
    state = captured(llama).state
    straight = decoder(llama, state, settings(name))
    first, second = torch.tensor([[5, 6, 7]]), torch.tensor([[8]])
    straight.step(first)
    committed = straight.commit()
    expected = straight.step(second)
    found = decoder(llama, committed, settings(name)).step(second)
    assert near(found, expected)
    wrong = decoder(llama, state, settings(name)).step(second)
    assert (wrong - expected).abs().max() > 1e-3


def test_view_leaves_the_library_as_it_was(llama):
    names_before = set(ALL_ATTENTION_FUNCTIONS.keys())
    decoder(llama, captured(llama).state, settings("view")).step(torch.tensor([[5]]))
    assert set(ALL_ATTENTION_FUNCTIONS.keys()) == names_before
    assert llama.model.config._attn_implementation == "sdpa"


def test_view_refuses_attention_outside_the_interface_and_the_state_stays():
    gptj = built("gptj", "eager", n_embd=64, n_layer=2, n_head=4, rotary_dim=8, n_positions=64)
    state = captured(gptj).state
    before = [(t.data_ptr(), t._version) for _, t in state.tensors()]
    with pytest.raises(UnsupportedModel, match="cache=cloned"):
        decoder(gptj, state, settings("view")).step(torch.tensor([[5]]))
    assert [(t.data_ptr(), t._version) for _, t in state.tensors()] == before


def test_no_cache_is_advised_that_does_not_serve_the_model_either():
    sparse = api.load_model("tiny_sparse")
    state = api.capture_text(sparse, "let k be 5 .")
    with pytest.raises(UnsupportedModel, match=r"has no forward.*Use cache=cloned\.$"):
        decoder(sparse, state, settings("manual"))
    with pytest.raises(UnsupportedModel, match="attention and recurrence in one"):
        decoder(sparse, state, settings("view")).step(torch.tensor([[5]]))


@pytest.mark.parametrize("name", ["manual", "view"])
def test_a_layer_that_let_go_of_what_the_model_needs_is_refused(name):
    trap = built(sliding_window=8)  # the library slides, this model's attention does not
    with pytest.raises(UnsupportedModel, match="never kept"):
        decoder(trap, captured(trap).state, settings(name)).step(torch.tensor([[5]]))


def test_states_and_positions_that_do_not_fit_are_one_plain_message(llama):
    state = captured(llama).state
    for other in (built(num_hidden_layers=1), built(num_key_value_heads=4), built(head_dim=8)):
        with pytest.raises(UnsupportedModel):
            decoder(other, state, settings("manual"))
    half = SimpleNamespace(text_config=llama.text_config, dtype=torch.bfloat16, device=llama.device)
    with pytest.raises(UnsupportedModel, match="bfloat16"):
        decoder(half, state, settings("view"))
    with pytest.raises(InputProblem, match="64 positions"):
        decoder(llama, state, settings("manual")).step(torch.full((1, 45), 5))


def test_priming_with_pads_poisons_and_static_without_does_not(llama):
    state, step = captured(llama).state, torch.tensor([[5]])
    clean = decoder(llama, state, settings("manual")).step(step)
    assert near(decoder(llama, state, settings("static")).step(step), clean)
    assert (
        decoder(llama, state, settings("static", pad_prime=8)).step(step) - clean
    ).abs().max() > 1e-3


ALIBI = {
    "bloom": {},
    "mpt": {"max_seq_len": 48},  # less than the room that a buffer has elsewhere
    "falcon": {"head_dim": None, "alibi": True, "multi_query": False},
}


@pytest.mark.parametrize("kind", ALIBI)
@pytest.mark.parametrize("batch", [1, 2])
def test_biases_of_alibi_reach_as_far_as_the_static_buffer(kind, batch):
    loaded = built(kind, "sdpa" if kind == "falcon" else "eager", **ALIBI[kind])
    state = captured(loaded, batch=batch).state
    fixed, growing = (decoder(loaded, state, settings(name)) for name in ("static", "cloned"))
    for ids in torch.randint(3, 96, (batch, 7)).split([4, 1, 1, 1], dim=1):
        assert near(fixed.step(ids), growing.step(ids))
    kept = decoder(loaded, fixed.commit(), settings("cloned"))
    assert near(kept.step(ids), growing.step(ids))


def test_mpt_goes_on_to_its_last_bias_and_says_so():
    loaded = built("mpt", "eager", max_seq_len=24)
    fixed = decoder(loaded, captured(loaded).state, settings("static"))
    fixed.step(torch.tensor([[5, 6, 7, 8]]))
    with pytest.raises(UnsupportedModel, match="room for 4 new tokens"):
        fixed.step(torch.tensor([[9]]))


@pytest.mark.parametrize("family", ["gemma3_text", "llama, config with an unused window", "qwen2"])
def test_the_table_tells_equivalent_from_refused_from_what_the_library_lost(family, compose):
    found = {
        r["cache"]: r["outcome"]
        for r in rows_of(examine(family, compose("task=architectures", "device=cpu")))
    }
    if "unused" in family:
        assert found["dynamic"] == "drifted" and found["view"] == found["manual"] == "refused"
    else:
        assert found["cloned"] == "exact" and found["view"] == found["manual"] == "equivalent"


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("name", ["manual", "view"])
def test_on_cuda_each_cache_goes_on_as_the_uninterrupted_run_does(name):
    loaded = built()
    loaded.model.to("cuda")
    found = captured(loaded)
    fed = torch.tensor([[5, 6, 7]], device="cuda")
    logits = decoder(loaded, found.state, settings(name)).step(fed)
    oracle = yardstick.alone(loaded.oracle, found.state, fed)
    plain = drive.Uninterrupted(loaded, found.live, found.state).step(fed)
    floor = (plain.double() - oracle).abs().max()
    assert (logits.double() - oracle).abs().max() <= 2 * floor


def test_two_threads_may_view_one_model_at_once(llama):
    states = [captured(llama, tokens=n).state for n in (20, 9)]
    fed = torch.randint(3, 96, (12, 1, 1), generator=torch.Generator().manual_seed(5))

    def run(state):
        one = decoder(llama, state, settings("view"))
        return torch.cat([one.step(ids) for ids in fed], 1)

    alone = [run(state) for state in states]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for found, expected in zip(pool.map(run, states * 2), alone * 2, strict=True):
                assert torch.equal(found, expected)


@pytest.mark.parametrize("batch", [1, 3])
def test_capture_counts_the_real_tokens_and_the_next_one_goes_right_behind(llama, batch):
    state = captured(llama, batch=batch).state
    assert torch.equal(state.next_position, state.attention_mask.sum(1))
    fed = torch.tensor([[7]]).repeat(batch, 1)
    after = decoder(llama, state, settings("cloned")).step(fed)[:, -1]
    for row in range(batch):
        ids = state.token_ids[row : row + 1, state.attention_mask[row] != 0]
        whole = llama.uncached(torch.cat([ids, fed[:1]], 1), 1)[:, -1]
        assert near(after[row : row + 1], whole)


@pytest.mark.parametrize("name", ["cloned", "manual", "view", "static"])
def test_a_commit_keeps_the_logits_of_the_last_token_fed(llama, name):
    state = captured(llama).state
    fed = torch.tensor([[7, 8, 9]])
    made = decoder(llama, state, settings(name))
    rows = made.step(fed)
    assert not near(rows[:, 0], rows[:, -1])
    kept = made.commit()
    assert torch.equal(kept.logits, rows[:, -1])
    whole = llama.uncached(torch.cat([state.token_ids, fed], 1), 1)[:, -1]
    assert near(kept.logits, whole)
    assert torch.equal(kept.next_position, state.next_position + 3)


class Losing(Cloned):
    """Its `commit` changes one value of the past: `edit` says which, None changes nothing."""

    edit: tuple[int, int] | None = None

    def commit(self, branch=0):
        grown = super().commit(branch)
        if self.edit is None:
            return grown
        index, token = self.edit
        layers = list(grown.layers)
        first, *rest = layers[index].segments
        value = first.value.clone()
        value[:, :, token] = 0
        layers[index] = replace(layers[index], segments=(replace(first, value=value), *rest))
        return grown.with_layers(tuple(layers))


@pytest.mark.parametrize("kind", ["llama", "mistral"])
def test_a_commit_of_ones_own_may_not_change_the_past(kind):
    """Also where a window has dropped some of it; what was fed is its own."""
    loaded = built(kind, **({"sliding_window": 8} if kind == "mistral" else {}))
    state, fed = captured(loaded, batch=1 if kind == "mistral" else 2).state, torch.full((1, 3), 7)
    made = Losing(loaded, state, settings("cloned"))
    made.step(fed.repeat(state.batch, 1))
    assert made.commit().tokens == state.tokens + 3
    made.edit = (1, 2)
    with pytest.raises(ConfigProblem, match=r"`commit` gave other .* in layer 1;"):
        made.commit()
