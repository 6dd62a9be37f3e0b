"""Whatever happens to the files, it is found before a tensor is used, with a message, not a crash."""

import os
import random
import resource
import shutil
import time

import pytest
import store_damage
from store_states import FORMATS, assert_same, grown, make_state, settings

from harness.errors import HarnessError, SnapshotInvalid
from harness.save import store

TINY = {"dtype": "bfloat16", "tokens": 10}


@pytest.fixture(scope="module")
def family(tmp_path_factory):
    """For each format: parent `p`, its child `c`, and an unrelated snapshot `other`."""
    folder = tmp_path_factory.mktemp("family")
    for form in FORMATS:
        parent = make_state(**TINY)
        store.save(parent, folder / form / "p", settings(form))
        back, _ = store.load(folder / form / "p")
        child = grown(back, 3, 500)
        manifest = store.save(child, folder / form / "c", settings(form))
        assert manifest["lineage"], "the child must depend on its parent for this test to mean much"
        store.save(make_state(seed=77, **TINY), folder / form / "other", settings(form))
    return folder


def trial(folder, scratch, form, seed):
    """One corruption of the child or its parent; the damage done, and what the loader said."""
    rng = random.Random(f"{form}-{seed}")
    if scratch.exists():
        shutil.rmtree(scratch)
    shutil.copytree(folder / form, scratch)
    victim = rng.choice(["p", "c"])
    done = store_damage.corrupt(scratch / victim, scratch / "other", rng)
    start = time.monotonic()
    try:
        store.load(scratch / victim)
    except HarnessError as problem:
        said = str(problem)
        assert said and "Traceback" not in said
    else:
        said = None
    assert time.monotonic() - start < 20, done
    return f"{victim} {done}", said


@pytest.mark.parametrize("form", FORMATS)
def test_damage_is_always_found(family, tmp_path, form, count=84):
    for seed in range(count):
        done, said = trial(family, tmp_path / "x", form, seed)
        assert said is not None, f"seed {seed}: {done} went unnoticed"
    store.load(family / form / "p")  # the originals are sound: the tests above are no accident
    store.load(family / form / "c")


@pytest.mark.slow
@pytest.mark.parametrize("form", FORMATS)
def test_damage_is_always_found_ten_thousand_times(family, tmp_path, form):
    test_damage_is_always_found(family, tmp_path, form, int(os.environ.get("FUZZ", "10000")))
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < 4 << 20  # KiB


@pytest.mark.parametrize("seed", range(12))
def test_what_the_process_keeps_is_verified_too(tmp_path, seed):
    store.save(make_state(seed=seed, **TINY), tmp_path / "s", settings("memory"))
    store_damage.forget(tmp_path / "s", None, random.Random(seed))
    with pytest.raises(SnapshotInvalid, match="does not match its digest"):
        store.load(tmp_path / "s")


@pytest.mark.parametrize("form", FORMATS)
def test_a_missing_parent_is_named(family, tmp_path, form):
    shutil.copytree(family / form, tmp_path / "x")
    parent = store.read_manifest(tmp_path / "x" / "p")["id"]
    shutil.rmtree(tmp_path / "x" / "p")
    with pytest.raises(SnapshotInvalid, match=parent[:16]):
        store.load(tmp_path / "x" / "c")


@pytest.mark.parametrize("form", FORMATS)
def test_a_damaged_parent_is_named(family, tmp_path, form):
    shutil.copytree(family / form, tmp_path / "x")
    parent = store.read_manifest(tmp_path / "x" / "p")
    path = next((tmp_path / "x" / "p").glob("kv-*"))
    data = bytearray(path.read_bytes())
    path.write_bytes(data[: len(data) // 2] + bytes(b ^ 1 for b in data[len(data) // 2 :]))
    with pytest.raises(SnapshotInvalid, match=parent["id"][:16]):
        store.load(tmp_path / "x" / "c")


@pytest.mark.parametrize("form", FORMATS)
def test_another_snapshot_in_the_parents_place_is_not_taken_for_it(family, tmp_path, form):
    shutil.copytree(family / form, tmp_path / "x")
    shutil.rmtree(tmp_path / "x" / "p")
    (tmp_path / "x" / "other").rename(tmp_path / "x" / "p")
    with pytest.raises(
        SnapshotInvalid, match=r"does not lie beside it in .*\n(.*\n)*.*compact=true"
    ):
        store.load(tmp_path / "x" / "c")


@pytest.mark.parametrize("form", FORMATS)
def test_a_renamed_parent_is_found_by_its_id(family, tmp_path, form):
    shutil.copytree(family / form, tmp_path / "x")
    before, _ = store.load(tmp_path / "x" / "c")
    (tmp_path / "x" / "p").rename(tmp_path / "x" / "moved here")
    after, _ = store.load(tmp_path / "x" / "c")
    assert_same(before, after)


def test_every_fault_is_listed_at_once(family, tmp_path):
    shutil.copytree(family / "safetensors", tmp_path / "x")
    damaged = sorted((tmp_path / "x" / "p").glob("*-*.safetensors"))
    damaged += sorted((tmp_path / "x" / "p" / "tokenizer").iterdir())
    for path in damaged:
        with path.open("ab") as file:
            file.write(b"!")
    (tmp_path / "x" / "p" / "stranger").touch()
    found = store.faults(tmp_path / "x" / "p")
    assert len(damaged) == 4
    for name in [*(p.name for p in damaged), "stranger"]:
        assert any(name in fault for fault in found), (name, found)


def test_a_file_that_nobody_saved_is_to_be_taken_out_where_it_is_the_only_fault(family, tmp_path):
    shutil.copytree(family / "safetensors", tmp_path / "x")
    place = tmp_path / "x" / "p"
    for names, it in ((["hello.txt"], "that file"), (["hello.txt", "more.txt"], "those files")):
        for name in names:
            (place / name).touch()
        with pytest.raises(SnapshotInvalid) as problem:
            store.load(place)
        assert problem.value.remedy.startswith(
            f"Every file that was saved is whole: take {it} out of its folder."
        )
        assert "backup" not in str(problem.value)
    with next(place.glob("*-*.safetensors")).open("ab") as file:
        file.write(b"!")
    with pytest.raises(
        SnapshotInvalid, match=r"hello\.txt is not part(.*\n)*Restore it from a backup"
    ):
        store.load(place)
