"""What a place or a document must not do: each refused plainly, nobody's file deleted."""

import os
import threading

import pytest
import torch
from store_attacks import resign
from store_states import assert_same, grown, make_state, saved, settings

from harness.errors import InputProblem, SnapshotInvalid
from harness.save import atomic, leftovers, store


def test_nothing_is_replaced_unasked_and_nobodys_file_ever(tmp_path):
    store.save(make_state(), tmp_path / "s", settings())
    with pytest.raises(InputProblem, match="overwrite=true"):
        store.save(make_state(seed=1), tmp_path / "s", settings())
    for mine in ("notes.txt", "tokenizer/notes.txt"):
        (tmp_path / "s" / mine).write_text("mine")
        with pytest.raises(InputProblem, match=r"notes\.txt.* is left alone|left alone"):
            saved(make_state(seed=1), tmp_path / "s", settings())
        assert (tmp_path / "s" / mine).read_text() == "mine"
        (tmp_path / "s" / mine).unlink()
    saved(make_state(seed=1), tmp_path / "s", settings())
    assert_same(make_state(seed=1), store.load(tmp_path / "s")[0])


@pytest.mark.parametrize("name", ["kv", "manifest.json", "tokenizer/extra.txt"])
def test_a_directory_where_a_file_belongs(tmp_path, name):
    saved(make_state(), tmp_path / "s", settings())
    path = next((tmp_path / "s").glob("kv-*")) if name == "kv" else tmp_path / "s" / name
    path.unlink()
    path.mkdir()
    with pytest.raises(SnapshotInvalid, match="not a plain file"):
        store.load(tmp_path / "s")


EDITS = {
    "prompt_meta of another type": lambda m: m["documents"].update(prompt_meta=[1]),
    "prefix_ids of another type": lambda m: m["documents"].update(prompt_meta={"prefix_ids": 3}),
    "a proof that is text": lambda m: m["documents"].update(proof={"logits": "x", "kv": 1.0}),
    "half a proof": lambda m: m["documents"].update(proof={"logits": 1.0}),
    "generation missing": lambda m: m["documents"].pop("generation"),
    "a sampler that is text": lambda m: m["documents"]["generation"].update(sampler="x"),
    "a parent that is a number": lambda m: m.update(parent=7),
    "a parent that is a path": lambda m: m.update(parent="../x"),
    "lineage of nothing": lambda m: m["lineage"].append({"snapshot": "0" * 64, "place": "x", "files": []}),
}  # fmt: skip


@pytest.mark.parametrize("what", EDITS)
def test_documents_are_checked_before_they_are_used(tmp_path, what):
    saved(make_state(), tmp_path / "s", settings())
    resign(tmp_path / "s", EDITS[what])
    with pytest.raises(SnapshotInvalid):
        store.load(tmp_path / "s")


def test_a_generator_state_that_no_generator_takes(tmp_path):
    from dataclasses import replace

    bad = replace(make_state(), rng=torch.zeros(7, dtype=torch.uint8))
    saved(bad, tmp_path / "s", settings())
    with pytest.raises(SnapshotInvalid, match="generator state"):
        store.load(tmp_path / "s")


def test_readers_during_replacements_see_the_old_or_the_new(tmp_path):
    states = [make_state(seed=n, tokens=200) for n in (1, 2)]
    saved(states[0], tmp_path / "s", settings())
    done = threading.Event()

    def replacing():
        while not done.is_set():
            for state in states:
                saved(state, tmp_path / "s", settings())

    writer = threading.Thread(target=replacing)
    writer.start()
    try:
        for _ in range(40):
            back, _ = store.load(tmp_path / "s")
            assert_same(next(s for s in states if torch.equal(s.token_ids, back.token_ids)), back)
    finally:
        done.set()
        writer.join()


def test_a_mapped_file_edited_after_the_load_is_not_built_on(tmp_path):
    saved(make_state(), tmp_path / "s", settings())
    state, _ = store.load(tmp_path / "s", store.Access(map=True))
    apart, _ = store.load(tmp_path / "s", store.Access(map=False))
    before = apart.layers[0].key.clone()
    state, _ = store.load(tmp_path / "s", store.Access(map=True))
    path = next((tmp_path / "s").glob("kv-*"))
    with path.open("r+b") as file:
        file.seek(-1, os.SEEK_END)
        file.write(b"\x55")
    with pytest.raises(SnapshotInvalid, match="written to after it was verified"):
        saved(grown(state, 2, seed=3), tmp_path / "next", settings())
    assert apart.layers[0].key.equal(before) or before.isnan().any()


def test_what_a_killed_writer_left_elsewhere_is_removed(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "far").mkdir()
    child = os.fork()
    if child == 0:
        path, _ = atomic.locked(tmp_path / "far" / "s")
        leftovers.noted(path).__enter__()
        (path / "tokens").write_text("the prompt")
        os._exit(0)
    os.waitpid(child, 0)
    assert list((tmp_path / "far").iterdir())
    saved(make_state(), tmp_path / "near" / "s", settings())
    assert not list((tmp_path / "far").iterdir())
