"""A run's model as MLflow's logged model: one for all runs of it, told apart by the digests of its elements."""

import hashlib
from pathlib import Path
from typing import Any, NamedTuple

from harness.snapshot.elements import MODEL

SHAPE = ("architecture", "layers", "heads", "kv_heads", "hidden_size", "parameters")
NOTE = "mlflow.note.content"


class Told(NamedTuple):
    """What a logged model is made of; its name ends in its digest."""

    name: str
    tags: dict[str, str]
    params: dict[str, str]


def named(result: dict[str, Any]) -> str | None:
    """The name of a run's logged model, which ends in its digest; None where it used none."""
    told = of(result)
    return told.name if told else None


def read(result: dict[str, Any]) -> dict[str, Any]:
    """A `result.json` with what was known to a restore that was refused in the place of what a run has."""
    return {**result, **(result.get("known") or {})}


def of(result: dict[str, Any]) -> Told | None:
    """The model of a run, of what its `result.json` says; None where it used none."""
    result = read(result)
    digests = {e["name"]: e["digest"] for e in result.get("elements") or [] if e["name"] in MODEL}
    if len(digests) < len(MODEL):
        return None
    told = result.get("model") or {}
    plain = Path(str(told.get("name") or told.get("option"))).name
    safe = "".join(c if c.isalnum() or c in "-_" else "-" for c in plain)[:60]
    identity = hashlib.sha256("".join(digests[name] for name in MODEL).encode()).hexdigest()
    tags = {f"element.{name}": digest for name, digest in digests.items()}
    source = {k: str(v) for k, v in told.items() if v and k not in SHAPE}
    params = {k: str(told[k]) for k in SHAPE if told.get(k)} | _dtype(result)
    name = f"{safe}-{identity[:12]}"
    note = {NOTE: _described(name, params)}
    return Told(name, {**tags, "identity": identity, **source, **note}, params)


def _dtype(result: dict[str, Any]) -> dict[str, str]:
    dtype = (result.get("environment") or {}).get("dtype")
    return {"dtype": str(dtype)} if dtype else {}


def _described(name: str, params: dict[str, str]) -> str:
    """Its shape in a sentence, and how its runs are found."""
    shape = ", ".join(f"{key.replace('_', ' ')} {value}" for key, value in params.items())
    return (
        f"**{name}**: {shape or 'its shape was not recorded'}.\n\nIts name ends in the digest of its weights', its "
        "configuration's and its tokenizer's digests, which are its tags. All runs that read these very ones, with "
        f"their figures: search the runs for `tags.model = '{name}'`."
    )
