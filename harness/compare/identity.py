"""Identity, element by element: is what was saved what is loaded now? Reports every difference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import printable
from harness.snapshot.elements import BY_NAME, called, changed, spoken
from harness.snapshot.tokenizer import NO_ID

SHAPE = ("num_hidden_layers", "hidden_size", "num_attention_heads", "num_key_value_heads",
         "head_dim", "intermediate_size", "vocab_size")  # fmt: skip
COMPARED = (
    "token_embeddings", "positions", "model_config", "layer_norm", "attention_weights", "tokenizer",
)  # fmt: skip
LATER = {("model_config", "buffers")}  # older snapshots do not say it
EARLIER = "waived earlier: "


@dataclass(frozen=True)
class Difference:
    """One field of one element that differs between the snapshot and what is loaded."""

    element: str
    field: str
    saved: Any
    found: Any

    def __str__(self) -> str:
        what = called(self.element, self.field)
        told = changed(what, _short(self.saved), _short(self.found))
        return f"{spoken(self.element)}: {told}"

    def row(self) -> dict[str, Any]:
        """JSON-able."""
        return {k: _short(getattr(self, k)) for k in ("element", "field", "saved", "found")}


def waived_earlier(
    documents: Mapping[str, Any], but: Sequence[Difference] = ()
) -> list[Difference]:
    """What was waived when the state of `documents`, or one that it continues, was restored. but: the
    differences of now, which are not said twice."""
    now = [difference.row() for difference in but]
    rows = documents.get("waived", {}).get("differences", ())
    keys = ("element", "field", "saved", "found")
    values = [[printable(row.get(key, "")) for key in keys] for row in rows if row not in now]
    return [Difference(element, EARLIER + field, *rest) for element, field, *rest in values]


def told(waived: Sequence[Difference]) -> str:
    """One sentence for a person; empty where nothing was waived."""
    if not waived:
        return ""
    more = f", and {len(waived) - 1} more" if len(waived) > 1 else ""
    return f"waived, so at best drifted: {waived[0]}{more}"


def differences(
    saved: Mapping[str, Any], live: Mapping[str, Any], dtype: str, device_dtype: str
) -> list[Difference]:
    """All fields that differ, those that explain others first. saved, live: documents by element name;
    dtypes: of K/V and of model. What was not recorded yet when `saved` was written is not compared."""
    mismatches = []
    for name in COMPARED:
        before, now = saved.get(name), live.get(name)
        if isinstance(before, Mapping) and isinstance(now, Mapping):
            now = {k: v for k, v in now.items() if k in before or (name, k) not in LATER}
        mismatches += element(name, before, now)
    if dtype != device_dtype:
        mismatches.append(Difference("1 kv_cache", "dtype", dtype, device_dtype))
    return sorted(mismatches, key=_rank)


def fits(saved: Mapping[str, Any], live: Mapping[str, Any]) -> bool:
    """Whether a model of the config `live` could take keys and values of one of `saved`, by layers, KV heads and
    their width; what a config does not say excludes nothing."""
    pairs = zip(_past(saved), _past(live), strict=True)
    return all(a == b or None in (a, b) for a, b in pairs)


def _past(config: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    inner = config.get("text_config")
    known = {**config, **inner} if isinstance(inner, Mapping) else config
    layers, heads, wide = (
        known.get(new) or known.get(old)
        for new, old in (
            ("num_hidden_layers", "n_layer"),
            ("num_attention_heads", "n_head"),
            ("hidden_size", "n_embd"),
        )
    )
    width = known.get("head_dim") or (wide // heads if wide and heads else None)
    return layers, known.get("num_key_value_heads") or heads, width


def _rank(difference: Difference) -> int:
    """Weights in another dtype have other digests, another architecture other everything."""
    last = difference.field.rpartition(".")[2]
    words = NO_ID in (difference.saved, difference.found)
    ranks = (difference.field == "dtype", last == "model_type", last in SHAPE, words)
    return ranks.index(True) if any(ranks) else len(ranks)


def wordless(mismatches: Sequence[Difference]) -> str:
    """That a tokenizer is on one side alone, in a sentence, where nothing else differs; empty elsewhere."""
    if not mismatches or any(row.element.rpartition(" ")[2] != "tokenizer" for row in mismatches):
        return ""
    saved, found = ({row.saved for row in mismatches}, {row.found for row in mismatches})
    if NO_ID in saved:
        return "It was saved without a tokenizer: harness.wrap(model), which takes none either, is all it takes."
    if NO_ID in found:
        return (
            "It was saved with a tokenizer, and here there is none: harness.wrap(model, tokenizer)."
        )
    return ""


def explained(mismatches: Sequence[Difference]) -> str:
    """How the first of several differences explains the rest, or nothing where it does not."""
    if said := wordless(mismatches):
        return said
    if len(mismatches) < 2 or _rank(mismatches[0]) >= 3:
        return ""
    if mismatches[0].field == "dtype":
        return f"Weights in another dtype have other digests; dtype={mismatches[0].saved} may be all it takes."
    return f"It is another architecture, which explains the other {len(mismatches) - 1}."


def element(name: str, saved: Any, live: Any) -> list[Difference]:
    """All fields that differ between two documents of the element `name`."""
    label = f"{BY_NAME[name].label} {name}"
    old, new = dict(_flat(saved)), dict(_flat(live))
    return [
        Difference(label, field, old.get(field), new.get(field))
        for field in sorted(set(old) | set(new))
        if old.get(field) != new.get(field)
    ]


def _flat(value: Any, prefix: str = "") -> list[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return [
            pair
            for key, inner in value.items()
            for pair in _flat(inner, f"{prefix}.{key}" if prefix else str(key))
        ]
    return [(prefix or "value", value)]


def _short(value: Any) -> str:
    text = str(value)
    if len(text) == 64 and all(c in "0123456789abcdef" for c in text):
        return text[:12]
    return text if len(text) <= 60 else text[:57] + "..."
