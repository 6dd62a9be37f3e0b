"""What a job may and must do with snapshots: replace, map, sign, trust, encrypt.

The job's own is set once, where its configuration is known; every save and load asks for it.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from harness.config import Config
from harness.save.cipher import Key
from harness.snapshot import signature


@dataclass(frozen=True)
class Access:
    """overwrite: a snapshot may be replaced. sign: private key file. trusted: public key files, one
    of which must have signed what is loaded. map: True and False force a way to read, None chooses
    by where the file lies. encrypt: the key of what is written, None for plain. decrypt: the key of what
    is read, which then has to be encrypted; without it, what `encrypt` opens and what is plain are read."""

    overwrite: bool = False
    sign: str | None = None
    trusted: tuple[str, ...] = ()
    map: bool | None = None
    encrypt: Key | None = None
    decrypt: Key | None = None

    @classmethod
    def of(cls, encrypt: str | None = None, decrypt: str | None = None, **others: Any) -> "Access":
        """With the keys in the files (or `env:NAME`) named. What can be decrypted is encrypted with
        the same key when it is written on, unless `encrypt="none"`. Raises InputProblem for a key
        that cannot be read."""
        plainly = encrypt == "none"
        writing = Key.read(encrypt, "encrypt") if encrypt and not plainly else None
        reading = Key.read(decrypt, "decrypt") if decrypt else None
        return cls(encrypt=writing or (None if plainly else reading), decrypt=reading, **others)

    @property
    def key(self) -> Key | None:
        """Opens what is read."""
        return self.decrypt or self.encrypt

    @property
    def back(self) -> "Access":
        """Reads what was written with this one."""
        return replace(self, decrypt=self.encrypt, trusted=())


_job = Access()


def current(**changes: Any) -> Access:
    """The job's access, with `changes`."""
    return replace(_job, **changes)


@contextmanager
def using(cfg: Config) -> Iterator[Access]:
    """Everything saved and loaded inside goes by the keys of `cfg`, see `Access.of`. Raises InputProblem,
    before any work, for a key that cannot be used."""
    global _job
    before = _job
    trusted = tuple(dict.fromkeys([*cfg.restore.trusted, *cfg.trusted]))
    if cfg.sign:
        signature.check_key(cfg.sign)
    signature.check_trusted(trusted)
    others = {"overwrite": cfg.overwrite, "sign": cfg.sign, "map": cfg.restore.map}
    _job = Access.of(cfg.encrypt, cfg.decrypt, trusted=trusted, **others)
    try:
        yield _job
    finally:
        _job = before
