"""`record.json`: what a run claims, sealed, so that a later edit of any file shows.

The seal is no signature: who rewrites a record *and* its seal consistently is caught by the
tracking server, which holds the seal's id too, and by running it again.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.snapshot.digest import digest_bytes, digest_document
from harness.snapshot.result import SCHEMA, write_json

NAME = "record.json"
PENDING = "pending.json"  # not yet with the tracking server
_LIVING = {NAME, PENDING, "result.json", "harness.log"}  # may change after the seal
LARGE = 256 << 20  # bytes; larger payload files are covered by their tensors' digests


def claims(result: Mapping[str, Any]) -> dict[str, Any]:
    """`result` without what tracking adds later."""
    return {k: v for k, v in result.items() if k != "mlflow"}


def seal(folder: Path, result: Mapping[str, Any], config: Mapping[str, Any], packages: Mapping[str, str]) -> str:  # fmt: skip
    """Write `result.json` and the record of everything in `folder`; return the record's id.

    config: the resolved configuration as plain values. packages: installed versions.
    """
    write_json(folder / "result.json", result)
    body = {
        "schema": SCHEMA,
        "folder": result.get("folder", folder.name),
        "config": json.loads(json.dumps(config)),
        "result": digest_document(claims(read(folder / "result.json"))),
        "files": {str(p.relative_to(folder)): digest_bytes(p.read_bytes()) for p in _files(folder)},
        "packages": dict(packages),
    }
    body["id"] = digest_document(body)
    write_json(folder / NAME, body)
    return body["id"]


def read(path: Path) -> dict[str, Any]:
    """A JSON object. Raises OSError or ValueError."""
    found = json.loads(path.read_text("utf-8"))
    if not isinstance(found, dict):
        raise ValueError(f"{path.name} holds no object")
    return found


def broken(folder: Path) -> Iterator[tuple[str, str, str]]:
    """`(file, recorded, found)` for everything in `folder` that is not as it was sealed."""
    try:
        body = read(folder / NAME)
    except (OSError, ValueError) as problem:
        yield NAME, "a sealed record", f"none that can be read ({type(problem).__name__})"
        return
    identity = digest_document({k: v for k, v in body.items() if k != "id"})
    if identity != body.get("id"):
        yield NAME, str(body.get("id")), identity
    try:
        held = digest_document(claims(read(folder / "result.json")))
    except (OSError, ValueError):
        held = "missing or unreadable"
    if held != body.get("result"):
        yield "result.json", str(body.get("result")), held
    files = body.get("files") if isinstance(body.get("files"), dict) else {}
    present = {str(p.relative_to(folder)): p for p in _files(folder)}
    for name, digest in files.items():
        path = present.pop(name, None)
        now = digest_bytes(path.read_bytes()) if path else "missing"
        if now != digest:
            yield name, str(digest), now
    for name in present:
        yield name, "no such file", "added"


def _files(folder: Path) -> Iterator[Path]:
    """The sealed files of a run; links are not followed."""
    for path in sorted(folder.rglob("*")):
        plain = path.is_file() and not path.is_symlink()
        if plain and path.name not in _LIVING and path.stat().st_size <= LARGE:
            yield path
