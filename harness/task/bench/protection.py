"""What a signature and encryption cost: saves and loads in turns with plain ones of the same state."""

import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

from harness import extras
from harness.config import option
from harness.pipeline.clock import seconds
from harness.save import store
from harness.save.cipher import Key
from harness.snapshot.digest import tensor_bytes
from harness.snapshot.state import State


def measured(state: State, place: Path, repeats: int) -> dict[str, Any]:
    """Medians of paired ratios, plain over protected (1: as fast), and of the raw times beside them.

    `read` is a plain load into memory, as a decrypted one has to be (`restore.map=false`); `map` one
    that maps its file. Empty where the extra `trust` or openssl is not installed.
    """
    if extras.missing("trust") or not shutil.which("openssl"):
        return {}
    rows: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory(prefix="harness-") as folder:
        public = _keys(Path(folder))
        key = Key(os.urandom(32))
        ways = {
            "map": (store.Access(), store.Access(map=True)),
            "read": (store.Access(), store.Access(map=False)),
            "signed": (
                store.Access(sign=f"{folder}/key.pem"),
                store.Access(trusted=(public,), map=True),
            ),
            "encrypted": (store.Access(encrypt=key), store.Access(decrypt=key)),
        }
        for number in range(repeats + 1):  # the first warms what is cached
            row: dict[str, float] = {}
            fresh = state.document("generation", sampler=None, steps=number)  # validated anew
            for name, (write, read) in ways.items():
                row |= _once(fresh, place, name, write, read)
            data = [tensor_bytes(t) for _, t in state.tensors()]
            row["memory"] = seconds(lambda data=data: b"".join(data))  # type: ignore[misc]
            rows.append(row)
    taken = rows[1:]
    pairs = {
        "signed_save_of_plain": ("map save", "signed save"),
        "signed_load_of_plain": ("map load", "signed load"),
        "encrypted_save_of_plain": ("map save", "encrypted save"),
        "encrypted_load_of_plain": ("read load", "encrypted load"),
        "encrypted_load_of_mapped": ("map load", "encrypted load"),
        "encrypted_load_of_fresh_memory": ("memory", "encrypted load"),
    }
    ratios = {name: median(r[a] / r[b] for r in taken) for name, (a, b) in pairs.items()}
    return ratios | {f"{n.replace(' ', '_')}_s": median(r[n] for r in taken) for n in taken[0]}


def _once(
    state: State, place: Path, name: str, write: store.Access, read: store.Access
) -> dict[str, float]:
    shutil.rmtree(place, ignore_errors=True)
    saved = seconds(lambda: store.save(state, place, option("save", "safetensors"), access=write))
    return {f"{name} save": saved, f"{name} load": seconds(lambda: store.load(place, read))}


def _keys(folder: Path) -> str:
    make = ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", "key.pem"]
    show = ["openssl", "ec", "-in", "key.pem", "-pubout", "-out", "key.pub"]
    for command in (make, show):
        subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return str(folder / "key.pub")
