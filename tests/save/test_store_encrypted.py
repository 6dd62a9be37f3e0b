"""Encryption at rest: nothing of the thought in clear, nothing changed unnoticed, one key opens it."""

import json
import os
import random
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType

import pytest
from store_states import FORMATS, assert_same, grown, make_state, raw, saved, settings

from harness.errors import HarnessError, InputProblem, SnapshotInvalid, Untrusted
from harness.save import cipher, envelope, store
from harness.save.cipher import CHUNK, Key

KEY, OTHER = Key(b"k" * 32), Key(b"o" * 32)
WRITE = store.Access(overwrite=True, encrypt=KEY)
READ = store.Access(decrypt=KEY)
SECRET = "the zebra sleeps at noon"


def thought():
    """A state whose ids, text, prefix and tokenizer all say the secret."""
    state = make_state(tokens=40)
    meta = {
        "policy": "explicit",
        "prefix": SECRET,
        "prefix_ids": [],
        "turns": [{"content": SECRET}],
    }
    files = MappingProxyType({"tokenizer.json": SECRET.encode(), "extra.txt": b""})
    return replace(state.document("prompt_meta", **meta), tokenizer_files=files)


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_comes_back_and_shows_nothing(tmp_path, form):
    state = thought()
    saved(state, tmp_path / "s", settings(form), access=WRITE)
    assert_same(state, store.load(tmp_path / "s", READ)[0])
    lying = b"".join(p.read_bytes() for p in (tmp_path / "s").rglob("*") if p.is_file())
    hidden = [SECRET.encode(), raw(state.token_ids)[:64], raw(state.layers[0].segments[0].key)[:64]]
    hidden += [b"prompt_meta", b"token_ids"]
    assert not [h for h in hidden if h in lying]
    saved(state, tmp_path / "plain", settings(form))  # the twin: in clear they would be seen
    lying = b"".join(p.read_bytes() for p in (tmp_path / "plain").rglob("*") if p.is_file())
    assert SECRET.encode() in lying and b"token_ids" in lying


def test_nothing_can_be_guessed_from_names_and_ids(tmp_path):
    """Equal thoughts do not look equal: who guesses the prompt cannot see that the guess is right."""
    for place in "ab":
        saved(thought(), tmp_path / place, settings(), access=WRITE)
    one, two = (json.loads((tmp_path / p / "manifest.json").read_text()) for p in "ab")
    assert one["id"] != two["id"]
    names = [{r["file"] for r in m["files"] if "/" not in r["file"]} for m in (one, two)]
    assert names[0].isdisjoint(names[1])


def test_without_the_key_it_is_refused_in_one_line(tmp_path):
    saved(thought(), tmp_path / "s", settings(), access=WRITE)
    for access, said in (
        (store.Access(), "decrypt=KEYFILE"), (store.Access(decrypt=OTHER), "another key"),
    ):  # fmt: skip
        for read in (store.load, store.faults, store.read_manifest):
            with pytest.raises(Untrusted, match=said) as caught:
                read(tmp_path / "s", access)
            assert len(str(caught.value).splitlines()) == 1
    shown = store.public(tmp_path / "s")
    assert shown["encryption"] == {"cipher": "AES-256-GCM", "key": KEY.hint}
    saved(thought(), tmp_path / "p", settings())
    assert store.public(tmp_path / "p") is None


def test_segments_are_shared_between_encrypted_snapshots_of_one_key(tmp_path):
    saved(make_state(), tmp_path / "one", settings(), access=WRITE)
    state, _ = store.load(tmp_path / "one", READ)
    bigger = grown(state, 3, seed=9)
    saved(bigger, tmp_path / "two", settings(), access=WRITE)
    back, manifest = store.load(tmp_path / "two", READ)
    assert_same(bigger, back)
    assert manifest["lineage"]
    saved(bigger, tmp_path / "three", settings(), access=store.Access(encrypt=OTHER))
    assert not store.load(tmp_path / "three", store.Access(decrypt=OTHER))[1]["lineage"]
    saved(bigger, tmp_path / "four", settings())  # and a plain one refers to nothing encrypted
    assert not store.load(tmp_path / "four")[1]["lineage"]


