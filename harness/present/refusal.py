"""What a refused restore says first: what does not fit, without the place where it lies."""

import re
from collections.abc import Mapping
from typing import Any

from harness.present.messages import coded, worded
from harness.results.reason import Code, code_of
from harness.snapshot.elements import BY_NAME, called, changed, spoken

MEANT: dict[str, str] = {  # what a refusal means, without where it lies and what it lists
    Code.SNAPSHOT_INVALID: "The snapshot is not valid, nothing was restored from it",
    Code.STATE_INVALID: "The state cannot be saved, nothing was written",
    Code.RESTORE_REFUSED: "What was saved is not what is loaded now",
    Code.PROOF_FAILED: "What was saved fails its proof: on this model its K/V do not reproduce its stored logits",
    Code.WAIVED_BEFORE: "What was saved went on although differences were waived: it is no model's own",
}
REFUSED = "refused"
PURPOSE = "Damaged on purpose by fault="  # begins the remedy of what a fault did
DAMAGE = re.compile(r"does not match its digest|is missing|truncated|has \d+ bytes, the manifest")
WORDS = {  # of what is loaded and is not what was saved with: nothing else is told in a digest
    "token_embeddings": "the embedding table that is loaded is not",
    "layer_norm": "the norms of the model that is loaded are not",
    "attention_weights": "the attention weights of the model that is loaded are not",
    "model_config": "the configuration of the model that is loaded is not",
    "tokenizer": "the tokenizer that is loaded is not",
}
PARTS = {  # of the element model_config, which holds more than the configuration
    "other_weights": "other weights (MLP, head, ...) of the model that is loaded are not",
    "buffers": "the buffers of the model that is loaded are not",
    "adapters": "the adapters of the model that is loaded are not",
}


def sentences(result: dict[str, Any]) -> tuple[str, ...]:
    """Of a `result.json` that was refused, the first thing that does not fit: in words, then in its figures (which
    element, what was saved and what came back), and in a second sentence what that means, after whether it was done
    on purpose; none of any other, and where nothing of the kind is known."""
    if result.get("verdict") != REFUSED:
        return ()
    if coded():
        return (worded(result["reason"]),)
    cause = result.get("diagnosis") or {}
    told = [str(cause.get("evidence") or "")]
    told += [_different(row) for row in result.get("differences") or []]
    told += map(str, result.get("faults") or [])
    known = list(dict.fromkeys(filter(None, told)))
    if not known:
        return ()
    first, *others = known
    element = str(cause.get("element"))
    words, figures = in_words(result)
    if not words and any(DAMAGE.search(str(fault)) for fault in result.get("faults") or []):
        words = "the snapshot is damaged"
    number = f"element {BY_NAME[element].number} {element}" if element in BY_NAME else ""
    if number and element not in first:
        first = f"{number}: {first}"
    if figures:
        first = f"{number}; {figures}" if number else figures
    first_line = worded(result["reason"]).partition("\n")[0].rstrip(":.")
    meant = MEANT.get(code_of(result["reason"]), first_line)
    meant = f"{meant[:1].upper()}{meant[1:]}{f': {others[0]}' if others else ''}."
    more = f" And {len(others) - 1} more." if others[1:] else ""
    fault = str((result.get("options") or {}).get("fault", "none"))
    remedy = str(result.get("remedy") or "")
    purpose = f"{PURPOSE}{fault}. " * remedy.startswith(f"{PURPOSE}{fault},")
    first = first.rstrip(".")
    first = f"{words} ({first})" if words else first
    return f"{kept_out(result)}{first}.", f"{purpose}{meant}{more}"


def kept_out(result: Mapping[str, Any]) -> str:
    """The first words on what was refused, be it to restore a state or to save one."""
    unsaved = code_of(result.get("reason")) == Code.STATE_INVALID
    return "Not saved: " if unsaved else "Not restored: "


def in_words(result: dict[str, Any]) -> tuple[str, str]:
    """What went wrong as one would say it: whose weights or whose tokenizer are others, or what a diagnosis found
    that had to compute K/V anew, and of that where it begins; empty where what does not fit says it itself."""
    cause = result.get("diagnosis") or {}
    rows = [row for row in result.get("differences") or [] if not row["field"].startswith("proof")]
    if rows:
        name = str(rows[0]["element"]).rpartition(" ")[2]
        if (name, rows[0]["field"]) == ("generation", "generator"):
            return (
                "the sampler's generator is not where it was saved, and would draw other tokens",
                "",
            )
        part = rows[0]["field"].partition(".")[0].rpartition(" ")[2]
        known = WORDS.get(name)
        if name == "model_config":
            known = PARTS.get(part, known)
        known = "the model that is loaded is not" if rows[0]["field"] == "weights" else known
        return (f"{known} what it was saved with" if known else ""), ""
    found, between, where = str(cause.get("evidence") or "").partition("; first at ")
    words = found.replace("holds the K/V of", "came back with the keys and values of")
    return (words, f"first at {where}") if between else ("", "")


def _different(row: dict[str, Any]) -> str:
    """A row of `differences` in the words of a refusal."""
    what = called(row["element"], row["field"])
    return f"{spoken(row['element'])}: {changed(what, row['saved'], row['found'])}"
