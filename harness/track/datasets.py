"""What was read, or asked, as MLflow's datasets."""

import json
from pathlib import Path
from typing import Any

from harness.snapshot.digest import digest_bytes, digest_document
from harness.snapshot.words import apart
from harness.track import contents, models
from harness.track.names import within

MOST = 4000  # characters of a source
SAID = 200  # characters of a prompt
MADE = {"mlflow.source.name": "python -m harness"}
SIDES = ("a", "b")  # what task=diff compares


def of(result: dict[str, Any], folder: Path) -> list[dict[str, str]]:
    """Name, digest of its tokens or questions, where it comes from, how long it is and how it begins, of each; of a comparison both
    sides, by the identity of what each holds."""
    if sides := result.get("sides"):
        called = apart([str(sides[key]["path"]) for key in SIDES])
        return [
            _side(key, sides[key], within(name)) for key, name in zip(SIDES, called, strict=True)
        ]
    one = _prompt(result, folder)
    return [one] if one else []


def _side(key: str, side: dict[str, Any], name: str) -> dict[str, str]:
    return {
        "name": f"{key}: {name}",
        "digest": str(side["id"])[:32],
        **_source({key: side["path"]}),
        "profile": json.dumps({"tokens": side["tokens"]}),
    }


def _source(told: dict[str, Any]) -> dict[str, str]:
    """Where it comes from, as `mlflow.data.get_source` reads it: made by this program out of `told`. What is too long
    for a server is cut, each value for itself."""
    said = json.dumps({"tags": {**MADE, **told}})
    if len(said) > MOST:
        room = MOST // (2 * len(told))  # of a character that takes two
        short = {k: v if len(v := json.dumps(told[k])) <= room else f"{v[:room]}..." for k in told}
        said = json.dumps({"tags": {**MADE, **short}})
    return {"source_type": "code", "source": said}


def _prompt(result: dict[str, Any], folder: Path) -> dict[str, str] | None:
    result = models.read(result)
    digests = {e["name"]: e["digest"] for e in result.get("elements") or []}
    asked = folder / "questions.jsonl"
    config = result.get("config") or contents.config(folder)  # of what was stopped none is sealed
    if result.get("task") == "chat":
        return _turns(result, folder, config)
    if "token_buffer" in digests:
        digest = digests["token_buffer"]
        profile = {"tokens": (result.get("size") or {}).get("tokens")}
        if begun := (result.get("loop") or {}).get("read"):  # its snapshot holds what it wrote, too
            digest, profile = begun["digest"], {"tokens": begun["tokens"]}
        text = result.get("text") or {}
        if config.get("snapshot") and config.get("text"):  # it was read after the snapshot
            digest = digest_document({"token_buffer": digest, "text": config["text"]})
            profile["tokens"] = (profile["tokens"] or 0) + (text.get("read") or 0)
        profile |= _begins(text, config)
    elif asked.is_file():
        lines = asked.read_bytes()
        digest, profile = digest_bytes(lines), {"questions": lines.count(b"\n")}
    elif read := result.get("conversation"):
        source = {"task": result.get("task"), "tokenizer": config.get("tokenizer")}
        return {
            "name": f"conversation of task={result.get('task')}",
            "digest": str(read["digest"])[:32],
            **_source(source),
            "profile": json.dumps({"tokens": read["tokens"]}),
        }
    else:
        return None
    keys = [key for key in ("snapshot", "foreign", "text") if config.get(key)]
    option = (result.get("options") or {}).get("prompt", "")
    source = {key: config.get(key) for key in [*(keys or ["prompt"]), "tokenizer"]}
    return {
        "name": f"prompt {' and '.join(keys) or option}".strip(),
        "digest": digest[:32],
        **_source(source),
        "profile": json.dumps(profile),
    }


def _turns(result: dict[str, Any], folder: Path, config: dict[str, Any]) -> dict[str, str] | None:
    """What was asked in a chat; nothing of one that says nothing of it."""
    try:
        rows = json.loads((folder / "chat.json").read_text("utf-8"))
        asked = [{k: row[k] for k in ("ask", "expect") if row.get(k) is not None} for row in rows]
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    hidden = contents.hidden(config)
    source = {key: config.get(key) for key in ("snapshot", "tokenizer") if config.get(key)}
    return {
        "name": "turns of task=chat",
        "digest": digest_document(asked)[:32],
        **_source({**source, "turns": len(asked) if hidden else asked}),
        "profile": json.dumps({"turns": len(asked)}),
    }


def _begins(text: dict[str, Any], config: dict[str, Any]) -> dict[str, str]:
    """How a prompt begins, and what was read after its snapshot; nothing of what was written or read encrypted."""
    if contents.hidden(config):
        return {}
    said = {"prompt": text.get("prompt"), "read after it": text.get("added")}
    return {k: v if len(v) <= SAID else f"{v[:SAID]}..." for k, v in said.items() if v}
