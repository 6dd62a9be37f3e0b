"""Files made to harm: nothing is executed, nothing leaves the directory, time and memory are bounded.

The manifests are consistent (sizes, digests and id are made to fit), so that what is attacked is
really reached; the last tests show that the same rebuilding without an attack loads.
"""

import gzip
import io
import json
import os
import pickle
import resource
import struct
import time
import zipfile
from pathlib import Path

import pytest
import torch
from store_states import make_state, settings

from harness.errors import HarnessError, SnapshotInvalid
from harness.save import store
from harness.snapshot import manifest as manifests
from harness.snapshot.digest import digest_bytes

MARK = "/tmp/harness-hostile-was-here"


class Gadget:
    """Unpickling this would run a command."""

    def __reduce__(self):
        return os.system, (f"touch {MARK}",)


class EvalGadget:
    def __reduce__(self):
        return eval, (f"open({MARK!r}, 'w').close()",)


def forged(folder, form, change):
    """A snapshot whose K/V payload is `change(bytes)`, with a manifest that fits it."""
    store.save(make_state("float32"), folder, settings(form))
    path = next(folder.glob("kv-*"))
    data = change(path.read_bytes())
    path.write_bytes(data)

    def fit(manifest):
        row = next(r for r in manifest["files"] if r["file"] == path.name)
        row["nbytes"] = row["covered"] = len(data)
        row["digest"] = digest_bytes(data)

    resign(folder, fit)


def resign(folder, edit):
    path = folder / "manifest.json"
    manifest = json.loads(path.read_bytes())
    edit(manifest)
    manifest["elements"] = manifests.element_rows(manifest["tensors"], manifest["documents"])
    manifest["id"] = manifests.identity(manifest)
    path.write_bytes(manifests.dump(manifest))


def torch_zip(data, **parts):
    """The archive in `data` with some records replaced (by ending) and `compress` if asked."""
    compress = parts.pop("compress", zipfile.ZIP_STORED)
    made = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(made, "w", compress) as new:
        for name in old.namelist():
            ending = name.rsplit("/", 1)[-1].replace(".", "_")
            new.writestr(name, parts.get(ending, old.read(name)))
    return made.getvalue()


def deep(value):
    return b"[" * value + b"]" * value


def header(**entry):
    text = json.dumps({"layer.0.key": entry}).encode()
    return struct.pack("<Q", len(text)) + text + bytes(64)


def blosc_bomb(data):
    import blosc2

    bomb = blosc2.compress2(bytes(256 << 20), codec=blosc2.Codec.ZSTD, clevel=9)
    text = json.dumps({"name": "layer.0.key", "dtype": "uint8", "shape": [256 << 20]}).encode()
    return struct.pack("<I", len(text)) + text + struct.pack("<I", len(bomb)) + bomb


def blosc_entry(shape, dtype="float32", chunk=b""):
    text = json.dumps({"name": "layer.0.key", "dtype": dtype, "shape": shape}).encode()
    return struct.pack("<I", len(text)) + text + struct.pack("<I", len(chunk)) + chunk


def spoofed(data):
    """Blosc2 chunks whose own headers promise other sizes."""
    place = data.index(b"}") + 1 + 4
    return data[:place] + data[place : place + 4] + struct.pack("<i", 1 << 30) + data[place + 8 :]


