"""A second run with another model than the record's: said first, since everything else follows from it."""

from collections.abc import Iterator, Mapping
from typing import Any

from harness.snapshot.elements import BY_NAME, MODEL
from harness.task.audit.finding import Finding

COMPUTED = "kv_cache"  # an element that another model gives otherwise
CONSEQUENCE = "it was run again with another model than the record's, and this follows from it"
WEIGHTS = (
    "token_embeddings",
    "layer_norm",
    "attention_weights",
)  # no version of a library changes them
SHOWN = 12  # characters of a digest


def findings(
    recorded: Mapping[str, Any], again: Mapping[str, Any], same: bool
) -> Iterator[Finding]:
    """The elements of the model whose digests are others in the second run, one finding for all. None where the K/V
    are the same: there digests were edited, and the weights are the record's own. same: nothing else that decides the
    bits has changed."""
    was, now = (
        {row["name"]: str(row["digest"]) for row in result.get("elements") or []}
        for result in (recorded, again)
    )
    others = [n for n in (MODEL if same else WEIGHTS) if n in was and n in now and was[n] != now[n]]
    if not others or was.get(COMPUTED) == now.get(COMPUTED):
        return
    numbered = [f"{BY_NAME[name].number} {name}" for name in others]
    more = f" (and {', '.join(numbered[1:])})" if numbered[1:] else ""
    yield Finding(
        f"digest of the model's element {numbered[0]}{more}",
        was[others[0]][:SHOWN],
        now[others[0]][:SHOWN],
        "what was loaded is not the model of the record: say where its weights are, model=path model.path=DIR",
    )
