"""Every format keeps every bit of every kind of layer, says what it stored, and nothing more."""

import os
import pickle
import stat

import pytest
import torch
from hypothesis import HealthCheck, given
from hypothesis import settings as examples
from hypothesis import strategies as st
from store_states import DTYPES, FORMATS, assert_same, grown, make_state, settings

from harness.errors import ConfigProblem, InputProblem, SnapshotInvalid
from harness.save import store
from harness.snapshot.state import FULL, LINEAR, SLIDING


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_every_bit_comes_back(tmp_path, form, dtype):
    state = make_state(dtype, batch=2)
    manifest = store.save(state, tmp_path / "s", settings(form))
    back, read = store.load(tmp_path / "s")
    assert_same(state, back)
    assert read == manifest and manifest["payload_format"] == form
    assert back.parent == manifest["id"]


@examples(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    form=st.sampled_from(FORMATS),
    dtype=st.sampled_from(DTYPES),
    tokens=st.integers(1, 40),
    batch=st.integers(1, 3),
    window=st.integers(2, 50),
    kinds=st.lists(st.sampled_from([FULL, SLIDING, LINEAR]), min_size=1, max_size=4),
    seed=st.integers(0, 1 << 20),
    turns=st.lists(st.integers(1, 9), max_size=3),
)
def test_any_state_through_any_format_and_lineage(
    tmp_path_factory, form, dtype, tokens, batch, window, kinds, seed, turns
):
    folder = tmp_path_factory.mktemp("chat")
    state = make_state(dtype, tokens, batch, seed, window, tuple(kinds))
    store.save(state, folder / "0", settings(form))
    back, _ = store.load(folder / "0")
    assert_same(state, back)
    for number, more in enumerate(turns, 1):
        state, back = grown(state, more, seed + number), grown(back, more, seed + number)
        store.save(back, folder / str(number), settings(form))
        back, _ = store.load(folder / str(number))
        assert_same(state, back)


@pytest.mark.parametrize("codec", ["lz4", "lz4hc", "zstd", "blosclz", "zlib"])
@pytest.mark.parametrize("shuffle", ["bit", "byte", "none"])
def test_blosc2_is_lossless_with_every_codec_and_shuffle(tmp_path, codec, shuffle):
    state = make_state("bfloat16", tokens=300)
    store.save(state, tmp_path / "s", settings("blosc2", codec=codec, shuffle=shuffle, level=3))
    assert_same(state, store.load(tmp_path / "s")[0])


@pytest.mark.parametrize("key,value", [("codec", "rar"), ("shuffle", "bits")])
def test_an_unknown_codec_is_named(tmp_path, key, value):
    with pytest.raises(ConfigProblem, match=f"save.{key}={value}"):
        store.save(make_state(), tmp_path / "s", settings("blosc2", **{key: value}))
    assert not list(tmp_path.iterdir())


def test_an_unknown_format_is_named(tmp_path):
    with pytest.raises(ConfigProblem, match="Did you mean 'pickle'"):
        store.save(make_state(), tmp_path / "s", settings("pickel"))


@pytest.mark.parametrize("form", FORMATS)
def test_only_the_owner_may_look(tmp_path, form):
    old = os.umask(0)
    try:
        store.save(make_state(), tmp_path / "s", settings(form))
    finally:
        os.umask(old)
    for path in [tmp_path / "s", *(tmp_path / "s").rglob("*")]:
        assert stat.S_IMODE(path.stat().st_mode) == (0o700 if path.is_dir() else 0o600), path


