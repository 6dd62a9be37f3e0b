"""Seeded damage to a snapshot on disk: what a disk, a network, an editor or a careless copy does."""

import json
import random
import shutil
from pathlib import Path

from harness.save import memory
from harness.snapshot import manifest as manifests


def corrupt(folder: Path, other: Path, rng: random.Random) -> str:
    """Damage the snapshot at `folder` in one way; `other` is another sound snapshot of the same
    format. Returns what was done, or "" when nothing could be done this way."""
    kind = rng.choice(KINDS)
    return f"{kind.__name__}: {kind(folder, other, rng)}"


def files_of(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())


def flip_bit(folder, other, rng):
    path = rng.choice([p for p in files_of(folder) if p.stat().st_size])
    data = bytearray(path.read_bytes())
    place = _region(rng, len(data))
    bit = rng.randrange(8)
    data[place] ^= 1 << bit
    path.write_bytes(data)
    return f"{path.name} byte {place} bit {bit}"


def flip_bytes(folder, other, rng):
    path = rng.choice([p for p in files_of(folder) if p.stat().st_size])
    data = bytearray(path.read_bytes())
    places = [_region(rng, len(data)) for _ in range(rng.randint(2, 64))]
    before = bytes(data)
    for place in places:
        data[place] = rng.randrange(256)
    if bytes(data) == before:
        data[places[0]] ^= 1
    path.write_bytes(data)
    return f"{path.name}, {len(places)} bytes"


def truncate(folder, other, rng):
    path = rng.choice([p for p in files_of(folder) if p.stat().st_size])
    keep = rng.choice([0, path.stat().st_size - 1, rng.randrange(path.stat().st_size)])
    with path.open("r+b") as file:
        file.truncate(keep)
    return f"{path.name} to {keep}"


def extend(folder, other, rng):
    path = rng.choice(files_of(folder))
    more = rng.randbytes(rng.choice([1, 7, 512, 5000]))
    with path.open("ab") as file:
        file.write(rng.choice([more, b"\n"]))
    return f"{path.name} by {len(more)}"


def zero_block(folder, other, rng):
    path = rng.choice([p for p in files_of(folder) if p.stat().st_size])
    data = bytearray(path.read_bytes())
    start = _region(rng, len(data))
    stop = min(len(data), start + rng.choice([16, 512, 4096]))
    if not any(data[start:stop]):
        data[start] = 1
    else:
        data[start:stop] = bytes(stop - start)
    path.write_bytes(data)
    return f"{path.name} {start}:{stop}"


def swap_files(folder, other, rng):
    found = files_of(folder)
    one, two = rng.sample(found, 2)
    a, b = one.read_bytes(), two.read_bytes()
    if a == b:
        return flip_bit(folder, other, rng)
    one.write_bytes(b)
    two.write_bytes(a)
    return f"{one.name} and {two.name}"


def duplicate(folder, other, rng):
    path = rng.choice(files_of(folder))
    copy = path.with_name(rng.choice(["copy-", "kv-", "."]) + path.name)
    shutil.copy(path, copy)
    return copy.name


def delete(folder, other, rng):
    path = rng.choice(files_of(folder))
    path.unlink()
    return path.name


def from_another(folder, other, rng):
    """A file of another snapshot, under the name this one expects."""
    path = rng.choice(files_of(folder))
    candidates = [p for p in files_of(other) if p.suffix == path.suffix]
    data = rng.choice(candidates or files_of(other)).read_bytes()
    if data == path.read_bytes():
        return flip_bit(folder, other, rng)
    path.write_bytes(data)
    return path.name


def link(folder, other, rng):
    path = rng.choice(files_of(folder))
    aside = folder.parent / f"aside-{rng.randrange(1 << 30)}"
    path.rename(aside)
    if rng.random() < 0.5:
        path.symlink_to(aside)
    else:
        path.hardlink_to(aside)
    return path.name


