"""Signatures through OpenSSF `model-signing`: the extra `trust`. Nothing here is cryptography of our own.

What is signed is one small file, a manifest or a record, whose digests cover everything else. The
detached bundle (a Sigstore bundle around an in-toto statement) lies beside it.
"""

import logging
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from harness import extras
from harness.errors import InputProblem, Untrusted

SUFFIX = ".sig"
MAX_BYTES = 1 << 20
CURVES = ("secp256r1", "secp384r1", "secp521r1")  # P-256 and so on, which the library takes


MAKE = "openssl ecparam -name prime256v1 -genkey -noout -out KEY.pem"
DERIVE = "openssl ec -in KEY.pem -pubout -out KEY.pub"


def check_key(key: str) -> None:
    """Raise InputProblem, before any work, when `key` cannot sign."""
    extras.need("trust", f"sign={key}")
    _check(_key_file(key, "sign"), "sign", private=True)


def check_trusted(keys: Sequence[str]) -> None:
    """Raise InputProblem, before any work, for a file that is no public key of the kind that signs."""
    if keys:
        extras.need("trust", "trusted=[KEYS]")
    for key in keys:
        _check(_key_file(key, "trusted"), "trusted", private=False)


def sign(data: bytes, key: str) -> bytes:
    """The bundle that signs `data` with the private key (PEM, elliptic curve) in the file `key`.

    Raises InputProblem for a key that cannot be read or used.
    """
    extras.need("trust", f"sign={key}")
    path = _key_file(key, "sign")
    _check(path, "sign", private=True)
    from model_signing import signing

    with _quiet(), _as_file(data) as (file, bundle):
        try:
            signing.Config().use_elliptic_key_signer(private_key=path).sign(file, bundle)
        except Exception as problem:  # the library and what it uses have errors of their own
            raise InputProblem(
                f"sign={key} is no private key that can sign: {_first(problem)} Make one: {MAKE}"
            ) from None
        return bundle.read_bytes()


def check(data: bytes, bundle: bytes | None, trusted: Sequence[str], where: str) -> str:
    """The file of the public key among `trusted` that signed `data`.

    Raises Untrusted for what is not signed, or not by one of them, or was changed since; InputProblem
    for a key file that is none.
    """
    extras.need("trust", "trusted=[KEYS]")
    check_trusted(trusted)
    paths = [_key_file(key, "trusted") for key in trusted]
    if bundle is None:
        raise Untrusted(f"{where} is not signed, and trusted= asks for a signature.")
    from model_signing import verifying

    with _quiet(), _as_file(data) as (file, place):
        place.write_bytes(bundle)
        for path in paths:
            try:
                verifier = verifying.Config().use_elliptic_key_verifier(public_key=path)
            except Exception as problem:
                raise InputProblem(f"trusted={path} is no public key: {_first(problem)}") from None
            try:
                verifier.verify(file, place)
            except Exception:  # another key, another content, a bundle that is none
                continue
            return str(path)
    raise Untrusted(
        f"{where} is not signed by any of the {len(paths)} trusted keys, or was changed after it was "
        "signed."
    )


def _check(path: Path, option: str, private: bool) -> None:
    """Raise InputProblem unless the file holds a key on an elliptic curve that the library signs with."""
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import (
        load_pem_private_key,
        load_pem_public_key,
    )

    data = path.read_bytes()[:MAX_BYTES]
    key: object = None
    is_private = b"PRIVATE KEY-----" in data
    try:
        key = load_pem_private_key(data, None) if is_private else load_pem_public_key(data)
    except TypeError:  # a password is asked for
        raise InputProblem(
            f"{option}={path} is locked with a passphrase. Take it off in a file that only you can read: "
            "openssl ec -in LOCKED.pem -out KEY.pem"
        ) from None
    except (ValueError, UnsupportedAlgorithm):
        raise InputProblem(f"{option}={path} is no key in PEM form. Make one: {MAKE}") from None
    kind = type(key).__name__.removesuffix("PrivateKey").removesuffix("PublicKey").lstrip("_")
    curve = getattr(getattr(key, "curve", None), "name", None)
    if curve not in CURVES:
        what = f"a key on the curve {curve}" if curve else f"an {kind} key"
        raise InputProblem(
            f"{option}={path} is {what}; only P-256 works (and P-384, P-521). Make one: {MAKE}, then "
            f"{DERIVE}"
        )
    if private and not is_private:
        raise InputProblem(
            f"sign={path} is a public key: it is for trusted=. Sign with the private one it was "
            "derived from: sign=KEY.pem"
        )
    if is_private and not private:
        raise InputProblem(
            f"{option}={path} is a private key, for sign=. Give its public one: {DERIVE}"
        )


def _key_file(key: str, option: str) -> Path:
    path = Path(key).expanduser()
    if not path.is_file():
        raise InputProblem(f"{option}={key}: there is no such key file.")
    return path


def _first(problem: Exception) -> str:
    text = str(problem).strip()
    return (text.splitlines()[0][:200] if text else type(problem).__name__).rstrip(".") + "."


@contextmanager
def _as_file(data: bytes) -> Iterator[tuple[Path, Path]]:
    """`(file with `data`, place for its bundle)`: the library reads files only."""
    with tempfile.TemporaryDirectory(prefix="harness-") as folder:
        file = Path(folder) / "signed.json"
        file.write_bytes(data)
        yield file, Path(folder) / "bundle"


@contextmanager
def _quiet() -> Iterator[None]:
    """The library reports through the root logger what is said here in words of our own."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)
