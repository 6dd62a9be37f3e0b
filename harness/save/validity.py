"""What is wrong with a manifest, as far as it can be said without its files."""

from typing import Any

from harness.save import registry
from harness.snapshot import schema
from harness.snapshot.digest import digest_document

_sound: dict[str, None] = {}


def faults_of(manifest: dict[str, Any]) -> list[str]:
    """The schema's faults; a manifest this process found sound before is not checked again."""
    key = digest_document(manifest)
    if key in _sound:
        return []
    problems = schema.faults(manifest) or format_faults(manifest)
    if not problems:
        _sound[key] = None
        if len(_sound) > 1024:
            del _sound[next(iter(_sound))]
    return problems


def format_faults(manifest: dict[str, Any]) -> list[str]:
    """A format is one of ours, or bears another name and says whose it is; whether that is trusted is
    asked later."""
    name, ours = manifest["payload_format"], registry.shipped()
    if (
        name in ours
        if "payload_target" not in manifest
        else name.isidentifier() and name not in ours
    ):
        return []
    return [f"payload_format {manifest['payload_format'][:40]!r} is not a format"]
