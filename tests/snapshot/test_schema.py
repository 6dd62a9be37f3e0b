"""Every rule of the manifest, with a twin that breaks it."""

import copy
from dataclasses import replace

import pytest

from harness.errors import SnapshotInvalid
from harness.snapshot import manifest as manifests
from harness.snapshot import schema


@pytest.fixture
def sound(captured, tmp_path, compose) -> dict:
    from harness.save import store

    _, one = captured("prompt=text")
    store.save(one.state, tmp_path / "s", compose().save)
    return manifests.parse((tmp_path / "s" / "manifest.json").read_bytes(), "here")


def rehashed(manifest: dict) -> dict:
    return {**manifest, "id": manifests.identity(manifest)}


def test_a_sound_manifest_has_no_fault(sound) -> None:
    assert schema.faults(sound) == []
    assert [e["number"] for e in sound["elements"]] == list(range(1, 14))
    assert set(sound["tensors"][0]) == {"name", "element", "layer", "part", "layer_type", "dtype",
                                        "shape", "nbytes", "digest", "file"}  # fmt: skip


def kv(manifest: dict, part: str = "key") -> dict:
    return next(r for r in manifest["tensors"] if r["part"] == part)


BREAK = {
    "newer version": (lambda m: m.update(format_version=99), "newer than this harness"),
    "version is text": (lambda m: m.update(format_version="1"), "format_version"),
    "header field missing": (lambda m: m.pop("dtype"), "dtype"),
    "header of wrong type": (lambda m: m.update(tokens="27"), "tokens"),
    "unknown header field": (lambda m: m.update(extra=1), "extra"),
    "an element missing": (lambda m: m["elements"].pop(), "12 rows"),
    "an element twice": (lambda m: m["elements"].__setitem__(1, m["elements"][0]), "elements"),
    "digest not hex": (lambda m: kv(m).update(digest="z" * 64), "digest"),
    "unknown dtype": (lambda m: kv(m).update(dtype="float99"), "dtype"),
    "bytes do not fit shape": (lambda m: kv(m).update(nbytes=12), "nbytes = shape x dtype"),
    "negative size": (lambda m: kv(m).update(shape=[1, -2, 3, 4]), "shape"),
    "huge size": (lambda m: kv(m).update(shape=[1 << 60]), "shape"),
    "size is NaN-like": (lambda m: kv(m).update(nbytes=1.5), "nbytes"),
    "path leaves the directory": (lambda m: kv(m).update(file="../kv.safetensors"), "file"),
    "absolute path": (lambda m: kv(m).update(file="/etc/passwd"), "file"),
    "unknown column": (lambda m: kv(m).update(extra=1), "columns"),
    "two tensors of one name": (lambda m: kv(m).update(name=kv(m, "value")["name"]), "name"),
    "edited, not rehashed": (lambda m: m.update(device="tpu"), "own id"),
}
REHASHED = {
    "a key without its row": (lambda m: m["tensors"].remove(kv(m)), "declared but has no row"),
    "a value longer than its key": (
        lambda m: kv(m, "value").update(shape=[1, 2, 1, 32], nbytes=256), "lengths"),
    "a layer gone": (lambda m: m["documents"]["kv_format"]["layers"].pop(0), "contiguous"),
    "fewer layers than rows": (lambda m: m["documents"]["kv_format"]["layers"].pop(), "not declared"),
    "kv_bytes wrong": (lambda m: m.update(kv_bytes=1), "kv_bytes"),
    "another batch": (lambda m: m.update(batch=2), "batch"),
    "element digest does not follow": (
        lambda m: m["elements"][0].update(digest="0" * 64), "does not follow"),
    "layer type": (lambda m: kv(m).update(layer_type="sliding_attention"), "layer_type"),
}  # fmt: skip


@pytest.mark.parametrize("name", BREAK)
def test_a_broken_manifest_is_named(sound, name: str) -> None:
    change, says = BREAK[name]
    twin = copy.deepcopy(sound)
    change(twin)
    found = schema.faults(twin)
    assert any(says in f for f in found), found


@pytest.mark.parametrize("name", REHASHED)
def test_a_broken_manifest_with_a_fresh_id_is_named(sound, name: str) -> None:
    change, says = REHASHED[name]
    twin = copy.deepcopy(sound)
    change(twin)
    found = schema.faults(rehashed(twin))
    assert any(says in f for f in found), found
    assert not any("own id" in f for f in found)


def test_all_faults_are_reported_together(sound) -> None:
    twin = copy.deepcopy(sound)
    kv(twin).update(dtype="float99")
    kv(twin, "value").update(digest="short")
    assert len(schema.faults(twin)) >= 2


@pytest.mark.parametrize(
    "text, says",
    [
        (b"{", "not valid JSON"),
        (b'{"a": NaN}', "not a number"),
        (b'{"a": Infinity}', "not a number"),
        (b'{"a": 1, "a": 2}', "twice"),
        (b"[1]", "no object"),
        (b"[" * 100_000, "not valid JSON"),
        (b"\xff\xfe", "not valid JSON"),
    ],
)
def test_json_is_strict(text: bytes, says: str) -> None:
    with pytest.raises(SnapshotInvalid) as problem:
        manifests.parse(text, "here")
    assert says in str(problem.value)


def test_positions_must_increase_and_stay_below_the_next(captured) -> None:
    _, one = captured()
    assert schema.position_faults(one.state) == []
    layer = one.state.layers[0]
    segment = layer.segments[0]

    def with_positions(positions):
        changed = replace(layer, segments=(replace(segment, positions=positions),))
        return schema.position_faults(replace(one.state, layers=(changed, *one.state.layers[1:])))

    same = segment.positions.clone()
    same[0, 3] = same[0, 2]
    assert "strictly increasing" in with_positions(same)[0]
    assert "below next_position" in with_positions(segment.positions + 1)[0]
