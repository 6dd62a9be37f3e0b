"""Crashes, full disks, read-only places, two writers: the old snapshot or the new one, always whole."""

import contextlib
import errno
import fcntl
import os
import random
import resource
import shutil
import signal
import subprocess
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from store_states import FORMATS, assert_same, make_state, saved, segment, settings

from harness import machine
from harness.config import SaveConfig
from harness.errors import InputProblem
from harness.save import atomic, contents, leftovers, room, store, writer

OLD = make_state(seed=1, tokens=300)
NEW = make_state(seed=2, tokens=300)


def durable(form="safetensors"):
    return SaveConfig(name=form, sync=True)


def is_one_of_both(folder):
    back, _ = store.load(folder)
    wanted = OLD if back.token_ids[0, 0] == OLD.token_ids[0, 0] else NEW
    assert_same(wanted, back)


def kills(folder, form, count, seed):
    """Kill a process that keeps saving over `folder`, `count` times at random moments."""
    rng = random.Random(seed)
    saved(OLD, folder, durable(form))
    start = time.perf_counter()
    saved(OLD, folder, durable(form))
    once = time.perf_counter() - start
    interrupted = 0
    for _ in range(count):
        child = os.fork()
        if child == 0:
            with contextlib.suppress(BaseException):
                while True:
                    saved(NEW, folder, durable(form))
                    saved(OLD, folder, durable(form))
            os._exit(1)
        time.sleep(rng.uniform(0, 2.5 * once))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert os.WIFSIGNALED(status), "the writer must die by our hand, not by an error"
        interrupted += bool(list(folder.parent.glob(".*.tmp")))
        is_one_of_both(folder)
    assert interrupted, "no kill came in the middle of a save: this run proves nothing"
    saved(NEW, folder, durable(form))
    assert [p.name for p in folder.parent.iterdir()] == [folder.name], "stale temporaries stayed"
    assert_same(NEW, store.load(folder)[0])


def test_a_killed_save_leaves_the_old_or_the_new_snapshot(tmp_path):
    kills(tmp_path / "s", "safetensors", 15, seed=0)


@pytest.mark.slow
@pytest.mark.parametrize("form", [f for f in FORMATS if f != "memory"])
def test_two_hundred_killed_saves(tmp_path, form):
    kills(tmp_path / "s", form, 200, seed=1)


@pytest.mark.parametrize("form", FORMATS)
def test_a_save_that_fails_leaves_no_trace(tmp_path, form, monkeypatch):
    """The same promise without a kill: any error inside, and the old snapshot is untouched."""
    saved(OLD, tmp_path / "s", settings(form))
    before = {p: p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file()}
    monkeypatch.setattr(writer, "tokenizer", lambda *a: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        saved(NEW, tmp_path / "s", settings(form))
    assert {p: p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file()} == before
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("form", [f for f in FORMATS if f != "memory"])
def test_a_file_that_cannot_grow(tmp_path, form):
    """A quota (EFBIG) in the middle of a payload file: a plain message, the old snapshot intact."""
    saved(OLD, tmp_path / "s", settings(form))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, hard))
    try:
        with pytest.raises(InputProblem, match="Nothing was changed there"):
            saved(NEW, tmp_path / "s", settings(form))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert_same(OLD, store.load(tmp_path / "s")[0])
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


@pytest.fixture
def small_disk(tmp_path):
    """A tmpfs of 256 KiB; skipped where mounting is not allowed."""
    disk = tmp_path / "disk"
    disk.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", disk], capture_output=True
    )
    if done.returncode:
        pytest.skip("no right to mount a tmpfs here")
    yield disk
    subprocess.run(["umount", disk], check=True)


@pytest.mark.parametrize("form", [f for f in FORMATS if f != "memory"])
def test_a_disk_without_room_is_not_begun_on(small_disk, form):
    saved(OLD, small_disk / "s", durable(form))
    before = {p: p.stat().st_mtime_ns for p in small_disk.rglob("*")}
    needs = r"needs .* free there\. Nothing was written\. .*out=DIR.*prune.*save=blosc2"
    with pytest.raises(InputProblem, match=needs):
        saved(make_state(seed=3, tokens=3000), small_disk / "s", durable(form))
    assert {p: p.stat().st_mtime_ns for p in small_disk.rglob("*")} == before
    assert_same(OLD, store.load(small_disk / "s")[0])
    saved(NEW, small_disk / "t", durable(form))  # what fits is written


