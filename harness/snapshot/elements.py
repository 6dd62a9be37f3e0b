"""The 13 elements of inference state (the Big 8+4 and the generation state), in their fixed order."""

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Element:
    """`kept_as`: `tensors` (bytes stored), `document` (JSON stored) or `digest` (weights, not stored)."""

    number: int
    label: str
    name: str
    kept_as: str
    meaning: str


ELEMENTS: tuple[Element, ...] = (
    Element(1, "1", "kv_cache", "tensors", "keys and values of every layer"),
    Element(2, "2", "token_embeddings", "digest", "embedding table"),
    Element(3, "3", "positions", "tensors", "absolute positions per layer, RoPE as loaded"),
    Element(4, "4", "token_buffer", "tensors", "every token id processed, in order"),
    Element(5, "5", "attention_mask", "tensors", "which tokens may be attended to"),
    Element(6, "6", "model_config", "document", "config and generation flags"),
    Element(7, "7", "layer_norm", "digest", "gains, biases and epsilons"),
    Element(8, "8", "attention_weights", "digest", "Q, K, V and O projections"),
    Element(9, "+1", "logits", "tensors", "last forward pass: the proof"),
    Element(10, "+2", "tokenizer", "document", "vocabulary, rules, template, probes"),
    Element(11, "+3", "kv_format", "document", "structural layout and its version"),
    Element(12, "+4", "prompt_meta", "document", "prefix, control tokens, template"),
    Element(13, "13", "generation", "tensors", "generator state and sampler settings"),
)

DIGEST = "digest of the element"  # covers its tensors and its document: the manifest's
MODEL = ("token_embeddings", "model_config", "layer_norm", "attention_weights", "tokenizer")
BY_NAME = {e.name: e for e in ELEMENTS}
BY_NUMBER = {e.number: e for e in ELEMENTS}


def called(element: str, field: str) -> str:
    """What a field of an element's document is called. Of an element that is kept as a digest, that is the
    digest of the weights alone, and another than `DIGEST`. element: its name, its label before it or not."""
    known = BY_NAME.get(element.rpartition(" ")[2])
    weights = known and known.kept_as == "digest" and field.rpartition(" ")[2] == "digest"
    return f"{field} of the weights" if weights else field


def changed(what: str, saved: object, found: object) -> str:
    """That a field is another one now than when it was saved."""
    many = what == "weights" or what.endswith("keys and values")
    was, now = ("were", "are") if many else ("was", "is")
    before, after = ("not set" if str(v) == "None" else v for v in (saved, found))
    return f"{what} {was} {before}, {now} {after}"


def spoken(text: str) -> str:
    """`text` with `+1 logits`, as records have it, in the one numbering that people read: `element 9
    logits`."""
    for element in ELEMENTS:
        text = re.sub(
            rf"(element )?(?<!\S){re.escape(element.label)} {element.name}\b",
            f"element {element.number} {element.name}",
            text,
        )
    return text