@pytest.mark.parametrize("form", FORMATS)
def test_a_view_is_stored_without_its_hidden_storage(tmp_path, form):
    from dataclasses import replace

    state = make_state("float32", tokens=2000, kinds=(FULL,))
    whole = state.layers[0].segments[0]
    few = replace(
        whole, key=whole.key[:, :, -3:], value=whole.value[:, :, -3:], positions=whole.positions[:, -3:]
    )  # fmt: skip
    state = replace(state, layers=(replace(state.layers[0], segments=(few,)),))
    entry = {**state.documents["kv_format"]["layers"][0], "segments": [3]}
    state = state.document("kv_format", layers=[entry], pruned=True)
    store.save(state, tmp_path / "s", settings(form))
    kv = [p for p in (tmp_path / "s").iterdir() if p.name.startswith("kv-")]
    assert sum(p.stat().st_size for p in kv) < 6000
    assert_same(state, store.load(tmp_path / "s")[0])


def test_a_map_is_not_a_copy(tmp_path):
    """The file backs the tensors: a byte changed on disk (behind our back) shows in the tensor."""
    store.save(make_state("float32"), tmp_path / "s", settings())
    back, _ = store.load(tmp_path / "s")
    key = back.layers[0].segments[0].key
    before = bytes(key.view(torch.uint8).reshape(-1).numpy())
    path = next(p for p in (tmp_path / "s").iterdir() if p.name.startswith("kv-"))
    content = bytearray(path.read_bytes())
    place = bytes(content).index(before)
    with path.open("r+b") as file:
        file.seek(place)
        file.write(bytes([before[0] ^ 0xFF]))
    assert bytes(key.view(torch.uint8).reshape(-1).numpy())[0] == before[0] ^ 0xFF


def test_other_programs_can_read_what_we_write(tmp_path):
    """safetensors, torch and pickle files are what their names say."""
    from safetensors.torch import load_file

    state = make_state("bfloat16")
    key = state.layers[0].segments[0].key
    for form in ("safetensors", "torch", "pickle"):
        store.save(state, tmp_path / form, settings(form))
    (path,) = (tmp_path / "safetensors").glob("kv-*")
    assert torch.equal(load_file(path)["layer.0.key"].view(torch.int16), key.view(torch.int16))
    (path,) = (tmp_path / "torch").glob("kv-*")
    held = torch.load(path, weights_only=True)
    assert torch.equal(held["layer.0.key"].view(torch.int16), key.view(torch.int16))
    (path,) = (tmp_path / "pickle").glob("kv-*")
    with path.open("rb") as file:
        name, dtype, shape, data = pickle.load(file)
    assert (name, dtype, shape) == ("layer.0.key", "bfloat16", tuple(key.shape))
    assert data == bytes(key.view(torch.uint8).reshape(-1).numpy())


def test_memory_is_gone_with_its_process(tmp_path):
    """The twin of the round trip: what the manifest names is not there, and that is said."""
    from harness.save import memory

    store.save(make_state(), tmp_path / "s", settings("memory"))
    memory._kept.clear()
    with pytest.raises(SnapshotInvalid, match="memory of a process that has ended"):
        store.load(tmp_path / "s")


def test_memory_holds_copies(tmp_path):
    state = make_state()
    store.save(state, tmp_path / "s", settings("memory"))
    state.layers[0].segments[0].key.zero_()
    back, _ = store.load(tmp_path / "s")
    assert not torch.equal(back.layers[0].segments[0].key, state.layers[0].segments[0].key)


def test_equal_states_have_equal_ids_and_bytes(tmp_path):
    for form in FORMATS:
        one = store.save(make_state(), tmp_path / f"{form}-a", settings(form))
        two = store.save(make_state(), tmp_path / f"{form}-b", settings(form))
        assert one["id"] == two["id"]
        for path in (tmp_path / f"{form}-a").glob("*.*"):
            assert path.read_bytes() == (tmp_path / f"{form}-b" / path.name).read_bytes(), path


def test_no_directory_and_no_snapshot_are_told_apart(tmp_path):
    with pytest.raises(InputProblem, match="no such directory"):
        store.load(tmp_path / "nothing")
    with pytest.raises(InputProblem, match=r"holds no manifest\.json"):
        store.load(tmp_path)
