"""Digests of weights kept between processes: used for the very load they were made for, never else."""

import json
import os
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from harness.model import build, identity, ledger, loaded

WEIGHTS = "model.safetensors"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The shipped model in a folder of its own that nobody has touched for a while, and a cache."""
    import shutil

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("HARNESS_CACHE", raising=False)
    monkeypatch.setattr(ledger, "LARGE", 1)
    monkeypatch.setattr(ledger, "SETTLED_NS", 0)
    return Path(shutil.copytree(build.SHIPPED["tiny"], tmp_path / "model"))


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """One entry for each time that all weights of a model were digested."""
    times: list[str] = []
    weights = identity.weights
    monkeypatch.setattr(identity, "weights", lambda m: times.append("read") or weights(m))
    return times


def documents(compose, folder: Path, dtype: str = "float32"):
    """As another process would find them: no model is shared with a load before."""
    loaded._MEMORY.clear()
    cfg = compose("model=path", f"model.path={folder}")
    model = loaded.load(cfg.model, dtype, "cpu")
    return model.documents, model


def entries(folder: Path) -> list[Path]:
    return list((folder.parent / "cache" / "harness" / "weights").iterdir())


def test_a_second_load_reads_no_weights_and_says_the_same(compose, folder, read) -> None:
    first, model = documents(compose, folder)
    again, _ = documents(compose, folder)
    assert read == ["read"]
    assert first == again == identity.documents(model.model)
    (entry,) = entries(folder)
    assert entry.stat().st_mode & 0o777 == 0o600


def edit(file: Path) -> None:
    """Change one number in place: same size, same inode, and the old time of modification."""
    before = file.stat()
    with file.open("r+b") as there:
        there.seek(-4, os.SEEK_END)
        there.write(b"\x00\x00\x80\x3f")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    now = file.stat()
    assert (now.st_size, now.st_ino, now.st_mtime_ns) == (
        before.st_size, before.st_ino, before.st_mtime_ns,
    )  # fmt: skip


def replace(file: Path) -> None:
    """Another file of the same size and the same time of modification."""
    before, tensors = file.stat(), load_file(file)
    next(iter(tensors.values())).view(-1)[0] += 1
    save_file(tensors, file.with_suffix(".new"), {"format": "pt"})
    os.utime(file.with_suffix(".new"), ns=(before.st_atime_ns, before.st_mtime_ns))
    file.with_suffix(".new").replace(file)


@pytest.mark.parametrize("change", [edit, replace])
def test_changed_weights_are_read_whatever_their_times_say(compose, folder, read, change) -> None:
    before, _ = documents(compose, folder)
    change(folder / WEIGHTS)
    after, model = documents(compose, folder)
    assert read == ["read", "read"]
    assert after != before
    assert after == identity.documents(model.model)


def test_a_config_beside_the_weights_counts(compose, folder, read) -> None:
    documents(compose, folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rms_norm_eps": 1e-4}))
    documents(compose, folder)
    assert read == ["read", "read"]


def test_another_dtype_is_another_load(compose, folder, read) -> None:
    wide, _ = documents(compose, folder)
    narrow, model = documents(compose, folder, "bfloat16")
    assert read == ["read", "read"]
    assert narrow["attention_weights"] != wide["attention_weights"]
    assert documents(compose, folder, "bfloat16")[0] == narrow
    assert read == ["read", "read"]
    assert narrow == identity.documents(model.model)


def test_what_is_written_to_after_the_load_is_digested(compose, folder, read) -> None:
    first, _ = documents(compose, folder)
    loaded._MEMORY.clear()
    cfg = compose("model=path", f"model.path={folder}")
    for write in (
        lambda weight: weight.view(-1)[3].add_(1),
        lambda weight: weight.data.mul_(1.5),  # torch counts no version here
    ):
        loaded._MEMORY.clear()
        live = loaded.load(cfg.model, "float32", "cpu")
        with torch.no_grad():
            write(live.model.model.layers[0].mlp.up_proj.weight)
        assert live.documents != first
        assert live.documents == identity.documents(live.model)
    assert documents(compose, folder)[0] == first, "what was written was not kept"


def test_a_live_model_is_digested_again_after_a_write(compose, folder) -> None:
    first, live = documents(compose, folder)
    live.model.model.layers[0].mlp.up_proj.weight.data.mul_(1.5)
    assert live.documents["model_config"] != first["model_config"]


def test_files_that_changed_a_moment_ago_are_not_trusted(compose, folder, monkeypatch) -> None:
    monkeypatch.setattr(ledger, "SETTLED_NS", 3_600_000_000_000)
    assert ledger.Ledger.before(folder, torch.float32) is None


@pytest.mark.parametrize("spoil", [
    lambda path: path.write_text("{"),
    lambda path: path.write_text("[]"),
    lambda path: path.write_text(path.read_text().replace('"digests": {"', '"digests": {"x')),
    lambda path: path.chmod(0o666),
])  # fmt: skip
def test_an_entry_that_is_not_whole_or_not_ours_is_not_used(compose, folder, read, spoil) -> None:
    first, _ = documents(compose, folder)
    spoil(entries(folder)[0])
    assert documents(compose, folder)[0] == first
    assert read == ["read", "read"]


def test_it_can_be_switched_off(compose, folder, read, monkeypatch) -> None:
    monkeypatch.setenv("HARNESS_CACHE", "off")
    documents(compose, folder)
    documents(compose, folder)
    assert read == ["read", "read"]
    assert not (folder.parent / "cache").exists()


def test_weights_that_lie_elsewhere_are_not_known_by_this_folder(folder) -> None:
    assert ledger.Ledger.before(folder, torch.float32) is not None
    (folder / "adapter_config.json").write_text("{}")
    assert ledger.Ledger.before(folder, torch.float32) is None
