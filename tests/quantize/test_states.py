"""A quantized State: what it holds, what every format and cache makes of it, and what its readers refuse."""

import json
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from harness.attention import split
from harness.cache import registry as caches
from harness.capture import capture
from harness.config import CacheConfig, PruneConfig, SaveConfig, option
from harness.errors import SnapshotInvalid, UnsupportedModel
from harness.model.loaded import Loaded
from harness.pipeline.quantize import errors
from harness.pipeline.restore import proof
from harness.prune.registry import policy
from harness.quantize.registry import names, quantizer
from harness.save import registry, store
from harness.snapshot import coherence
from harness.snapshot import manifest as manifests
from harness.snapshot.codes import Codes
from harness.snapshot.state import LayerState, Segment, State

FORMATS = registry.shipped()
TOKENS = 40


def built(kind="llama", **values):
    torch.manual_seed(0)
    small = {
        "vocab_size": 96, "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "initializer_range": 0.1,
        "max_position_embeddings": 256, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
    }  # fmt: skip
    config = AutoConfig.for_model(kind, **{**small, **values})
    return Loaded(AutoModelForCausalLM.from_config(config).eval(), None, {"name": kind}, 0.0)


@pytest.fixture(scope="module")
def llama():
    return built()


def captured(loaded, batch=1, tokens=TOKENS) -> State:
    ids = torch.randint(3, 96, (batch, tokens), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    for row in range(1, batch):
        mask[row, : 3 * row] = 0
    documents = {"generation": {"sampler": {"kind": "greedy"}, "steps": 0}, "prompt_meta": {}, "tokenizer": {}}  # fmt: skip
    return capture(loaded, ids, mask, documents).state


def quantized(state: State, name: str, **given) -> State:
    small = {"kivi": {"bits": 2, "recent": 7}, "library": {"bits": 4}}
    settings = option("quantize", name, **{"group": 8, **small.get(name, {}), **given})
    return quantizer(settings).quantize(state)


def dense_twin(state: State) -> State:
    """The same numbers, none of them as codes."""
    layers = tuple(
        replace(layer, segments=(Segment(layer.key, layer.value, layer.positions),))
        for layer in state.layers
    )
    return state.with_layers(layers)


def assert_same(one: State, two: State) -> None:
    mine, yours = dict(one.tensors()), dict(two.tensors())
    assert mine.keys() == yours.keys()
    for name, tensor in mine.items():
        assert tensor.dtype == yours[name].dtype, name
        assert torch.equal(tensor.view(torch.uint8), yours[name].view(torch.uint8)), name


@pytest.mark.parametrize("name", names())
def test_quantizing_changes_nothing_it_is_given_and_says_what_it_did(llama, name: str) -> None:
    state = captured(llama, batch=2)
    before = [(t.data_ptr(), t._version) for _, t in state.tensors()]
    small = quantized(state, name)
    assert [(t.data_ptr(), t._version) for _, t in state.tensors()] == before
    assert small.quantized and not state.quantized and not small.pruned
    assert small.kv_bytes < 0.6 * state.kv_bytes
    assert small.dtype == state.dtype and small.kept_tokens == state.kept_tokens
    assert small.documents["kv_format"]["quantized"][0]["quantizer"] == name
    assert coherence.faults(small) == []
    rows = errors(state, small)
    assert [(r["layer"], r["head"]) for r in rows] == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert all(0 < r["key_error"] < 0.8 and r["value_max_error"] > 0 for r in rows)
    assert proof(llama, small) == []


@pytest.mark.parametrize("name", names())
def test_the_most_recent_tokens_stay_as_they_are_and_no_more(llama, name: str) -> None:
    state = captured(llama)
    for layer, whole in zip(quantized(state, name, recent=7).layers, state.layers, strict=True):
        *coded, plain = layer.segments
        assert all(s.coded for s in coded) and not plain.coded and plain.tokens == 7
        assert torch.equal(plain.key, whole.key[:, :, -7:])
        assert torch.equal(plain.value, whole.value[:, :, -7:])


def test_an_undeclared_quantizing_is_incoherent(llama) -> None:
    small = quantized(captured(llama), "int8")
    silent = small.document("kv_format", quantized=None)
    assert any("no quantizing is recorded" in fault for fault in coherence.faults(silent))


def test_errors_find_the_head_that_was_hurt(llama) -> None:
    state = captured(llama)
    small = quantized(state, "int8")
    layer = small.layers[1]
    segment = layer.segments[0]
    assert isinstance(segment.value, Codes)
    scale = segment.value.scale.clone()
    scale[:, 1] *= 2
    hurt = replace(segment, value=replace(segment.value, scale=scale))
    bad = replace(small, layers=(small.layers[0], replace(layer, segments=(hurt,))))
    worst = max(errors(state, bad), key=lambda row: row["value_error"])
    assert (worst["layer"], worst["head"]) == (1, 1) and worst["value_error"] > 0.9


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("name", names())
def test_every_code_comes_back_from_every_format(llama, tmp_path, form: str, name: str) -> None:
    small = quantized(captured(llama, batch=2), name)
    manifest = store.save(small, tmp_path / "s", SaveConfig(form, sync=False))
    back, _ = store.load(tmp_path / "s")
    assert_same(small, back)
    assert back.quantized and back.kv_bytes == small.kv_bytes == manifest["kv_bytes"]
    stored = {row["part"] for row in manifest["tensors"] if row["element"] == 1}
    assert {"key_codes", "key_scale", "value_codes", "value_scale"} <= stored


@pytest.mark.parametrize("change", ["scale", "described", "undeclared", "forged"])
def test_codes_that_do_not_fit_are_refused(llama, tmp_path, change: str) -> None:
    small = quantized(captured(llama), "int4")
    store.save(small, tmp_path / "s", SaveConfig("safetensors", sync=False))
    path = tmp_path / "s" / "manifest.json"
    manifest = json.loads(path.read_bytes())
    entry = manifest["documents"]["kv_format"]["layers"][0]
    if change == "scale":
        entry["coded"][0]["key"]["span"] = [2, 8]
    elif change == "described":
        entry["coded"][0]["value"]["bits"] = 8
    elif change == "undeclared":
        del entry["coded"]
    else:
        entry["coded"][0]["key"]["dtype"] = "os.system"
    manifest["elements"] = manifests.element_rows(manifest["tensors"], manifest["documents"])
    manifest["id"] = manifests.identity(manifest)
    path.write_bytes(manifests.dump(manifest))
    with pytest.raises(SnapshotInvalid):
        store.load(tmp_path / "s")


SERVED = sorted(set(caches.names()))


@pytest.mark.parametrize("cache", SERVED)
@pytest.mark.parametrize("name", names())
def test_every_cache_reads_the_same_numbers(llama, cache: str, name: str) -> None:
    small = quantized(captured(llama, batch=2), name)
    fed = torch.randint(3, 96, (2, 5), generator=torch.Generator().manual_seed(2))
    mine = caches.decoder(llama, small, CacheConfig(name=cache))
    twin = caches.decoder(llama, dense_twin(small), CacheConfig(name=cache))
    before = mine.fingerprint(digest=True)
    found = torch.cat([mine.step(p) for p in fed.split([3, 1, 1], 1)], 1)
    expected = torch.cat([twin.step(p) for p in fed.split([3, 1, 1], 1)], 1)
    rounding = 64 * 2.0**-24 * float(expected.abs().max())
    assert float((found - expected).abs().max()) <= rounding
    whole = caches.decoder(llama, captured(llama, batch=2), CacheConfig(name=cache))
    full = torch.cat([whole.step(p) for p in fed.split([3, 1, 1], 1)], 1)
    assert float((found - full).abs().max()) > 8 * rounding  # the codes were really read
    if cache in ("manual", "view"):
        assert mine.fingerprint(digest=True) == before
        assert mine.kv_bytes < whole.kv_bytes
    committed = mine.commit()
    assert committed.quantized and committed.layers[0].segments[-1].tokens == 5
    assert coherence.faults(committed) == []


def test_the_past_is_decoded_a_block_at_a_time(llama, monkeypatch) -> None:
    small = quantized(captured(llama, tokens=200), "int8")
    sizes = []
    dense = Codes.dense
    monkeypatch.setattr(Codes, "dense", lambda self: (sizes.append(self.shape[2]), dense(self))[1])
    alone = caches.decoder(llama, small, CacheConfig("manual")).step(torch.tensor([[5]]))
    assert max(sizes) == 200
    sizes.clear()
    monkeypatch.setattr(split, "CODED", 16)  # blocks are 256 tokens at least
    monkeypatch.setattr(split, "_blocks", lambda parts, tokens: in_blocks(parts, 64))
    blocked = caches.decoder(llama, small, CacheConfig("manual")).step(torch.tensor([[5]]))
    assert max(sizes) == 64 and sum(sizes) == 2 * 2 * 200
    assert float((alone - blocked).abs().max()) <= 64 * 2.0**-24 * float(alone.abs().max())


def in_blocks(parts, size):
    return [
        [(part.cut(start, min(start + size, part.tokens)), added)]
        for part, added in parts
        for start in range(0, part.tokens, size)
    ]


@pytest.mark.parametrize("window", [9, 31])
def test_a_sliding_window_drops_codes_as_it_drops_tokens(window: int) -> None:
    gemma = built(
        "gemma3_text", sliding_window=window, layer_types=["sliding_attention", "full_attention"]
    )
    small = quantized(captured(gemma), "kivi", recent=4)
    mine = caches.decoder(gemma, small, CacheConfig("manual"))
    twin = caches.decoder(gemma, dense_twin(small), CacheConfig("manual"))
    for token in (5, 6, 7):
        mine.step(torch.tensor([[token]]))
        twin.step(torch.tensor([[token]]))
    one, two = mine.commit(), twin.commit()
    assert torch.equal(one.layers[0].positions, two.layers[0].positions)
    first = one.layers[0].key[:, :, :3], two.layers[0].key[:, :, :3]
    assert torch.equal(*first)
    after = [caches.decoder(gemma, s, CacheConfig("manual")).step(torch.tensor([[8]])) for s in (one, two)]  # fmt: skip
    assert float((after[0] - after[1]).abs().max()) <= 256 * 2.0**-24 * float(after[1].abs().max())


def test_a_continued_snapshot_refers_to_the_codes_it_has(llama, tmp_path) -> None:
    small = quantized(captured(llama), "kivi")
    store.save(small, tmp_path / "a", SaveConfig("safetensors", sync=False))
    state, _ = store.load(tmp_path / "a")
    for turn in range(12):
        runner = caches.decoder(llama, state, CacheConfig("manual"))
        runner.step(torch.tensor([[5, 6]]))
        grown = runner.commit()
        manifest = store.save(grown, tmp_path / str(turn), SaveConfig("safetensors", sync=False))
        assert manifest["lineage"], turn
        back, _ = store.load(tmp_path / str(turn))
        assert torch.equal(back.layers[1].key, grown.layers[1].key)
        assert back.quantized and back.layers[0].segments[0].coded
        state = back
    assert len(state.layers[0].segments) <= 9
    again = quantized(state, "int8")  # what is coded stays, what was fed since is coded now
    assert_same_codes(again.layers[0], state.layers[0])
    assert all(segment.coded for segment in again.layers[0].segments)
    store.save(again, tmp_path / "again", SaveConfig("safetensors", sync=False))
    assert_same(again, store.load(tmp_path / "again")[0])


def assert_same_codes(one: LayerState, two: LayerState) -> None:
    mine, yours = one.segments[0].key, two.segments[0].key
    assert isinstance(mine, Codes) and isinstance(yours, Codes)
    assert torch.equal(mine.codes, yours.codes) and torch.equal(mine.scale, yours.scale)


@pytest.mark.parametrize("name", ["keep_last", "knorm", "sink_window"])
def test_pruning_composes_before_and_after(llama, tmp_path, name: str) -> None:
    state = captured(llama)
    small = policy(PruneConfig(name=name, ratio=0.5)).prune(state)
    first = quantized(small, "int8")
    assert first.pruned and first.quantized and first.kept_tokens == TOKENS // 2
    store.save(first, tmp_path / "s", SaveConfig("safetensors", sync=False))
    assert_same(first, store.load(tmp_path / "s")[0])
    last = policy(PruneConfig(name=name, ratio=0.5)).prune(quantized(state, "int8"))
    assert last.pruned and last.kept_tokens == TOKENS // 2 and coherence.faults(last) == []
    store.save(last, tmp_path / "t", SaveConfig("safetensors", sync=False))
    assert_same(last, store.load(tmp_path / "t")[0])


def test_a_state_without_keys_and_values_is_refused() -> None:
    blank = SimpleNamespace(layers=())
    with pytest.raises(UnsupportedModel, match="quantize=int8"):
        quantizer(option("quantize", "int8")).quantize(blank)


def test_a_loop_goes_on_from_a_quantized_snapshot(harness) -> None:
    text = "text='let k be 5 . the bird sang . what is'"
    assert harness("task=save", text, "quantize=int8", "out=small").code == 0
    done = harness("task=loop", "snapshot=small", "steps=4", "prune=keep_last", "prune.tokens=8")
    assert done.code == 0, done.out
    assert done.result["size"]["kept_tokens"] == 8
