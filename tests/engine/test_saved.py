"""What others saved: opened, named, and nothing of it is run."""

import json
import os
import pickle
import struct
from pathlib import Path

import pytest
import torch
from test_saved_hostile import ring

from harness.engine import saved
from harness.errors import InputProblem


def dynamic(place: Path) -> Path:
    from transformers import DynamicCache

    cache = DynamicCache()
    for layer in range(3):
        cache.update(torch.randn(1, 2, 5, 4), torch.randn(1, 2, 5, 4), layer)
    torch.save(cache, place / "cache.pt")
    return place / "cache.pt"


def mlx(place: Path) -> Path:
    import mlx.core as mx
    from mlx_lm.models import cache

    layers = [cache.KVCache(), cache.RotatingKVCache(8)]
    for layer in layers:
        layer.update_and_fetch(mx.zeros((1, 2, 5, 4)), mx.zeros((1, 2, 5, 4)))
    cache.save_prompt_cache(str(place / "p.safetensors"), layers, {"model": "mine"})
    return place / "p.safetensors"


def slot(place: Path) -> Path:
    import gguf_model
    from test_llamacpp import IDS

    from harness.config import EngineConfig
    from harness.engine.llamacpp import LlamaCpp as Engine

    gguf_model.write(place / "m.gguf")
    given = EngineConfig(name="llamacpp", model=str(place / "m.gguf"), threads=1)
    with Engine(given) as engine:
        engine.save(IDS)
        (place / "slot.bin").write_bytes((engine._folder / "state").read_bytes())
    return place / "slot.bin"


@pytest.mark.parametrize(
    "make, kind, holds",
    [(dynamic, "DynamicCache", {"kv_cache"}), (mlx, "mlx-lm", {"kv_cache"}),
     (slot, "llama.cpp slot", {"kv_cache", "positions", "token_buffer"})],
)  # fmt: skip
def test_it_is_opened_and_says_what_it_lacks(harness, place, make, kind, holds) -> None:
    done = harness("task=inspect", f"snapshot={make(place)}")
    assert done.code == 0 and kind in done.out, done.out
    (file,) = place.glob("runs/inspect/*/inspect.json")
    said = json.loads(file.read_text())
    assert len(said["lacks"]) == 13 - len(holds) and not holds & set(said["lacks"])
    if make is slot:
        from test_llamacpp import IDS

        assert said["tokens"] == IDS
    else:
        assert len(said["layers"]) in (2, 3) and said["layers"][0]["shape"][1] == 2


class Evil:
    def __reduce__(self):
        return os.mkdir, ("was_run",)


def test_nothing_of_it_is_run(place) -> None:
    torch.save(Evil(), place / "evil.pt")
    with pytest.raises(InputProblem):
        saved.read(place / "evil.pt")
    (place / "plain.pkl").write_bytes(pickle.dumps(Evil()))
    with pytest.raises(InputProblem):
        saved.read(place / "plain.pkl")
    assert not (place / "was_run").exists()


@pytest.mark.parametrize(
    "raw",
    [b"", b"qsgg", b"qsgg" + struct.pack("<II", 4, 2**31), struct.pack("<Q", 2**60) + b"{}",
     struct.pack("<Q", 2) + b"{}", b"PK\x03\x04 nothing"],
)  # fmt: skip
def test_broken_files_are_one_message(place, raw) -> None:
    (place / "x").write_bytes(raw)
    with pytest.raises(InputProblem):
        saved.read(place / "x")


def test_words_of_a_file_play_no_tricks_on_a_terminal(harness, place) -> None:
    wicked = "\x1b[2J\x1b]0;mine\x07\x9b1A\u202eevil"
    ring(place / "r", [1, 1, 2, 1], bytes(8), [2, 1, 2, 2], {"0.model": wicked, "0." + wicked: "x"})
    done = harness("task=inspect", "snapshot=r")
    assert done.code == 0 and "\\x1b[2J" in done.out, done.out
    assert not {c for c in done.out if not c.isprintable()} - {"\n", "\t", "\u00a0"}
