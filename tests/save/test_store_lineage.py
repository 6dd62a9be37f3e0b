"""A chat grows by its new tokens; what the parent holds is referred to, found again and verified."""

import re
import shutil
from dataclasses import replace

import pytest
import torch
from store_states import FORMATS, assert_same, grown, make_state, saved, settings

from harness.errors import InputProblem, SnapshotInvalid
from harness.save import lineage, store
from harness.snapshot.state import FULL, SLIDING


def big(tokens=2048, **more):
    return make_state("bfloat16", tokens=tokens, kinds=(FULL, SLIDING) * 4, window=256, **more)


@pytest.mark.parametrize("form", [f for f in FORMATS if f != "memory"])
def test_a_commit_writes_only_the_new_tokens(tmp_path, form):
    saved(big(), tmp_path / "a", settings(form))
    back, _ = store.load(tmp_path / "a")
    child = grown(back, 32, 9)
    manifest = saved(child, tmp_path / "b", settings(form))
    kv = sum(p.stat().st_size for p in (tmp_path / "b").glob("kv-*"))
    full = sum(p.stat().st_size for p in (tmp_path / "a").glob("kv-*"))
    assert kv < 0.2 * full  # the window's layers are rewritten in part
    assert manifest["parent"] == store.read_manifest(tmp_path / "a")["id"]
    again, _ = store.load(tmp_path / "b")
    assert_same(child, again)


def chat(folder, turns, reload, form="safetensors"):
    """Bytes of each turn's snapshot; `reload`: continue from disk or from memory."""
    state = big(64)
    manifest = saved(state, folder / "0", settings(form))
    sizes = []
    for turn in range(1, turns + 1):
        if reload:
            state, _ = store.load(folder / str(turn - 1))
        else:
            state = replace(state, parent=manifest["id"])
        state = grown(state, 32, turn)
        manifest = saved(state, folder / str(turn), settings(form))
        sizes.append(store.stored_bytes(folder / str(turn)))
    assert_same(state, store.load(folder / str(turns))[0])
    return sizes


