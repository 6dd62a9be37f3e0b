"""Signatures: only the trusted key's own bytes are restored, whatever else is made to fit."""

import subprocess

import pytest
from store_attacks import resign
from store_states import AGAIN, assert_same, grown, make_state, saved, settings

from harness.errors import InputProblem, Untrusted
from harness.save import store
from harness.save.contents import SIGNATURE


@pytest.fixture(scope="module")
def keys(tmp_path_factory):
    """`(private, public)` of two people, as openssl writes them."""
    folder = tmp_path_factory.mktemp("keys")
    for name in "ab":
        make = f"openssl ecparam -name prime256v1 -genkey -noout -out {name}.pem"
        show = f"openssl ec -in {name}.pem -pubout -out {name}.pub"
        subprocess.run(f"{make} && {show}", shell=True, check=True, capture_output=True, cwd=folder)
    return [(str(folder / f"{n}.pem"), str(folder / f"{n}.pub")) for n in "ab"]


def signed(keys, folder, **options):
    (private, public), _ = keys
    saved(make_state(), folder, settings(), access=store.Access(overwrite=True, sign=private))
    return store.Access(trusted=(public,), **options)


def test_what_the_trusted_key_signed_is_restored(keys, tmp_path):
    access = signed(keys, tmp_path / "s")
    assert_same(make_state(), store.load(tmp_path / "s", access)[0])
    assert store.faults(tmp_path / "s", access) == []
    others = store.Access(trusted=(keys[1][1], keys[0][1]))  # any of several will do
    store.load(tmp_path / "s", others)
    store.load(tmp_path / "s")  # and who asks for no signature needs no key


def test_another_key_no_signature_and_a_forgery_are_refused(keys, tmp_path):
    access = signed(keys, tmp_path / "s")
    with pytest.raises(Untrusted, match="not signed by any"):
        store.load(tmp_path / "s", store.Access(trusted=(keys[1][1],)))
    resign(tmp_path / "s", lambda m: m["documents"]["generation"].update(steps=7))
    store.load(tmp_path / "s")  # a digest says that nothing is damaged, not who wrote it
    for read in (store.load, store.faults, store.read_manifest):
        with pytest.raises(Untrusted, match="changed after it was signed"):
            read(tmp_path / "s", access)
    saved(make_state(), tmp_path / "u", settings())
    with pytest.raises(Untrusted, match="is not signed"):
        store.load(tmp_path / "u", access)


@pytest.mark.parametrize("bundle", [b"", b"{}", b"\xff" * 99, b'{"dsseEnvelope": null}'])
def test_a_bundle_that_is_none_is_refused(keys, tmp_path, bundle):
    access = signed(keys, tmp_path / "s")
    (tmp_path / "s" / SIGNATURE).write_bytes(bundle)
    with pytest.raises(Untrusted):
        store.load(tmp_path / "s", access)


def test_a_signature_of_another_snapshot_does_not_fit(keys, tmp_path):
    access = signed(keys, tmp_path / "s")
    other = store.Access(sign=keys[0][0])
    saved(make_state(seed=5), tmp_path / "o", settings(), access=other)
    (tmp_path / "s" / SIGNATURE).write_bytes((tmp_path / "o" / SIGNATURE).read_bytes())
    with pytest.raises(Untrusted):
        store.load(tmp_path / "s", access)


def test_a_signed_child_covers_what_it_takes_from_an_unsigned_parent(keys, tmp_path):
    saved(make_state(), tmp_path / "parent", settings())
    state, _ = store.load(tmp_path / "parent")
    access = store.Access(sign=keys[0][0])
    saved(grown(state, 3, seed=9), tmp_path / "child", settings(), access=access)
    trusting = store.Access(trusted=(keys[0][1],))
    _, manifest = store.load(tmp_path / "child", trusting)
    assert manifest["lineage"]


def test_keys_that_are_none_are_named(keys, tmp_path):
    (tmp_path / "noise").write_bytes(b"\x00\x01")
    for sign in ("nowhere.pem", str(tmp_path / "noise"), keys[0][1]):
        with pytest.raises(InputProblem, match="sign="):
            saved(make_state(), tmp_path / "s", settings(), access=store.Access(sign=sign))
    saved(make_state(), tmp_path / "s", settings(), access=store.Access(sign=keys[0][0]))
    for trusted in ("nowhere.pub", str(tmp_path / "noise")):
        with pytest.raises(InputProblem, match="trusted="):
            store.load(tmp_path / "s", store.Access(trusted=(trusted,)))


def test_the_signature_is_replaced_with_its_snapshot(keys, tmp_path):
    signed(keys, tmp_path / "s")
    saved(make_state(seed=2), tmp_path / "s", settings(), access=AGAIN)
    assert not (tmp_path / "s" / SIGNATURE).exists()


@pytest.fixture(scope="module")
def strange(keys, tmp_path_factory):
    """Files that are no key of this use, by name; `right` is one."""
    folder = tmp_path_factory.mktemp("strange")
    for line in (
        "genpkey -algorithm ed25519 -out edward.pem",
        "pkey -in edward.pem -pubout -out edward.pub",
        "ecparam -name secp256k1 -genkey -noout -out coin.pem",
        f"ec -in {keys[0][0]} -aes128 -passout pass:x -out locked.pem",
    ):
        subprocess.run(f"openssl {line}", shell=True, check=True, capture_output=True, cwd=folder)
    (folder / "notes.pem").write_text("dear diary")
    right = {"right.pem": keys[0][0], "right.pub": keys[0][1], "missing.pem": folder / "missing"}
    return {p.name: str(p) for p in folder.iterdir()} | {k: str(v) for k, v in right.items()}


@pytest.mark.parametrize(
    "option, name, says",
    [
        ("sign", "edward.pem", "an Ed25519 key; only P-256 works"),
        ("trusted", "edward.pub", "an Ed25519 key; only P-256 works"),
        ("sign", "coin.pem", "a key on the curve secp256k1; only P-256"),
        ("sign", "locked.pem", "is locked with a passphrase"),
        ("sign", "right.pub", "is a public key: it is for trusted="),
        ("trusted", "right.pem", "is a private key, for sign=. Give its public one: openssl ec"),
        ("sign", "notes.pem", "no key in PEM form. Make one: openssl ecparam"),
        ("sign", "missing.pem", "there is no such key file"),
        ("trusted", "missing.pem", "there is no such key file"),
        ("sign", "right.pem", None),
        ("trusted", "right.pub", None),
    ],
)
def test_a_key_that_cannot_be_used_is_told_in_words_before_any_work(strange, compose, option, name, says):  # fmt: skip
    value = strange[name]
    given = {"sign": f"sign={value}", "trusted": f"restore.trusted=[{value}]"}[option]
    if says is None:
        with store.using(compose(given)):
            return
    with pytest.raises(InputProblem) as told, store.using(compose(given)):
        pass
    assert says in str(told.value) and "attribute" not in str(told.value)
