"""Files encrypted at rest: AES-256-GCM in chunks, a key of its own per file.

A stored file is `MAGIC`, 32 random bytes, then per MiB of contents the ciphertext and a 16-byte tag.
The file's key is HKDF-SHA256 of the user's key and those random bytes; a chunk's nonce is its number
and whether it is the last (so nothing can be cut off, exchanged or added), its authenticated data
the file's name. Nothing here is cryptography of our own: `cryptography` does all of it.
"""

import base64
import binascii
import hashlib
import hmac
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from harness import extras
from harness.errors import InputProblem
from harness.save.inmemory import InMemory

MAGIC = b"HARNESS\x01"
SALT, TAG, CHUNK = 32, 16, 1 << 20
HEAD = len(MAGIC) + SALT
NAME = "AES-256-GCM"


class WrongKey(ValueError):
    """The contents were not encrypted with this key, or are not what was encrypted."""


@dataclass(frozen=True)
class Key:
    """32 secret bytes. `hint` names the key without telling anything about it."""

    secret: bytes

    @classmethod
    def read(cls, place: str, option: str) -> "Key":
        """The key in the file `place`, or in the environment variable of `env:NAME`: 32 raw bytes,
        or the same in hex or base64. Raises InputProblem."""
        extras.need("trust", f"{option}=KEYFILE")
        if place.startswith("env:"):
            data = os.environ.get(place[4:], "").encode()
            if not data:
                raise InputProblem(f"{option}={place}: the variable {place[4:]} is not set.")
        else:
            try:
                with Path(place).expanduser().open("rb") as file:
                    data = file.read(256)
            except OSError as problem:
                raise InputProblem(
                    f"{option}={place}: the key file cannot be read: {problem.strerror}."
                ) from None
        for secret in _forms(data):
            if len(secret) == 32:
                return cls(secret)
        raise InputProblem(
            f"{option}={place} holds no key of 32 bytes (raw, hex or base64). "
            "Make one: head -c 32 /dev/urandom > KEYFILE"
        )

    def __repr__(self) -> str:
        return f"Key({self.hint})"

    @property
    def hint(self) -> str:
        return hmac.new(self.secret, b"harness: which key", hashlib.sha256).hexdigest()[:16]

    def derived(self, salt: bytes) -> Any:
        """The AEAD of one file."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.kdf.hkdf import HKDF

        return AESGCM(HKDF(SHA256(), 32, salt, b"harness: one file").derive(self.secret))

    def sealed(self, data: bytes, label: bytes) -> bytes:
        """`data` encrypted as one piece; `label` is authenticated with it."""
        salt = os.urandom(SALT)
        return salt + self.derived(salt).encrypt(bytes(12), data, label)

    def unsealed(self, data: bytes, label: bytes) -> bytes:
        """Raises WrongKey."""
        from cryptography.exceptions import InvalidTag

        try:
            return self.derived(data[:SALT]).decrypt(bytes(12), data[SALT:], label)
        except (InvalidTag, ValueError):
            raise WrongKey("was encrypted with another key, or changed") from None


def _forms(data: bytes) -> list[bytes]:
    forms = [data]
    for decode in (bytes.fromhex, lambda text: base64.b64decode(text, validate=True)):
        try:
            forms.append(decode(data.decode("ascii").strip()))
        except (ValueError, binascii.Error):
            continue
    return forms


def stored(nbytes: int) -> int:
    """Bytes on disk of `nbytes` of contents."""
    return HEAD + nbytes + TAG * max(1, -(-nbytes // CHUNK))


class Writer:
    """Encrypts what it is fed into `put`. `end` must be called once, after the last byte."""

    def __init__(self, key: Key, name: str, put: Any, salt: bytes | None = None):
        salt = salt or os.urandom(SALT)
        self._aead, self._label, self._put = key.derived(salt), name.encode(), put
        self._number, self._room, self._used = 0, bytearray(CHUNK), 0
        self._out = bytearray(CHUNK + TAG)
        put(MAGIC + salt)

    def feed(self, view: memoryview) -> None:
        """A full chunk is held back until there is more, since the last one is marked."""
        place = 0
        while place < len(view):
            if self._used == CHUNK:
                self._seal(memoryview(self._room), last=False)
                self._used = 0
            if not self._used and len(view) - place > CHUNK:  # straight from where it lies
                self._seal(view[place : place + CHUNK], last=False)
                place += CHUNK
                continue
            count = min(CHUNK - self._used, len(view) - place)
            self._room[self._used : self._used + count] = view[place : place + count]
            self._used += count
            place += count

    def end(self) -> None:
        self._seal(memoryview(self._room)[: self._used], last=True)

    def _seal(self, chunk: memoryview, last: bool) -> None:
        out = memoryview(self._out)[: len(chunk) + TAG]
        self._aead.encrypt_into(_nonce(self._number, last), chunk, self._label, out)
        self._number += 1
        self._put(out)


def opened(file: BinaryIO, key: Key, name: str, nbytes: int) -> InMemory:
    """The contents of the encrypted `file`, `nbytes` of them, in this process's own memory.

    One thread: the cipher is many times faster than fresh memory comes. Raises WrongKey, ValueError
    for another size.
    """
    from cryptography.exceptions import InvalidTag

    if os.fstat(file.fileno()).st_size != stored(nbytes):
        raise ValueError("does not have the size that its contents would take")
    head = os.pread(file.fileno(), HEAD, 0)
    if head[: len(MAGIC)] != MAGIC:
        raise WrongKey("is not encrypted as the manifest says")
    aead, label, last = key.derived(head[len(MAGIC) :]), name.encode(), max(0, nbytes - 1) // CHUNK
    contents = InMemory(nbytes)
    packed = memoryview(bytearray(CHUNK + TAG))
    try:
        for number in range(last + 1):
            room = contents.view[number * CHUNK : (number + 1) * CHUNK]
            piece = packed[: len(room) + TAG]
            os.preadv(file.fileno(), [piece], HEAD + number * len(packed))
            aead.decrypt_into(_nonce(number, number == last), piece, label, room)
    except InvalidTag:
        raise WrongKey("was encrypted with another key, or changed") from None
    return contents


def _nonce(number: int, last: bool) -> bytes:
    return number.to_bytes(11, "big") + bytes([last])