def test_what_only_fits_compressed_is_written_compressed(small_disk):
    state = make_state(seed=4, tokens=5000, kinds=("full_attention",))
    (layer,) = state.layers
    (held,) = layer.segments
    flat = replace(held, key=torch.zeros_like(held.key), value=torch.zeros_like(held.value))
    state = state.with_layers((replace(layer, segments=(flat,)),))
    assert state.kv_bytes > machine.free_disk(small_disk)
    with pytest.raises(InputProblem, match="save=blosc2"):
        saved(state, small_disk / "s", durable("safetensors"))
    saved(state, small_disk / "s", durable("blosc2"))
    assert_same(state, store.load(small_disk / "s")[0])


def test_a_disk_that_fills_while_it_is_written(small_disk):
    """The payload fits, its manifest does not: no estimate sees that, the atomic write does."""
    saved(OLD, small_disk / "s", durable())
    payload = sum(p.stat().st_size for p in (small_disk / "s").glob("*.safetensors"))
    names = sum(len(data) for data in NEW.tokenizer_files.values())
    filler = machine.free_disk(small_disk) - payload - names - 4096
    (small_disk / "filler").write_bytes(bytes(filler // 4096 * 4096))
    with pytest.raises(InputProblem, match=r"No space left on device.*free some space"):
        saved(NEW, small_disk / "s", durable())
    assert_same(OLD, store.load(small_disk / "s")[0])
    assert {p.name for p in small_disk.iterdir()} == {"s", "filler"}


def test_a_long_save_says_what_it_takes(tmp_path):
    heard: list[str] = []
    saved(NEW, tmp_path / "short", durable(), heard.append)
    assert heard == []
    state = make_state(seed=5, tokens=4200, kinds=("full_attention",))
    wide = segment(5, 1, 0, 4200, "float32", heads=2, head_dim=4096)
    state = state.with_layers((replace(state.layers[0], segments=(wide,)),))
    assert state.kv_bytes > room.LONG
    saved(state, tmp_path / "long", settings(), heard.append)
    (said,) = heard
    amount, unit, rest = said.split(maxsplit=2)
    assert unit == "MiB,"
    assert float(amount) == pytest.approx(store.stored_bytes(tmp_path / "long") / 2**20, rel=0.01)
    assert rest.startswith("about ") and rest.endswith(" s")


def test_a_read_only_place(small_disk):
    saved(OLD, small_disk / "s", durable())
    subprocess.run(["mount", "-o", "remount,ro", small_disk], check=True)
    with pytest.raises(InputProblem, match="Read-only file system"):
        saved(NEW, small_disk / "s", durable())
    assert_same(OLD, store.load(small_disk / "s")[0])


def test_what_is_no_snapshot_is_left_alone(tmp_path):
    (tmp_path / "s").mkdir()
    (tmp_path / "s" / "thesis.tex").write_text("years of work")
    with pytest.raises(InputProblem, match="left alone"):
        saved(NEW, tmp_path / "s", settings())
    (tmp_path / "file").write_text("x")
    with pytest.raises(InputProblem, match="not a directory"):
        saved(NEW, tmp_path / "file", settings())
    with pytest.raises(InputProblem, match="cannot write"):
        saved(NEW, tmp_path / "file" / "below", settings())
    assert (tmp_path / "s" / "thesis.tex").read_text() == "years of work"


def test_two_writers_do_not_disturb_each_other(tmp_path):
    children = []
    for state in (OLD, NEW, OLD, NEW):
        child = os.fork()
        if child == 0:
            code = 1
            with contextlib.suppress(BaseException):
                for _ in range(8):
                    saved(state, tmp_path / "s", settings())
                code = 0
            os._exit(code)
        children.append(child)
    for child in children:
        assert os.waitpid(child, 0)[1] == 0
    is_one_of_both(tmp_path / "s")
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("replaced", [True, False])
def test_a_folder_that_is_replaced_while_it_is_searched_is_searched_again(
    tmp_path, monkeypatch, replaced
):
    """Its files go while they are listed. Where nobody replaced it, that is told."""
    saved(OLD, tmp_path / "s", settings())
    saved(NEW, tmp_path / "t", settings())
    listing, first = contents.files.listing, [True]

    def gone(folder):
        if first and first.pop():
            if replaced:
                (tmp_path / "s").rename(tmp_path / "away")
                (tmp_path / "t").rename(tmp_path / "s")
            raise FileNotFoundError("a file of it")
        return listing(folder)

    monkeypatch.setattr(contents.files, "listing", gone)
    if replaced:
        assert contents.foreign(tmp_path / "s") == []
    else:
        with pytest.raises(FileNotFoundError):
            contents.foreign(tmp_path / "s")


def test_what_was_replaced_is_removed_by_two_at_once(tmp_path, monkeypatch):
    """Its own writer and another save's search for leftovers: half of it is not somebody's files."""
    saved(OLD, tmp_path / "s", settings())
    publish, others = atomic._publish, []

    def seen_by_another(temporary, target, overwrite):
        publish(temporary, target, overwrite)
        lock = os.open(temporary, os.O_RDONLY)
        fcntl.flock(lock, fcntl.LOCK_EX)
        (temporary / "manifest.json").unlink()

        def slowly():
            time.sleep(0.1)
            shutil.rmtree(temporary)
            os.close(lock)

        others.append(threading.Thread(target=slowly))
        others[0].start()

    monkeypatch.setattr(atomic, "_publish", seen_by_another)
    saved(NEW, tmp_path / "s", settings())
    others[0].join()
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


@pytest.mark.parametrize("finder", ["its writer", "another save"])
def test_a_file_put_into_what_is_being_replaced_is_kept(tmp_path, monkeypatch, finder):
    saved(OLD, tmp_path / "s", settings())
    publish = atomic._publish

    def at_the_last_moment(temporary, target, overwrite):
        (target / "thesis.tex").write_text("years of work")
        publish(temporary, target, overwrite)
        if finder == "another save":
            leftovers.remove(tmp_path)

    monkeypatch.setattr(atomic, "_publish", at_the_last_moment)
    saved(NEW, tmp_path / "s", settings())
    assert_same(NEW, store.load(tmp_path / "s")[0])
    (kept,) = tmp_path.glob("s.replaced-*")
    assert (kept / "thesis.tex").read_text() == "years of work"


def test_without_an_atomic_exchange_the_old_one_is_replaced_too(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "exchange", lambda one, two: errno.ENOSYS)
    saved(OLD, tmp_path / "s", settings())
    saved(NEW, tmp_path / "s", settings())
    assert_same(NEW, store.load(tmp_path / "s")[0])
    assert [p.name for p in tmp_path.iterdir()] == ["s"]


def test_a_living_writers_temporary_is_left_to_it(tmp_path):
    with atomic.directory(tmp_path / "s", sync=False, overwrite=True) as growing:
        (growing.path / "half").touch()
        saved(NEW, tmp_path / "s", settings())
        assert (growing.path / "half").exists()
        (growing.path / "half").unlink()
    saved(OLD, tmp_path / "s", settings())


def test_without_an_atomic_exchange_a_crash_is_recovered(tmp_path):
    """Systems without renameat2 set the old snapshot aside for a moment; it is found again."""
    saved(OLD, tmp_path / "s", settings())
    (tmp_path / "s").rename(tmp_path / ".s.12345678.old")
    assert_same(OLD, store.load(tmp_path / "s")[0])


def test_the_folder_and_those_in_it_are_synced_before_the_rename(tmp_path, monkeypatch):
    """Else a power cut leaves a snapshot under its name without the files in it."""
    synced, publish, honest = [], atomic._publish, os.fsync

    def noted(handle):
        synced.append(Path(f"/proc/self/fd/{handle}").readlink())
        honest(handle)

    def published(temporary, *rest):
        assert {temporary, temporary / "tokenizer"} <= {*synced}
        publish(temporary, *rest)

    monkeypatch.setattr(os, "fsync", noted)
    monkeypatch.setattr(atomic, "_publish", published)
    with atomic.directory(tmp_path / "s", sync=True) as growing:
        (growing.path / "tokenizer").mkdir()
        (growing.path / "tokenizer" / "a").write_text("whole")
        growing.finished(growing.path / "tokenizer" / "a")


def test_the_parent_directory_is_synced_after_the_rename(tmp_path, monkeypatch):
    """Else a power cut forgets the name, and with it the whole snapshot."""
    events = []
    honest = os.fsync

    def noted(handle):
        place = Path(f"/proc/self/fd/{handle}").readlink()
        events.append((place, (tmp_path / "s" / "a").exists()))
        honest(handle)

    monkeypatch.setattr(os, "fsync", noted)
    with atomic.directory(tmp_path / "s", sync=True, overwrite=False) as growing:
        (growing.path / "a").write_text("whole")
        growing.finished(growing.path / "a")
    assert (tmp_path, True) in events
    assert any(place.name == "a" and not renamed for place, renamed in events)