@pytest.mark.parametrize("form", ["safetensors", "blosc2"])
def test_every_flipped_bit_and_cut_is_refused(tmp_path, form):
    saved(thought(), tmp_path / "s", settings(form), access=WRITE)
    rng = random.Random(0)
    paths = sorted(p for p in (tmp_path / "s").rglob("*") if p.is_file())
    for _ in range(120):
        path = rng.choice(paths)
        before = path.read_bytes()
        data = bytearray(before)
        if rng.random() < 0.2:
            del data[rng.randrange(len(data)) :]
        else:
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        path.write_bytes(data)
        with pytest.raises(HarnessError) as caught:
            store.load(tmp_path / "s", READ)
        assert caught.value.exit_code == 3
        path.write_bytes(before)
    store.load(tmp_path / "s", READ)


def test_files_exchanged_between_snapshots_of_one_key_are_refused(tmp_path):
    for seed, place in enumerate("ab"):
        saved(make_state(seed=seed), tmp_path / place, settings(), access=WRITE)
    one, two = (next((tmp_path / p).glob("kv-*")) for p in "ab")
    one.write_bytes(two.read_bytes())
    with pytest.raises(SnapshotInvalid, match="another key, or changed"):
        store.load(tmp_path / "a", READ)


@pytest.mark.parametrize("nbytes", [0, 1, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK, 3 * CHUNK + 5])
def test_chunks_fit_together_at_every_size(tmp_path, nbytes):
    data, put = os.urandom(nbytes), bytearray()
    writer = cipher.Writer(KEY, "f", put.extend)
    for start in range(0, nbytes, 700_001):
        writer.feed(memoryview(data)[start : start + 700_001])
    writer.end()
    assert len(put) == cipher.stored(nbytes)
    (tmp_path / "f").write_bytes(put)
    with (tmp_path / "f").open("rb") as file:
        assert cipher.opened(file, KEY, "f", nbytes).read() == data
    with (tmp_path / "f").open("rb") as file, pytest.raises(cipher.WrongKey):
        cipher.opened(file, KEY, "another name", nbytes)


def test_a_file_cut_at_the_end_of_a_chunk_is_refused(tmp_path):
    """Every chunk that is left is sound, and so is the size that it claims: only its mark shows that the last
    one was another."""
    put = bytearray()
    writer = cipher.Writer(KEY, "f", put.extend)
    writer.feed(memoryview(bytes(3 * CHUNK)))
    writer.end()
    for chunks in (1, 2):
        (tmp_path / "f").write_bytes(put[: cipher.stored(chunks * CHUNK)])
        with (tmp_path / "f").open("rb") as file, pytest.raises(cipher.WrongKey):
            cipher.opened(file, KEY, "f", chunks * CHUNK)


def test_a_plain_snapshot_is_refused_where_a_key_is_given(harness, place, monkeypatch):
    """Whoever can write there can put it in the place of the encrypted one, digests and all."""
    (place / "key").write_bytes(KEY.secret)
    saved(thought(), place / "s", settings())
    monkeypatch.setattr(envelope, "written", set())  # as in another process
    for read in (store.load, store.faults, store.read_manifest):
        with pytest.raises(Untrusted, match="not encrypted"):
            read(place / "s", READ)
        read(
            place / "s", store.Access(encrypt=KEY)
        )  # which encrypts what it writes, and asks for nothing
    for asked in (("verify",), ("inspect",), ("resume", "text= what", "steps=1")):
        done = harness(f"task={asked[0]}", "snapshot=s", "decrypt=key", *asked[1:])
        assert done.code == 3 and "is not encrypted" in done.out, done.out


