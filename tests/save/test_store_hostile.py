"""Files made to harm: nothing is executed, nothing leaves the directory, time and memory are bounded.

The manifests are consistent (sizes, digests and id are made to fit), so that what is attacked is
really reached; the last tests show that the same rebuilding without an attack loads.
"""

import json
import os
import resource
import time
from pathlib import Path

import pytest
from store_attacks import MARK, PAYLOADS, deep, forged, plugged, resign
from store_states import make_state, saved, settings

from harness.errors import HarnessError, SnapshotInvalid
from harness.save import store
from harness.snapshot import manifest as manifests


@pytest.fixture(autouse=True)
def nothing_happens(tmp_path):
    """No command ran, no file appeared beside the snapshot, little time and memory were spent."""
    before = [_highest_memory(anew=True)]
    start = time.monotonic()
    yield lambda: before.append(
        _highest_memory(anew=True)
    )  # what making the attack took is left out
    assert not Path(MARK).exists()
    assert {p.name for p in tmp_path.iterdir()} <= {"s", "outside"}
    assert time.monotonic() - start < 60
    grown_kib = _highest_memory() - before[-1]
    assert grown_kib < 600 << 10  # half of it is made here: a 192 MiB bomb


def _highest_memory(anew=False):
    """KiB of memory at the most so far; `anew`: from here on, or a peak before would hide one after."""
    if not (clear := Path("/proc/self/clear_refs")).exists():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    if anew:
        clear.write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


@pytest.mark.parametrize("form,what,change", PAYLOADS, ids=[f"{f}: {w}" for f, w, _ in PAYLOADS])
def test_a_hostile_payload_is_refused(tmp_path, form, what, change):
    forged(tmp_path / "s", form, change)
    with pytest.raises(SnapshotInvalid, match=r"kv-[0-9a-f]+\."):
        store.load(tmp_path / "s")
    assert store.faults(tmp_path / "s")


PLUGINS = ("blosc2_openzl", "blosc2_grok", "blosc2_htj2k", "blosc2_j2k", "blosc2_openhtj2k")


@pytest.mark.parametrize("codec", [36, 37, 38, 39, 40])
def test_a_codec_plug_in_is_not_imported(tmp_path, monkeypatch, codec):
    """The library would start a Python in the working directory that imports the plug-in's module."""
    place = tmp_path / "outside"
    place.mkdir()
    for name in PLUGINS:
        (place / f"{name}.py").write_text(f"open({MARK!r}, 'w').close()\n")
    monkeypatch.chdir(place)
    forged(tmp_path / "s", "blosc2", lambda data: plugged(codec))
    with pytest.raises(SnapshotInvalid, match="allow-list"):
        store.load(tmp_path / "s")


@pytest.mark.parametrize("form", ["torch", "pickle", "gzip", "blosc2", "memory"])
def test_the_same_forging_without_an_attack_loads(tmp_path, form):
    """The twin: were forged snapshots refused for being forged, the tests above would say nothing."""
    forged(tmp_path / "s", form, lambda data: data)
    store.load(tmp_path / "s")


MANIFESTS = [
    ("not JSON", b"\x00\xff"),
    ("empty", b""),
    ("nested a hundred thousand deep", deep(100_000)),
    ("nested forty deep", b'{"a":' * 40 + b"1" + b"}" * 40),
    ("a number of ten thousand digits", b'{"a": ' + b"9" * 10_000 + b"}"),
    ("infinity by exponent", b'{"a": 1e999}'),
    ("NaN", b'{"format_version": NaN}'),
    ("a key twice", b'{"format_version": 1, "format_version": 1}'),
    ("a list", b"[]"),
    ("a newer format", b'{\n  "format_version": 99\n}\n'),
    ("a format version that is text", b'{\n  "format_version": "1"\n}\n'),
]


@pytest.mark.parametrize("what,data", MANIFESTS, ids=[w for w, _ in MANIFESTS])
def test_a_hostile_manifest_is_refused(tmp_path, what, data):
    saved(make_state(), tmp_path / "s", settings())
    (tmp_path / "s" / "manifest.json").write_bytes(data)
    with pytest.raises(SnapshotInvalid):
        store.load(tmp_path / "s")


def test_a_manifest_without_end_is_not_read(tmp_path):
    saved(make_state(), tmp_path / "s", settings())
    with (tmp_path / "s" / "manifest.json").open("wb") as file:
        file.truncate(1 << 40)  # sparse
    with pytest.raises(SnapshotInvalid, match="larger than"):
        store.load(tmp_path / "s")


def rename_file(name):
    def edit(manifest):
        old = manifest["files"][0]["file"]
        manifest["files"][0]["file"] = name
        for row in manifest["tensors"]:
            row["file"] = name if row["file"] == old else row["file"]

    return edit


def inherit_from(place, file="tokenizer/extra.txt"):
    def edit(manifest):
        manifest["lineage"] = [{"snapshot": "0" * 64, "place": place, "files": [file]}]

    return edit


