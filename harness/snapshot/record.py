"""`record.json`: what a run claims, sealed, so that a later edit of any file shows.

The seal is no signature: who rewrites a record *and* its seal consistently is caught by the
tracking server, which holds the seal's id too, by running it again, and, where the run was signed
(`sign=KEY.pem`), by the signature beside it, which only the key's owner can make.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness import foreign, interrupt
from harness.snapshot import signature
from harness.snapshot.digest import digest_bytes, digest_document
from harness.snapshot.result import SCHEMA, write_json

NAME = "record.json"
SIGNATURE = "record.json.sig"
PENDING = "pending.json"  # not yet with the tracking server
# tasks whose record an audit runs again
AUDITED = ("experiment", "save", "resume", "prune", "chat", "loop", "evaluate")
# May change after the seal.
_LIVING = {NAME, SIGNATURE, PENDING, "result.json", "harness.log", "hydra.yaml"}
LARGE = 256 << 20  # bytes; larger payload files are covered by their tensors' digests


def claims(result: Mapping[str, Any]) -> dict[str, str]:
    """A digest per claim (`metrics.kl_max`, `verdict`, ...), so that an edit is named.

    What tracking adds later (`mlflow`) is no claim.
    """
    digests: dict[str, str] = {}
    for key, value in result.items():
        if isinstance(value, Mapping):
            digests |= {f"{key}.{inner}": digest_document(v) for inner, v in value.items()}
        elif key != "mlflow":
            digests[key] = digest_document(value)
    return {k: v for k, v in digests.items() if not k.startswith("mlflow.")}


def seal(
    folder: Path,
    result: Mapping[str, Any],
    config: Mapping[str, Any],
    packages: Mapping[str, str],
) -> str:
    """Write `result.json` and the record of everything in `folder`; return the record's id.

    config: the resolved configuration as plain values; with its `sign` the record is signed.
    packages: installed versions.
    """
    with interrupt.held():
        made = _sealed(folder, result, config, packages)
        (folder / SIGNATURE).unlink(missing_ok=True)
        if key := config.get("sign"):
            bundle = signature.sign((folder / NAME).read_bytes(), str(key))
            (folder / SIGNATURE).write_bytes(bundle)
        return made


def _sealed(folder: Path, result: Any, config: Any, packages: Any) -> str:
    write_json(folder / "result.json", result)
    body = {
        "schema": SCHEMA,
        "folder": result.get("folder", folder.name),
        "config": json.loads(json.dumps(config)),
        "result": claims(read(folder / "result.json")),
        "files": {str(p.relative_to(folder)): digest_bytes(p.read_bytes()) for p in _files(folder)},
        "packages": dict(packages),
    }
    body["id"] = digest_document(body)
    write_json(folder / NAME, body)
    return body["id"]


def read(path: Path) -> dict[str, Any]:
    """A JSON object. Raises OSError or ValueError."""
    document = foreign.read_json(path)
    if not isinstance(document, dict):
        raise ValueError(f"{path.name} holds no object")
    return document


def broken(folder: Path) -> Iterator[tuple[str, Any, Any]]:
    """`(what, recorded, found)` for every claim and file that is not as it was sealed.

    Recorded is the digest in the seal, or None for what came later; found is what is there now.
    """
    try:
        body = read(folder / NAME)
        sealed_claims, files = dict(body["result"]), dict(body["files"])
    except (OSError, ValueError, KeyError, TypeError) as problem:
        yield NAME, "a sealed record", f"none that can be read ({type(problem).__name__})"
        return
    identity = digest_document({k: v for k, v in body.items() if k != "id"})
    if identity != body.get("id"):
        yield f"{NAME}: id", body.get("id"), identity
    try:
        result = read(folder / "result.json")
    except (OSError, ValueError) as problem:
        yield "result.json", "a result", f"missing or unreadable ({type(problem).__name__})"
    else:
        present_claims = claims(result)
        added = [key for key in present_claims if key not in sealed_claims]
        for key in [*sealed_claims, *added]:
            if present_claims.get(key) != sealed_claims.get(key):
                yield f"result.json: {key}", sealed_claims.get(key), value_at(result, key)
    present = {str(p.relative_to(folder)): p for p in _files(folder)}
    for name, digest in files.items():
        path = present.pop(name, None)
        now = digest_bytes(path.read_bytes()) if path else "missing"
        if now != digest:
            yield name, digest, now
    for name in present:
        yield name, None, "added"


def unsealed(folder: Path) -> list[str]:
    """What lies in the run's `folder` and no seal covers: its log, links, and files of more than `LARGE` bytes."""
    known = {
        *_files(folder),
        *(folder / name for name in (NAME, SIGNATURE, PENDING, "result.json")),
    }
    every = (path for path in folder.rglob("*") if path.is_symlink() or path.is_file())
    return sorted(str(path.relative_to(folder)) for path in every if path not in known)


def value_at(result: Mapping[str, Any], key: str) -> Any:
    """The value of a claim by its dotted name; None when it is gone."""
    block, _, inner = key.partition(".")
    value = result.get(block)
    return value.get(inner) if inner and isinstance(value, Mapping) else value


def flat(tree: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of nested mappings."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from flat(value, f"{prefix}.{key}" if prefix else str(key))
    else:
        yield prefix, tree


def _files(folder: Path) -> Iterator[Path]:
    """The sealed files of a run; links are not followed."""
    for path in sorted(folder.rglob("*")):
        plain = path.is_file() and not path.is_symlink()
        if plain and path.name not in _LIVING and path.stat().st_size <= LARGE:
            yield path
