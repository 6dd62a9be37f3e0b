"""Files of a few bytes that claim many: a cache of mlx-lm, a `torch.save`, a slot of llama.cpp. Each is refused in
one line, in little time and memory, also where its keys and values are asked for."""

import io
import json
import pickle
import resource
import struct
import time
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.engine import saved
from harness.errors import InputProblem
from harness.pipeline.foreign import stored

MORE = 1 << 30  # bytes of addresses that a file may be read with


@pytest.fixture(autouse=True)
def little_memory():
    """What would take gigabytes fails here, and says so."""
    import transformers  # noqa: F401  whose import takes addresses too

    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + MORE, before[1]))
    start = time.monotonic()
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)
    assert time.monotonic() - start < 15


def refused(path: Path) -> str:
    with pytest.raises(InputProblem) as caught:
        stored(saved.read(path), str(path))
    said = str(caught.value)
    assert len(said.splitlines()) == 1 and "alloc" not in said and "emory" not in said, said
    return said


def safetensors(path: Path, arrays: dict, metadata: dict) -> Path:
    header, data = {"__metadata__": metadata}, b""
    for name, (dtype, shape, raw) in arrays.items():
        place = [len(data), len(data) + len(raw)]
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": place}
        data += raw
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


def ring(path: Path, shape: list, raw: bytes, numbers: list, metadata: dict | None = None) -> Path:
    arrays = {f"0.{part}": ("F32", shape, raw) for part in (0, 1)}
    arrays |= {f"0.{2 + i}": ("I64", [1], struct.pack("<q", n)) for i, n in enumerate(numbers)}
    return safetensors(path, arrays, {"1.0": "RotatingKVCache", **(metadata or {})})


def test_a_ring_that_saw_many_tokens_costs_what_it_holds(tmp_path: Path) -> None:
    """What its tokens saw is asked for once they are there: a square of as many as it claims."""
    path = ring(tmp_path / "r", [1, 1, 2, 1], bytes(8), [120_000, 1, 2, 2])
    assert path.stat().st_size < 700
    there = saved.read(path)
    assert there.facts["tokens"] == 120_000 and len(there.positions) == 2
    assert there.keys_and_values()[0][0].shape == (1, 1, 2, 1)


def test_a_ring_of_many_rounds_costs_what_it_holds(tmp_path: Path) -> None:
    saved.read(ring(tmp_path / "r", [1, 1, 2, 1], bytes(8), [1 << 40, 1, 2, 2]))


@pytest.mark.parametrize(
    "shape, numbers",
    [
        ([1, 1, 1 << 40, 0], [1 << 40, 1, 2, 1 << 40]),  # no number, and a length
        ([1, 1, 2, 1], [1 << 62, -(1 << 62), 2, 2]),
        ([2], [9, 1, 2, 2]),
    ],
)
def test_a_ring_that_is_none_is_refused(tmp_path: Path, shape, numbers) -> None:
    refused(ring(tmp_path / "r", shape, bytes(4 * int(np.prod(shape[-2:]) < 9) * 2), numbers))


def zipped(path: Path, pickled: bytes, *storages: bytes, compress=zipfile.ZIP_STORED) -> Path:
    with zipfile.ZipFile(path, "w", compress) as archive:
        archive.writestr("archive/data.pkl", pickled)
        for number, raw in enumerate(storages):
            archive.writestr(f"archive/data/{number}", raw)
        archive.writestr("archive/version", "3\n")
    return path


def cache(**changes) -> tuple[bytes, list[bytes]]:
    """The pickle and the storages of a DynamicCache of one layer, some bytes of its pickle exchanged."""
    from transformers import DynamicCache

    made, out = DynamicCache(), io.BytesIO()
    made.update(torch.ones(1, 1, 3, 1), torch.ones(1, 1, 3, 1), 0)
    torch.save(made, out)
    with zipfile.ZipFile(out) as archive:
        names = [n for n in archive.namelist() if n.startswith("archive/data/")]
        return archive.read("archive/data.pkl"), [archive.read(n) for n in sorted(names)]


SHAPE = b"(K\x01K\x01K\x03K\x01t"
HUGE = b"(K\x01K\x01J\xff\xff\xff\x7fK\x01t"