GADGET = pickle.dumps(Gadget())
NESTED = b"\x80\x05" + b"(" * 100_000 + b"t" * 100_000 + b"."
PAYLOADS = [
    ("pickle", "a gadget that runs a command", lambda d: GADGET),
    ("pickle", "a gadget after a sound tensor", lambda d: d[: d.index(b".\x80") + 1] + GADGET),
    ("pickle", "eval", lambda d: pickle.dumps(EvalGadget())),
    ("pickle", "protocol 0 gadget", lambda d: pickle.dumps(Gadget(), protocol=0)),
    ("pickle", "an extension code", lambda d: b"\x80\x02\x82\x01."),
    ("pickle", "a persistent id", lambda d: b"\x80\x05\x8c\x01aQ."),
    ("pickle", "a memo index of 4 billion", lambda d: b"\x80\x05K\x01r\xff\xff\xff\xff."),
    ("pickle", "a string of 2**62 bytes", lambda d: b"\x80\x05\x8e" + struct.pack("<Q", 1 << 62)),
    ("pickle", "a frame of 2**63 bytes", lambda d: b"\x80\x05\x95" + struct.pack("<Q", 1 << 63)),
    ("pickle", "a hundred thousand nested tuples", lambda d: NESTED),
    ("pickle", "lists that refer to each other", lambda d: b"\x80\x05](h\x00" + b"h\x00" * 9 + b"e."),
    ("pickle", "another type in the tuple", lambda d: pickle.dumps(("layer.0.key", 1, 2, 3), 5)),
    ("pickle", "nothing", lambda d: b""),
    ("torch", "a gadget in data.pkl", lambda d: torch_zip(d, data_pkl=GADGET)),
    ("torch", "eval in data.pkl", lambda d: torch_zip(d, data_pkl=pickle.dumps(EvalGadget(), 2))),
    ("torch", "a legacy file that is a bare pickle", lambda d: GADGET),
    ("torch", "compressed records", lambda d: torch_zip(d, compress=zipfile.ZIP_DEFLATED)),
    ("torch", "a bomb in a record", lambda d: torch_zip(d, data_pkl=bytes(64 << 20), compress=zipfile.ZIP_DEFLATED)),
    ("torch", "an archive in an archive", lambda d: torch_zip(d, data_pkl=d)),
    ("torch", "no dict", lambda d: saved(torch.zeros(3))),
    ("torch", "expanded tensors over one number", lambda d: saved({n: torch.zeros(1).expand(1, 2, 12, 4) for n in ("layer.0.key", "layer.0.value")})),
    ("torch", "a sparse tensor", lambda d: saved({"layer.0.key": torch.eye(3).to_sparse()})),
    ("gzip", "a bomb of zeros", lambda d: gzip.compress(bytes(192 << 20), 9)),
    ("gzip", "a bomb inside a pickle", lambda d: gzip.compress(b"\x80\x05\x8e" + struct.pack("<Q", 192 << 20) + bytes(192 << 20), 9)),
    ("gzip", "a gadget", lambda d: gzip.compress(GADGET)),
    ("gzip", "gzip in gzip", lambda d: gzip.compress(d)),
    ("gzip", "an endless chain of empty members", lambda d: gzip.compress(b"") * 20_000),
    ("blosc2", "a bomb of zeros", blosc_bomb),
    ("blosc2", "a shape of 2**39 numbers", lambda d: blosc_entry([1 << 39])),
    ("blosc2", "a shape that overflows", lambda d: blosc_entry([1 << 39, 1 << 39])),
    ("blosc2", "a negative shape", lambda d: blosc_entry([-4])),
    ("blosc2", "a shape of NaN", lambda d: d.replace(b'"shape":[1,', b'"shape":[NaN,', 1)),
    ("blosc2", "a dtype that is a function", lambda d: blosc_entry([4], "load")),
    ("blosc2", "chunks that lie about their size", spoofed),
    ("blosc2", "a header of 4 GB", lambda d: b"\xff\xff\xff\xff" + d),
    ("blosc2", "deeply nested JSON", lambda d: struct.pack("<I", 4000) + deep(2000)),
    ("safetensors", "a header of 2**63 bytes", lambda d: struct.pack("<Q", 1 << 63) + d[8:]),
    ("safetensors", "a header longer than the file", lambda d: struct.pack("<Q", len(d) * 2) + d[8:]),
    ("safetensors", "offsets past the end", lambda d: header(dtype="F32", shape=[99], data_offsets=[0, 396])),
    ("safetensors", "offsets that run backwards", lambda d: header(dtype="F32", shape=[16], data_offsets=[64, 0])),
    ("safetensors", "a shape that overflows", lambda d: header(dtype="F32", shape=[1 << 62, 4], data_offsets=[0, 64])),
    ("safetensors", "deeply nested JSON", lambda d: struct.pack("<Q", 200_000) + deep(100_000)),
    ("memory", "a ticket that was never given", lambda d: b"0" * 64),
    ("memory", "a ticket that is a path", lambda d: b"../../../etc/passwd"),
]  # fmt: skip


def saved(value):
    made = io.BytesIO()
    torch.save(value, made)
    return made.getvalue()


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
    assert time.monotonic() - start < 120
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
    store.save(make_state(), tmp_path / "s", settings())
    (tmp_path / "s" / "manifest.json").write_bytes(data)
    with pytest.raises(SnapshotInvalid):
        store.load(tmp_path / "s")


def test_a_manifest_without_end_is_not_read(tmp_path):
    store.save(make_state(), tmp_path / "s", settings())
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


@pytest.mark.parametrize("what,edit", EDITS, ids=[w for w, _ in EDITS])
def test_a_hostile_but_consistent_manifest_is_refused(tmp_path, nothing_happens, what, edit):
    store.save(make_state(), tmp_path / "s", settings())
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
        store.save(make_state(), tmp_path / "s", settings())
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
    store.save(make_state(), tmp_path / "s", settings())
    (tmp_path / "s" / "tokenizer").rename(tmp_path / "outside")
    (tmp_path / "s" / "tokenizer").symlink_to(tmp_path / "outside")
    with pytest.raises(SnapshotInvalid, match="link"):
        store.load(tmp_path / "s")


@pytest.mark.parametrize("name", ["manifest.json", "payload"])
def test_a_pipe_does_not_hang(tmp_path, name):
    store.save(make_state(), tmp_path / "s", settings())
    path = payload(tmp_path / "s") if name == "payload" else tmp_path / "s" / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(SnapshotInvalid, match="not a plain file"):
        store.load(tmp_path / "s")


def test_more_than_the_memory_is_not_unpacked(tmp_path, monkeypatch):
    from harness import machine

    store.save(make_state(), tmp_path / "s", settings("blosc2"))
    monkeypatch.setattr(machine, "free_memory", lambda: 100)
    with pytest.raises(SnapshotInvalid, match="GiB of memory are free"):
        store.load(tmp_path / "s")