@pytest.mark.parametrize("reload", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_a_chat_grows_with_its_new_tokens(tmp_path, reload):
    sizes = chat(tmp_path, 48, reload)
    first, second = sum(sizes[:24]), sum(sizes[24:])
    assert second < 1.5 * first  # every turn anew would make it 3 times as much
    whole = saved(store.load(tmp_path / "48")[0], tmp_path / "whole", settings(compact=True))
    assert not whole["lineage"]
    segments = [len(la["segments"]) for la in whole["documents"]["kv_format"]["layers"]]
    assert max(segments) <= lineage.LIMIT


def test_without_a_parent_everything_is_written(tmp_path):
    """The twin of the growth test: without lineage each turn costs as much as the whole chat."""
    state = big(1024)
    one = saved(state, tmp_path / "a", settings())
    saved(replace(grown(state, 32, 1), parent=None), tmp_path / "b", settings())
    assert store.stored_bytes(tmp_path / "b") > store.stored_bytes(tmp_path / "a")
    saved(replace(grown(state, 32, 1), parent=one["id"]), tmp_path / "c", settings())
    assert store.stored_bytes(tmp_path / "c") < 0.5 * store.stored_bytes(tmp_path / "a")


def test_changed_bytes_are_written_again_whatever_the_origin_says(tmp_path):
    saved(big(256), tmp_path / "a", settings())
    back, _ = store.load(tmp_path / "a")
    layer = back.layers[0]
    key = layer.segments[0].key.clone()
    key.view(torch.int16)[0, 0, 7, 0] ^= 1
    layers = (replace(layer, segments=(replace(layer.segments[0], key=key),)), *back.layers[1:])
    changed = grown(replace(back, layers=layers), 4, 5)
    saved(changed, tmp_path / "b", settings())
    assert_same(changed, store.load(tmp_path / "b")[0])


def test_branches_share_their_parent(tmp_path):
    saved(big(512), tmp_path / "a", settings())
    back, _ = store.load(tmp_path / "a")
    for name, seed in (("b", 1), ("c", 2)):
        saved(grown(back, 16, seed), tmp_path / name, settings())
        assert_same(grown(back, 16, seed), store.load(tmp_path / name)[0])


def test_a_grandchild_refers_to_the_owner_not_to_the_chain(tmp_path):
    saved(big(512), tmp_path / "a", settings())
    for old, new in (("a", "b"), ("b", "c")):
        back, _ = store.load(tmp_path / old)
        saved(grown(back, 16, ord(new)), tmp_path / new, settings())
    owners = {row["place"] for row in store.read_manifest(tmp_path / "c")["lineage"]}
    assert owners == {"a", "b"}
    shutil.rmtree(tmp_path / "b")
    with pytest.raises(SnapshotInvalid, match=r"\(b\), which does not lie beside it in"):
        store.load(tmp_path / "c")


def test_damage_of_a_parent_is_told_with_its_folder_and_what_mends_it(tmp_path):
    """The files beside the child are sound: a copy of the parent, under any name, is all that is missing."""
    saved(big(512), tmp_path / "a", settings())
    back, _ = store.load(tmp_path / "a")
    saved(grown(back, 16, 1), tmp_path / "b", settings())
    shutil.copytree(tmp_path / "a", tmp_path / "kept")
    file = next((tmp_path / "kept").glob("kv-*"))
    shutil.copytree(tmp_path / "kept", tmp_path / "elsewhere" / "a")
    shutil.rmtree(tmp_path / "kept")
    data = bytearray((tmp_path / "a" / file.name).read_bytes())
    data[len(data) // 2] ^= 1
    (tmp_path / "a" / file.name).write_bytes(data)
    with pytest.raises(SnapshotInvalid) as told:
        store.load(tmp_path / "b")
    said = str(told.value)
    assert f"in {tmp_path / 'a'}: snapshot" in said and "inherited" not in said
    assert "put an undamaged copy of that folder beside it" in said and "compact" not in said
    shutil.copytree(tmp_path / "elsewhere" / "a", tmp_path / "copy")
    store.load(tmp_path / "b")
    with pytest.raises(SnapshotInvalid, match="Restore it from a backup"):
        store.load(tmp_path / "a")


@pytest.mark.parametrize("form", FORMATS)
def test_compact_needs_nobody(tmp_path, form):
    saved(big(256), tmp_path / "a", settings(form))
    back, _ = store.load(tmp_path / "a")
    saved(grown(back, 16, 3), tmp_path / "b", settings(form))
    child, _ = store.load(tmp_path / "b")
    saved(child, tmp_path / "alone", settings(form, compact=True))
    shutil.rmtree(tmp_path / "a")
    with pytest.raises(SnapshotInvalid):
        store.load(tmp_path / "b")
    assert_same(child, store.load(tmp_path / "alone")[0])


def test_replacing_the_parent_in_place_keeps_everything(tmp_path):
    """A chat that saves every turn to one directory: nothing may refer to what is being replaced."""
    saved(big(256), tmp_path / "s", settings())
    for turn in range(3):
        state, _ = store.load(tmp_path / "s")
        state = grown(state, 16, turn)
        assert not saved(state, tmp_path / "s", settings())["lineage"]
        assert_same(state, store.load(tmp_path / "s")[0])


def test_what_others_are_built_on_is_not_replaced(tmp_path):
    first, child = tmp_path / "a", tmp_path / "b"
    saved(big(64), first, settings())
    grew = grown(store.load(first)[0], 16, 3)
    saved(grew, child, settings())
    with pytest.raises(InputProblem, match="what b is built on"):
        saved(big(96), first, settings())
    assert_same(grew, store.load(child)[0])
    saved(big(64), first, settings())  # the very same snapshot again
    shutil.copytree(first, tmp_path / "copy")
    saved(big(96), first, settings())  # b finds what it needs in the copy
    assert_same(grew, store.load(child)[0])
    saved(store.load(child)[0], child, settings(compact=True))
    saved(big(96), tmp_path / "copy", settings())
    assert_same(grew, store.load(child)[0])


def flipped(folder):
    """The snapshot in `folder` with the last byte of its values changed; sizes stay."""
    for payload in folder.glob("kv-*"):
        data = bytearray(payload.read_bytes())
        data[-1] ^= 1
        payload.write_bytes(data)


@pytest.mark.parametrize("form", [f for f in FORMATS if f != "memory"])
def test_a_damaged_copy_of_the_parent_is_passed_over(tmp_path, form):
    first = make_state("bfloat16", tokens=256, kinds=(FULL,) * 2)
    saved(first, tmp_path / "parent", settings(form))
    state = grown(store.load(tmp_path / "parent")[0], 16, 3)
    shutil.copytree(tmp_path / "parent", tmp_path / "broken")  # found first: by name
    flipped(tmp_path / "broken")
    store._read_from.clear()  # else the one that was read
    manifest = saved(state, tmp_path / "child", settings(form))
    assert [row["place"] for row in manifest["lineage"]] == ["parent"]
    assert_same(state, store.load(tmp_path / "child")[0])
    shutil.rmtree(tmp_path / "broken")
    shutil.copytree(tmp_path / "parent", tmp_path / "sound")
    flipped(tmp_path / "parent")  # where it was; a sound copy is there under another name
    state = replace(grown(first, 16, 3), parent=state.parent)  # the other one may be mapped from it
    assert_same(state, store.load(tmp_path / "child")[0])
    assert store.faults(tmp_path / "child") == []
    flipped(tmp_path / "sound")  # the twin: no sound copy is left, and the first one is named
    with pytest.raises(SnapshotInvalid, match=r"\(parent\).*does not match its digest"):
        store.load(tmp_path / "child")


def test_a_damaged_or_foreign_parent_is_not_built_upon(tmp_path):
    saved(big(256), tmp_path / "a", settings())
    back, _ = store.load(tmp_path / "a")
    state = grown(back, 16, 3)
    assert not saved(state, tmp_path / "t", settings("torch"))["lineage"]
    assert not saved(state, tmp_path / "else" / "where", settings())["lineage"]
    next((tmp_path / "a").glob("kv-*")).unlink()
    assert not saved(state, tmp_path / "b", settings())["lineage"]
    assert_same(state, store.load(tmp_path / "b")[0])


def test_verify_says_what_a_snapshot_needs_beside_it(harness, tmp_path):
    saved(big(512), tmp_path / "a", settings())
    back, _ = store.load(tmp_path / "a")
    saved(grown(back, 16, 1), tmp_path / "b", settings())
    done = harness("task=verify", f"snapshot={tmp_path / 'b'}")
    assert done.code == 0 and re.search(
        r"^needs: a beside it, for 1 file of K/V and \d+ of the tokenizer \(", done.out, re.M
    )
    page = (done.folders[0] / "report.html").read_text()
    assert "It needs a beside it" in page
    alone = harness("task=verify", f"snapshot={tmp_path / 'a'}", "name=alone")
    assert alone.code == 0 and "needs" not in alone.out


def test_of_copies_the_one_that_was_read_is_needed_and_the_one_that_is_there_is_named(
    harness, tmp_path
):
    saved(big(512), tmp_path / "read", settings())
    shutil.copytree(tmp_path / "read", tmp_path / "copy")  # first by name
    manifest = saved(grown(store.load(tmp_path / "read")[0], 16, 1), tmp_path / "b", settings())
    assert {row["place"] for row in manifest["lineage"]} == {"read"}
    shutil.rmtree(tmp_path / "read")
    done = harness("task=verify", f"snapshot={tmp_path / 'b'}")
    assert done.code == 0 and "needs: copy beside it" in done.out and "read beside" not in done.out