def test_what_is_written_in_clear_on_purpose_is_read_back(harness, place):
    (place / "key").write_bytes(KEY.secret)
    saved(thought(), place / "s", settings(), access=WRITE)
    read = ("task=save", "compact=true", "snapshot=s", "decrypt=key")
    assert harness(*read, "encrypt=none", "out=plain").code == 0
    (place / "other").write_bytes(OTHER.secret)
    assert harness(*read, "encrypt=other", "out=other_key").code == 0
    assert store.load(place / "other_key", store.Access(decrypt=OTHER))


def test_remote_places_hold_nothing_in_clear(tmp_path):
    fsspec = pytest.importorskip("fsspec")
    url = f"memory://encrypted-{os.getpid()}"
    saved(thought(), url, settings(), access=WRITE)
    system, root = fsspec.url_to_fs(url)
    assert not [p for p in system.find(root) if SECRET.encode() in system.cat_file(p)]
    assert_same(thought(), store.load(url, READ)[0])
    with pytest.raises(Untrusted):
        store.load(url)


def test_key_files(tmp_path, monkeypatch):
    secret = os.urandom(32)
    for form in (secret, secret.hex().encode() + b"\n"):
        (tmp_path / "k").write_bytes(form)
        assert Key.read(str(tmp_path / "k"), "encrypt") == Key(secret)
    monkeypatch.setenv("MY_KEY", secret.hex())
    assert Key.read("env:MY_KEY", "encrypt") == Key(secret)
    (tmp_path / "k").write_bytes(b"short")
    for place in (str(tmp_path / "k"), str(tmp_path / "none"), "env:NOT_SET"):
        with pytest.raises(InputProblem, match="encrypt="):
            Key.read(place, "encrypt")
    assert secret.hex() not in repr(Key(secret)) and "k" * 8 not in repr(KEY)


def test_what_was_decrypted_is_encrypted_when_it_is_written_on(harness, place: Path):
    (place / "key").write_bytes(os.urandom(32))
    made = harness("task=save", "text=let zebra be 5 .", "out=a", "encrypt=key")
    assert made.code == 0 and "in clear" in made.out  # the record is not encrypted, and says so
    assert made.folders[0].stat().st_mode & 0o077 == 0
    plain = harness("task=save", "text=let zebra be 5 .", "out=p")
    assert "in clear" not in plain.out and plain.folders[0].stat().st_mode & 0o077 == 0
    done = harness("task=resume", "snapshot=a", "decrypt=key", "steps=2", "out=b")
    assert done.code == 0, done.out
    assert store.public(place / "b") is not None
    seen = harness("task=inspect", "snapshot=b")
    assert seen.code == 0 and "AES-256-GCM" in seen.out and "zebra" not in seen.out


def test_the_record_of_a_sweep_is_for_its_owner_only(harness, place: Path):
    """Its table and Hydra's own file hold the prompt, beside the points."""
    (place / "key").write_bytes(os.urandom(32))
    asked = ("-m", "task=save", "text=let zebra be 5 .,let zebra be 6 .")
    done = harness(*asked, "encrypt=key")
    assert done.code == 0 and done.out.count("in clear") == 1, done.out
    clear = [p for p in (place / "runs").rglob("*") if p.is_file() and b"zebra" in p.read_bytes()]
    assert {"sweep.csv", "multirun.yaml", "record.json"} <= {p.name for p in clear}
    assert all(reached_by_owner_only(path, place) for path in clear)
    plain = harness(*asked, "encrypt=none")
    assert "in clear" not in plain.out
    assert reached_by_owner_only(plain.folders[0] / "result.json", place)
    assert not plain.folders[0].parent.stat().st_mode & 0o077  # nor its table


def reached_by_owner_only(path: Path, above: Path) -> bool:
    folders = [p for p in path.parents if p.is_relative_to(above) and p != above]
    return any(not p.stat().st_mode & 0o077 for p in folders)