def test_a_cache_by_hand_is_read(tmp_path: Path) -> None:
    """The twin of what follows."""
    pickled, storages = cache()
    assert pickled.count(SHAPE) == 2
    there = saved.read(zipped(tmp_path / "c.pt", pickled, *storages))
    assert all(t.tolist() == [[[[1.0]] * 3]] or t.sum() == 3 for t in there.keys_and_values()[0])


@pytest.mark.parametrize(
    "name",
    ["a bytearray of 8 GiB", "a shape beyond its storage", "one number expanded", "a storage that is not there",
     "a compressed bomb", "a list in itself", "a class of torch's", "opcodes without end"],
)  # fmt: skip
def test_a_torch_file_that_claims_more_is_refused(tmp_path: Path, name: str) -> None:
    pickled, storages = cache()
    begin = pickled.index(SHAPE)
    strides = pickled.index(b"(K\x03K\x03K\x01K\x01t", begin)
    expanded = pickled[:strides] + b"(K\x00K\x00K\x00K\x00t" + pickled[strides + 10 :]
    path = tmp_path / "c.pt"
    match name:
        case "a bytearray of 8 GiB":
            size = pickle.LONG1 + b"\x05" + (8 << 30).to_bytes(5, "little")
            zipped(path, b"\x80\x02cbuiltins\nbytearray\n" + size + b"\x85R.")
            assert path.stat().st_size < 400
        case "a shape beyond its storage":
            zipped(path, pickled.replace(SHAPE, HUGE), *storages)
        case "one number expanded":
            zipped(path, expanded.replace(SHAPE, HUGE), *storages)
        case "a storage that is not there":
            zipped(path, pickled)
        case "a compressed bomb":
            zipped(path, pickled, bytes(1 << 26), storages[1], compress=zipfile.ZIP_DEFLATED)
        case "a list in itself":
            zipped(path, b"\x80\x02]q\x00h\x00a.")
        case "a class of torch's":
            zipped(path, b"\x80\x02ctorch\nSize\n)R.")
        case "opcodes without end":
            zipped(path, b"\x80\x02" + b"N" * (32 << 20) + b".")
    refused(path)


def slot(*parts: bytes, tokens: int = 0) -> bytes:
    return b"qsgg" + struct.pack("<II", 2, tokens) + bytes(4 * tokens) + b"".join(parts)


def cells(count: int) -> bytes:
    table = np.zeros((count, 2), np.int32)
    table[:, 0] = np.arange(count)
    return struct.pack("<II", 1, count) + table.tobytes()


def test_a_slot_of_many_cells_takes_a_moment(tmp_path: Path) -> None:
    layer = struct.pack("<iQ", 0, 4) + bytes(4 * 6_000_000)
    path = tmp_path / "slot.bin"
    path.write_bytes(slot(cells(6_000_000), struct.pack("<II", 0, 1), layer, layer))
    start = time.monotonic()
    assert saved.read(path).layers[0]["shape"] == [6_000_000, 1]
    assert time.monotonic() - start < 3


@pytest.mark.parametrize(
    "parts",
    [
        (cells(4), struct.pack("<II", 0, 4096), struct.pack("<iQ", 0, 0) * 8192),  # layers of no bytes
        (cells(4), struct.pack("<II", 0, 1), struct.pack("<iQ", 0, 1 << 40)),
        (cells(4), struct.pack("<II", 1, 1), struct.pack("<iQ", 0, 4), bytes(16), struct.pack("<iII", 0, 8, 1 << 31)),
        (cells(4), struct.pack("<II", 0, 1), struct.pack("<iQ", 99, 4), bytes(16)),
        (cells(4), struct.pack("<II", 0, 1), struct.pack("<iQ", 8, 5), bytes(20)),  # half a block
        (struct.pack("<II", 1, 1 << 31),),
        (struct.pack("<II", 1, 2), struct.pack("<iIiI", 0, 1 << 31, 1, 1 << 31)),
        (struct.pack("<I", 256), struct.pack("<I", 0) * 256),
    ],
)  # fmt: skip
def test_a_slot_that_claims_more_is_refused(tmp_path: Path, parts) -> None:
    (tmp_path / "slot.bin").write_bytes(slot(*parts))
    refused(tmp_path / "slot.bin")