def edit_manifest(folder, other, rng):
    """One value somewhere in the manifest changed, removed or doubled; the id is left as it was."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    where, holder, key = _somewhere(manifest, rng)
    action = rng.choice(["change", "remove", "add"])
    if action == "remove":
        del holder[key]
    elif action == "add" and isinstance(holder, dict):
        holder[f"more{rng.randrange(9)}"] = rng.choice([1, None, "x", [], {}])
    else:
        holder[key] = _other_value(holder[key], rng)
    path.write_bytes(manifests.dump(manifest))
    return f"{action} {where}"


def edit_manifest_and_id(folder, other, rng):
    """A header field that follows from the state, changed, and the id made to fit again."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    key = rng.choice(["next_position", "next_positions", "batch", "tokens", "kept_tokens", "kv_bytes",
                      "dtype", "libraries", "attention_implementation", "sampler", "payload_format",
                      "format_version"])  # fmt: skip
    key = key if key in manifest else rng.choice(sorted(set(manifest) - {"id"}))  # an envelope
    manifest[key] = _other_value(manifest[key], rng)
    manifest["id"] = manifests.identity(manifest)
    path.write_bytes(manifests.dump(manifest))
    return key


def edit_row_and_id(folder, other, rng):
    """A cell of a table changed, and the id made to fit again."""
    path = folder / "manifest.json"
    manifest = json.loads(path.read_text())
    tables = [t for t in ("tensors", "elements", "files", "tokenizer_files") if t in manifest]
    table = rng.choice(tables)
    row = rng.choice(manifest[table])
    key = rng.choice(list(row))
    row[key] = _other_value(row[key], rng)
    manifest["id"] = manifests.identity(manifest)
    path.write_bytes(manifests.dump(manifest))
    return f"{table}.{key}"


def forget(folder, other, rng):
    """Only for `memory`: a bit of what the process keeps; else a flipped bit."""
    import torch

    payload = next((p for p in sorted(folder.glob("*.memory"))), None)
    held = memory._kept.get(payload.read_text()) if payload else None
    if not held:
        return flip_bit(folder, other, rng)
    tensor = rng.choice(list(held.values()))
    tensor.view(-1).view(torch.uint8)[rng.randrange(tensor.nbytes)] ^= 1 << rng.randrange(8)
    return "kept memory"


KINDS = [
    flip_bit, flip_bit, flip_bit, flip_bytes, truncate, extend, zero_block, swap_files, duplicate,
    delete, from_another, link, edit_manifest, edit_manifest, edit_manifest_and_id, edit_row_and_id,
]  # fmt: skip


def _region(rng, size):
    """Starts and ends are hit as often as middles: that is where headers and trailers are."""
    if rng.random() < 0.4:
        return rng.randrange(min(size, 256))
    if rng.random() < 0.4:
        return size - 1 - rng.randrange(min(size, 256))
    return rng.randrange(size)


def _somewhere(manifest, rng):
    where, holder = "", manifest
    while True:
        keys = list(holder) if isinstance(holder, dict) else range(len(holder))
        key = rng.choice(list(keys))
        where += f".{key}"
        if not isinstance(holder[key], dict | list) or not holder[key] or rng.random() < 0.1:
            return where, holder, key
        holder = holder[key]


def _other_value(value, rng):
    choices = [None, "", "x" * 3000, -1, 0, 1, 2, 1 << 62, 1 << 90, 1.5, 1e300, True, [], {}, [[1]],
               [1 << 62], "../../etc/passwd", "/dev/zero", "\ud800", "bfloat16", "int64",
               "0" * 64, {"a": {"b": []}}]  # fmt: skip
    if type(value) is int:
        choices += [value + 1, value - 1, -value - 1, value * 2 + 1]
    if isinstance(value, str) and value:
        choices += [value[:-1], value + "0", value[::-1] + "q"]
    if isinstance(value, list):
        choices += [value + value if value else [0], value[:-1] if value else [1]]
    return rng.choice([c for c in choices if c != value or type(c) is not type(value)])