def setter(table, key, value):
    def edit(manifest):
        manifest[table][0][key] = value

    return edit


EDITS = [
    ("a path that climbs out", rename_file("../outside")),
    ("an absolute path", rename_file("/etc/passwd")),
    ("a path with a NUL", rename_file("a\0b")),
    ("a hidden name", rename_file(".bashrc")),
    ("lineage that climbs out", inherit_from("..")),
    ("lineage with a path", inherit_from("../../etc")),
    ("lineage with an absolute path", inherit_from("/etc")),
    ("lineage of a file that is not ours", inherit_from("x", "/etc/passwd")),
    ("a tokenizer file that climbs out", setter("tokenizer_files", "file", "../../outside")),
    ("a negative size", setter("files", "nbytes", -1)),
    ("a size of 2**90", setter("files", "nbytes", 1 << 90)),
    ("a size that is a fraction", setter("files", "nbytes", 1.5)),
    ("a shape of 2**39 x 2**39", setter("tensors", "shape", [1 << 39, 1 << 39])),
    ("a shape of a million sizes", setter("tensors", "shape", [1] * 1_000_000)),
    ("a dtype that is a class", setter("tensors", "dtype", "os.system")),
    ("a format that is a module", lambda m: m.update(payload_format="store")),
    ("a format that is a path", lambda m: m.update(payload_format="../../evil")),
    ("half a million rows", lambda m: m.update(tensors=m["tensors"] * 40_000)),
    ("a terminal escape", lambda m: m.update({"\x1b[2J": 1})),
    ("layers that are no list", lambda m: m["documents"]["kv_format"].update(layers={"a": 1})),
    ("a segment of minus one token", lambda m: m["documents"]["kv_format"]["layers"][0].update(segments=[-1])),
]  # fmt: skip


@pytest.mark.parametrize(
    "what,edit",
    [
        pytest.param(w, e, id=w, marks=[pytest.mark.slow] * (w == "half a million rows"))
        for w, e in EDITS
    ],
)
def test_a_hostile_but_consistent_manifest_is_refused(tmp_path, nothing_happens, what, edit):
    saved(make_state(), tmp_path / "s", settings())
    (tmp_path / "outside").write_text("secret")
    try:
        resign(tmp_path / "s", edit)
    except (TypeError, KeyError, AttributeError, ValueError):  # elements cannot be recomputed: fine
        manifest = json.loads((tmp_path / "s" / "manifest.json").read_bytes())
        edit(manifest)
        manifest["id"] = manifests.identity(manifest)
        (tmp_path / "s" / "manifest.json").write_bytes(manifests.dump(manifest))
    nothing_happens()
    with pytest.raises(HarnessError) as caught:
        store.load(tmp_path / "s")
    assert "\x1b" not in str(caught.value) and "secret" not in str(caught.value)


def payload(folder):
    return next(folder.glob("kv-*"))


def test_links_are_not_followed(tmp_path):
    for place, make in [
        (payload, "symlink_to"), (payload, "hardlink_to"),
        (lambda s: s / "manifest.json", "symlink_to"), (lambda s: s / "manifest.json", "hardlink_to"),
        (lambda s: s / "tokenizer" / "extra.txt", "symlink_to"),
    ]:  # fmt: skip
        saved(make_state(), tmp_path / "s", settings())
        path = place(tmp_path / "s")
        (tmp_path / "outside").unlink(missing_ok=True)
        path.rename(tmp_path / "outside")
        getattr(path, make)(tmp_path / "outside")
        with pytest.raises(SnapshotInvalid, match="link"):
            store.load(tmp_path / "s")
        path.unlink()
        (tmp_path / "outside").rename(path)
        store.load(tmp_path / "s")


def test_a_linked_folder_is_not_followed(tmp_path):
    saved(make_state(), tmp_path / "s", settings())
    (tmp_path / "s" / "tokenizer").rename(tmp_path / "outside")
    (tmp_path / "s" / "tokenizer").symlink_to(tmp_path / "outside")
    with pytest.raises(SnapshotInvalid, match="link"):
        store.load(tmp_path / "s")


@pytest.mark.parametrize("name", ["manifest.json", "payload"])
def test_a_pipe_does_not_hang(tmp_path, name):
    saved(make_state(), tmp_path / "s", settings())
    path = payload(tmp_path / "s") if name == "payload" else tmp_path / "s" / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SnapshotInvalid, match="not a plain file"):
        store.load(tmp_path / "s")


def test_more_than_the_memory_is_not_unpacked(tmp_path, monkeypatch):
    from harness import machine

    saved(make_state(), tmp_path / "s", settings("blosc2"))
    monkeypatch.setattr(machine, "free_memory", lambda: 100)
    with pytest.raises(SnapshotInvalid, match="GiB of memory are free"):
        store.load(tmp_path / "s")
