"""Snapshots behind URLs: a real S3-speaking server on localhost, and fsspec's own memory://."""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from store_states import assert_same, grown, make_state, saved, settings

from harness.errors import InputProblem, SnapshotInvalid
from harness.save import contents, remote, store

fsspec = pytest.importorskip("fsspec")


@pytest.fixture(scope="module")
def server():
    pytest.importorskip("s3fs")
    moto = pytest.importorskip("moto.server")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    old = dict(os.environ)
    os.environ.update(
        AWS_ENDPOINT_URL=f"http://{host}:{port}", AWS_ACCESS_KEY_ID="x", AWS_SECRET_ACCESS_KEY="x",
        AWS_DEFAULT_REGION="us-east-1",
    )  # fmt: skip
    fsspec.filesystem("s3").mkdir("bucket")
    yield
    running.stop()
    os.environ.clear()
    os.environ.update(old)


@pytest.fixture(params=["s3", "memory"])
def url(request, tmp_path):
    if request.param == "s3":
        request.getfixturevalue("server")
        return f"s3://bucket/{tmp_path.name}/snap"
    return f"memory://{tmp_path.name}/snap"


def files(url):
    system, root = fsspec.url_to_fs(url, use_listings_cache=False)
    system.invalidate_cache()
    return system, {p.removeprefix(root + "/"): p for p in system.find(root)}


@pytest.mark.parametrize("form", ["safetensors", "blosc2"])
def test_there_and_back(url, form):
    state = make_state("bfloat16")
    manifest = saved(state, url, settings(form))
    back, read = store.load(url)
    assert_same(state, back)
    assert read == manifest == store.read_manifest(url)
    assert store.stored_bytes(url) > 0


def test_replacing_leaves_only_the_new_one(url):
    saved(make_state(), url, settings())
    new = make_state(seed=4)
    saved(new, url, settings("pickle"))
    assert_same(new, store.load(url)[0])
    assert not [n for n in files(url)[1] if n.endswith(".safetensors")]


@pytest.mark.parametrize("fails_at", range(5))
@pytest.mark.parametrize("existing", [True, False])
def test_an_interrupted_upload_leaves_what_was_there(url, fails_at, existing, monkeypatch):
    """The connection breaks at each of the five uploads in turn; the manifest goes last."""
    if existing:
        saved(make_state(), url, settings())
    sent, real = [], remote._write

    def breaking(send, system, url, source, target):
        if len(sent) == fails_at:
            raise OSError("connection reset by peer")
        sent.append(target)
        real(send, system, url, source, target)

    monkeypatch.setattr(remote, "_write", breaking)
    with pytest.raises(InputProblem, match="connection reset"):
        saved(make_state(seed=4), url, settings())
    monkeypatch.undo()
    assert len(sent) == fails_at
    if existing:
        assert_same(make_state(), store.load(url)[0])
    else:
        with pytest.raises(InputProblem, match="no snapshot"):
            store.load(url)
    saved(make_state(seed=4), url, settings())  # what is left over is no obstacle
    assert_same(make_state(seed=4), store.load(url)[0])


@pytest.mark.parametrize("existing", [True, False])
def test_of_two_writers_one_wins_whole_and_the_other_is_told(
    server, tmp_path, existing, monkeypatch
):
    """Both have looked, and both have sent all but the manifest, before either sends that."""
    url = f"s3://bucket/{tmp_path.name}/race"
    if existing:
        saved(make_state(), url, settings())
    states = [make_state(seed=4), make_state(seed=5)]
    gate, real = Barrier(2), remote._write

    def together(send, system, url, source, target):
        if target.endswith("/manifest.json"):
            gate.wait(60)
        real(send, system, url, source, target)

    monkeypatch.setattr(remote, "_write", together)
    with ThreadPoolExecutor(2) as pool:
        jobs = [pool.submit(saved, state, url, settings()) for state in states]
    problems = [job.exception() for job in jobs]
    assert sum(p is None for p in problems) == 1, problems
    (told,) = filter(None, problems)
    assert isinstance(told, InputProblem) and "somebody else meanwhile" in str(told)
    assert_same(states[problems.index(None)], store.load(url)[0])
    assert set(files(url)[1]) == contents.names(store.read_manifest(url)) - {contents.SIGNATURE}


@pytest.mark.parametrize("kind", ["flip", "truncate", "delete"])
def test_remote_damage_is_found(url, kind):
    saved(make_state(), url, settings())
    system, found = files(url)
    for path in [p for n, p in found.items() if not n.startswith("manifest")]:
        whole = system.cat_file(path)
        if kind == "delete":
            system.rm_file(path)
        else:
            data = bytearray(whole)
            data[len(data) // 2] ^= 4
            system.pipe_file(path, bytes(data if kind == "flip" else whole[:-1]))
        with pytest.raises(SnapshotInvalid):
            store.load(url)
        system.pipe_file(path, whole)
    store.load(url)


def test_a_remote_snapshot_is_self_contained(url, tmp_path):
    saved(make_state(), tmp_path / "a", settings())
    back, _ = store.load(tmp_path / "a")
    child = grown(back, 3, 9)
    assert not saved(child, url, settings())["lineage"]
    assert_same(child, store.load(url)[0])


def test_foreign_files_are_left_alone(url):
    system, root = fsspec.url_to_fs(url)
    system.pipe_file(f"{root}/thesis.tex", b"years of work")
    with pytest.raises(InputProblem, match="left alone"):
        saved(make_state(), url, settings())
    assert system.cat_file(f"{root}/thesis.tex") == b"years of work"


def test_a_huge_remote_manifest_is_not_fetched(url):
    saved(make_state(), url, settings())
    system, found = files(url)
    manifest = json.loads(system.cat_file(found["manifest.json"]))
    manifest["documents"]["filler"] = "x" * (65 << 20)
    system.pipe_file(found["manifest.json"], json.dumps(manifest).encode())
    with pytest.raises(SnapshotInvalid, match="larger than"):
        store.load(url)


def test_file_urls_are_local_places(tmp_path):
    state = make_state()
    saved(state, f"file://{tmp_path}/s", settings())
    assert_same(state, store.load(tmp_path / "s")[0])
    assert_same(state, store.load(f"file://{tmp_path}/s")[0])


@pytest.mark.parametrize("given", ["s3://no-such-bucket-here/x", "nonsense://x/y"])
def test_a_place_that_cannot_be_reached_is_one_plain_message(server, given):
    for work in (lambda: store.load(given), lambda: saved(make_state(), given, settings())):
        with pytest.raises(InputProblem, match=r"no snapshot|cannot be reached"):
            work()


def test_without_the_extra_the_message_says_how_to_get_it(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "fsspec", None)
    with pytest.raises(InputProblem, match=r"harness\[remote\]"):
        store.load("s3://bucket/x")
    assert remote.is_url("s3://bucket/x") and not remote.is_url("/tmp/x")
