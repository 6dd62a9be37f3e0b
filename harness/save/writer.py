"""The files of a snapshot, written one by one: payload, tokenizer, manifest and its signature."""

import os
from typing import Any

from harness.errors import ConfigProblem
from harness.machine import many
from harness.save import atomic, cipher, contents, envelope
from harness.save.access import Access
from harness.save.base import Format
from harness.save.cipher import Key
from harness.save.files import Sink
from harness.save.plan import Plan
from harness.save.streaming import Entry, Stream
from harness.snapshot import manifest as manifests
from harness.snapshot import signature
from harness.snapshot.digest import digest_bytes, digest_document
from harness.snapshot.state import State


def payload(
    growing: atomic.Growing, form: Format, stem: str, entries: list[Entry], key: Key | None
) -> tuple[dict[str, Any], dict[str, str]]:
    """One payload file, named after its contents; its row and the digests of its tensors. Encrypted
    (`key`), it is named after nothing: a name could be guessed from contents that are guessed."""
    stream = Stream(list(entries))
    kind, salt = stem.partition("-")[0], os.urandom(cipher.SALT) if key else None
    name = f"{kind}-{digest_bytes(salt)[:16]}.{form.extension}" if salt else f"{stem}.part"
    with Sink(growing.path / name, key, name, salt) as sink:
        try:
            form.write(sink, stream)
        except Exception:
            if sink.problem:  # a library may have replaced it with an error of its own
                raise sink.problem from None
            raise
    if left := [e.name for e in entries if e.name not in stream.digests]:
        raise ConfigProblem(
            f"save={type(form).__name__}: `write` did not go through its whole stream of {many(len(entries), 'tensor')}, so "
            f"nothing was saved: it has to take and write every one, and did not take {left[0]}."
        )
    path = sink.path
    if not salt:
        contained = [[e.name, e.dtype, e.shape, stream.digests[e.name]] for e in entries]
        path = path.with_name(f"{kind}-{digest_document(contained)[:16]}.{form.extension}")
        sink.path.rename(path)
    growing.finished(path)
    row = {
        "file": path.name,
        "nbytes": sink.nbytes,
        "tensor_bytes": sum(e.nbytes for e in entries),
        "covered": sink.covered,
        "digest": sink.digest(),
    }
    return row, stream.digests


def tokenizer(
    growing: atomic.Growing, state: State, plan: Plan, key: Key | None
) -> list[dict[str, Any]]:
    folder = growing.path / "tokenizer"
    folder.mkdir(mode=0o700)
    earlier = {r["file"]: r for r in plan.base.manifest["tokenizer_files"]} if plan.base else {}
    rows = []
    for name, data in sorted(state.tokenizer_files.items()):
        row = {"file": name, "nbytes": len(data), "digest": digest_bytes(data)}
        rows.append(row)
        if earlier.get(name) == row:
            plan.inherit(f"tokenizer/{name}")
            continue
        with Sink(folder / name, key, f"tokenizer/{name}") as sink:
            sink.write_raw(data)
        growing.finished(sink.path)
    return rows


def manifest(growing: atomic.Growing, body: dict[str, Any], access: Access) -> None:
    """The manifest, in its envelope where it is encrypted, and the signature of those very bytes."""
    shown = body
    if access.encrypt:
        shown = envelope.sealed(body, access.encrypt, growing.path)
    data = manifests.dump(shown)
    written = {manifests.NAME: data}
    if access.sign:
        written[contents.SIGNATURE] = signature.sign(data, access.sign)
    for name, content in written.items():
        with Sink(growing.path / name) as sink:
            sink.write_raw(content)
        growing.finished(sink.path)
