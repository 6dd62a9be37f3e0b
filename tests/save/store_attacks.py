"""Payloads made to harm, in every format, inside manifests that are made to fit them."""

import gzip
import io
import json
import os
import pickle
import struct
import zipfile

import torch
from store_states import make_state, settings

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


def plugged(codec=None, dynamic=None):
    """A chunk whose header asks for a plug-in; the library imports `blosc2_<name>` to have it."""
    import blosc2

    chunk = bytearray(blosc2.compress2(bytes(range(32)) * 12, typesize=4, nthreads=1))
    if codec is not None:
        chunk[2] = chunk[2] & 0x1F | 6 << 5  # compressed by a codec of the user's
        chunk[22] = codec
    else:
        chunk[21] = dynamic
    return blosc_entry([96], chunk=bytes(chunk))


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
    *[("blosc2", f"a codec plug-in {n}", lambda d, n=n: plugged(codec=n)) for n in (32, 33, 160, 255)],
    *[("blosc2", f"a filter plug-in {n}", lambda d, n=n: plugged(dynamic=n)) for n in (3, 4, 32, 35, 160, 255)],
    ("blosc2", "a chunk shorter than its header", lambda d: blosc_entry([4], chunk=b"\x05\x01")),
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


def allocating(count):
    """389 bytes that ask the library's own loader for `count` bytes."""
    pickled = b"\x80\x02cbuiltins\nbytearray\nJ" + struct.pack("<i", count) + b"\x85R."
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w") as archive:
        archive.writestr("archive/data.pkl", pickled)
        archive.writestr("archive/version", "3\n")
    return made.getvalue()


def opcodes(count):
    """A pickle of `count` opcodes that read nothing and leave nothing."""
    return b"\x80\x05" + b"N0" * count + b"."


MEMOIZING = b"\x80\x05K\x01" + b"\x94" * (15 << 20) + b"."
PAYLOADS += [
    ("torch", "a bytearray of 2 GB", lambda d: allocating((1 << 31) - 1)),
    ("torch", "a stack that is empty", lambda d: torch_zip(d, data_pkl=b"\x80\x02R.")),
    ("torch", "a memo that was never made", lambda d: torch_zip(d, data_pkl=b"\x80\x02h\x07.")),
    ("torch", "opcodes without end", lambda d: torch_zip(d, data_pkl=opcodes(1 << 20))),
    ("torch", "a name that is no storage", lambda d: torch_zip(d, data_pkl=b"\x80\x02cos\nsystem\n.")),
    ("torch", "no data.pkl", lambda d: torch_zip(d)[:-22]),
    ("pickle", "opcodes without end", lambda d: MEMOIZING),
    ("gzip", "opcodes without end in 15 KB", lambda d: gzip.compress(MEMOIZING, 9)),
    ("pickle", "bytes behind the last tensor", lambda d: d + b"hidden"),
    ("gzip", "bytes behind the member", lambda d: d + b"hidden"),
    ("gzip", "zeros behind the member", lambda d: d + bytes(100)),
    ("gzip", "a second member", lambda d: d + gzip.compress(b"hidden")),
    ("gzip", "the contents in two members", lambda d: members(gzip.decompress(d))),
    ("gzip", "bytes behind the last tensor", lambda d: gzip.compress(gzip.decompress(d) + b"hidden")),
    ("gzip", "a stream that is cut short", lambda d: d[:-3]),
    ("gzip", "another check sum", lambda d: d[:-8] + bytes(4) + d[-4:]),
]  # fmt: skip


def members(data):
    half = len(data) // 2
    return gzip.compress(data[:half]) + gzip.compress(data[half:])
