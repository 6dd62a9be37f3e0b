"""What the documents of a snapshot must look like before anything reads them.

A key may be missing and others may be there; what is there has the type that its readers expect.
"""

import re
from typing import Any

REQUIRED = ("kv_format", "generation")
WHOLE, TEXT, FLAG, OBJECT = "a whole number", "text", "true or false", "an object"
NUMBER, LIST = "a number", "a list"
_TYPES = {
    WHOLE: lambda v: type(v) is int and 0 <= v < 1 << 40,
    NUMBER: lambda v: type(v) in (int, float),
    TEXT: lambda v: isinstance(v, str),
    FLAG: lambda v: isinstance(v, bool),
    OBJECT: lambda v: isinstance(v, dict),
    LIST: lambda v: isinstance(v, list),
}
# a dict: keys and their rules; a list: its items' rule; (rule,): or null
_LAYER = {
    "index": WHOLE, "kind": TEXT, "window": (WHOLE,), "seen": WHOLE, "segments": [WHOLE],
    "recurrent": [TEXT], "received": FLAG,
}  # fmt: skip
_SAMPLER = {
    "name": TEXT, "temperature": NUMBER, "repetition_penalty": NUMBER, "renormalize_logits": FLAG,
    "remove_invalid_values": FLAG, "stop": [TEXT], "eos_token_id": ([WHOLE],),
    "bad_words_ids": [[WHOLE]], "suppress_tokens": [WHOLE], "begin_suppress_tokens": [WHOLE],
    "sequence_bias": [LIST], "exponential_decay_length_penalty": ([NUMBER],),
    **dict.fromkeys(("top_k", "no_repeat_ngram_size", "min_length", "min_new_tokens"), WHOLE),
    **dict.fromkeys(
        ("top_p", "min_p", "top_h", "typical_p", "epsilon_cutoff", "eta_cutoff"), (NUMBER,)
    ),
}  # fmt: skip
RULES: dict[str, Any] = {
    "kv_format": {
        "version": WHOLE, "dtype": TEXT, "layout": TEXT, "attention_implementation": TEXT,
        "libraries": OBJECT, "layers": [_LAYER],
    },
    "generation": {"sampler": (_SAMPLER,), "steps": WHOLE, "begun": (WHOLE,)},
    "prompt_meta": {
        "policy": TEXT, "prefix_ids": [WHOLE], "prefix": TEXT, "special_tokens": [OBJECT],
        "turns": [OBJECT], "asked": [WHOLE], "ends": [WHOLE], "text_digest": TEXT, "buffer": ({"tokens": WHOLE, "digest": TEXT},),
    },
    "model_config": {"config": OBJECT, "generation": (OBJECT,)},
    "tokenizer": {"size": (WHOLE,), "special_tokens": (OBJECT,)},
    "proof": {"logits": NUMBER, "kv": NUMBER, "device": TEXT},
    "waived": {"differences": [dict.fromkeys(("element", "field", "saved", "found"), TEXT)]},
}  # fmt: skip
_NEEDED = {
    "kv_format": ("layers", "libraries", "attention_implementation"),
    "proof": ("logits", "kv"),
    "waived": ("differences",),
}
_SHOWN = 20


def faults(documents: dict[str, Any]) -> list[str]:
    """Every value that is not what it should be, as plain sentences."""
    problems = [f"document '{name}' is missing" for name in REQUIRED if name not in documents]
    for name, document in documents.items():
        if not isinstance(document, dict):
            problems.append(f"document '{name[:40]}' is not {OBJECT}")
            continue
        missing = [k for k in _NEEDED.get(name, ()) if k not in document]
        problems += [f"document '{name}' lacks '{key}'" for key in missing]
        problems += _wrong(document, RULES.get(name, {}), name)
    return problems[:_SHOWN]


def _wrong(value: Any, rule: Any, where: str) -> list[str]:
    if isinstance(rule, tuple):
        return [] if value is None else _wrong(value, rule[0], where)
    if isinstance(rule, str):
        return [] if _TYPES[rule](value) else [f"{where} is not {rule}"]
    if isinstance(rule, list):
        if not isinstance(value, list):
            return [f"{where} is not a list"]
        problems: list[str] = []
        for number, item in enumerate(value):
            problems += _wrong(item, rule[0], f"{where}[{number}]")
            if len(problems) > _SHOWN:
                break
        return problems
    if not isinstance(value, dict):
        return [f"{where} is not {OBJECT}"]
    return [
        fault
        for key, inner in rule.items()
        if key in value
        for fault in _wrong(value[key], inner, f"{where}.{key}")
    ]


def frame(manifest: dict[str, Any]) -> list[str]:
    """Header fields of a manifest that are of the right type and still not what they should be."""
    problems = []
    for key in ("id", "parent", "salt"):
        value = manifest.get(key)
        if not (value is None and key != "id") and not _is_hex(value):
            problems.append(f"header field '{key}' is not 64 hex digits")
    if not isinstance(manifest.get("sampler"), dict | None):
        problems.append("header field 'sampler' is not an object")
    positions = manifest.get("next_positions")
    if isinstance(positions, list) and not all(type(p) is int for p in positions):
        problems.append("header field 'next_positions' holds something that is no number")
    return problems


def _is_hex(value: Any) -> bool:
    return isinstance(value, str) and re.fullmatch("[0-9a-f]{64}", value) is not None


def layers_configured(documents: dict[str, Any]) -> int | None:
    """How many layers the model's cache has, where its config tells it for sure: layers that share
    the keys of others may have none, and an encoder's are not the decoder's."""
    config = documents.get("model_config", {}).get("config", {})
    text = config.get("text_config") if "num_hidden_layers" not in config else None
    config = text if isinstance(text, dict) else config
    unsure = ("num_kv_shared_layers", "is_encoder_decoder", "encoder", "num_nextn_predict_layers")
    count = config.get("num_hidden_layers", config.get("n_layer"))
    if type(count) is not int or any(config.get(key) for key in unsure):
        return None
    kinds = config.get("layer_types")
    return count if kinds is None or (isinstance(kinds, list) and len(kinds) == count) else None
