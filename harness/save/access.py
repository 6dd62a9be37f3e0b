"""What a job may and must do with snapshots: replace, map, sign, trust, encrypt.

The job's own is set once, where its configuration is known; every save and load asks for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from harness.save.cipher import Key


@dataclass(frozen=True)
class Access:
    """overwrite: a snapshot may be replaced. sign: private key file. trusted: public key files, one
    of which must have signed what is loaded. map: True and False force a way to read, None chooses
    by where the file lies. encrypt, decrypt: keys, or None for what is written and read plainly."""

    overwrite: bool = False
    sign: str | None = None
    trusted: tuple[str, ...] = ()
    map: bool | None = None
    encrypt: Key | None = None
    decrypt: Key | None = None


_job = Access()


def current(**changes: Any) -> Access:
    """The job's access, with `changes`."""
    return replace(_job, **changes)


@contextmanager
def using(cfg: Any) -> Iterator[Access]:
    """Everything saved and loaded inside goes by the keys of `cfg`. What was decrypted is encrypted
    with the same key when it is written on, unless `encrypt=none` says otherwise. Raises
    InputProblem for a key file that cannot be read."""
    global _job
    before = _job
    plainly = cfg.encrypt == "none"
    encrypt = Key.read(cfg.encrypt, "encrypt") if cfg.encrypt and not plainly else None
    decrypt = Key.read(cfg.decrypt, "decrypt") if cfg.decrypt else encrypt
    encrypt = encrypt or (None if plainly else decrypt)
    trusted = tuple(dict.fromkeys([*cfg.restore.trusted, *cfg.trusted]))
    _job = Access(cfg.overwrite, cfg.sign, trusted, cfg.restore.map, encrypt, decrypt)
    try:
        yield _job
    finally:
        _job = before
