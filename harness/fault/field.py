"""Bugs that the field really had, by class; a fault names its class, its YAML cites the reports.

Each class was reported by users of other systems as wrong output after a cache was restored,
reused, moved, pruned or quantized. What a state of this harness cannot have says why.
"""

KNOWN: dict[str, str] = {
    "recurrent_ignored": "recurrent state ignored when several tokens are fed at once",
    "recurrent_ahead": "recurrent state not rolled back with the K/V",
    "recurrent_foreign": "recurrent state of another position or request",
    "recurrent_behind": "recurrent checkpoint one token away",
    "scales": "quantization scales not stored, or read with the wrong stride",
    "indexer": "indexer state of sparse attention lost",
    "draft": "draft model's cache lost",
    "block_order": "block written over another block; suffix taken for prefix",
    "transfer": "failed transfer counted as a hit",
    "blocks_foreign": "blocks of another prompt; only the tail of the past seen",
    "race": "two restores race",
    "ring": "ring buffer out of order after a trim",
    "offset_rows": "offset = rows kept after an eviction",
    "offset_lost": "offset not restored, or changed in place through an alias",
    "stale_tail": "stale tail behind a shorter offset; trim by a constant",
    "crop_zero": "crop(0) keeps everything",
    "rope_delta": "multi-axis RoPE delta lost",
    "adapter": "image or adapter missing from the identity",
    "weights": "weights replaced in place under the same name",
    "heads": "head layout changed on the way",
    "layers": "layers shifted between partitions",
    "logprobs": "stale logprobs on cached positions",
    "nothing": "the restore silently does nothing",
    "rope_switch": "RoPE factors switch at a length and the cache keeps the old ones",
}

CANNOT: dict[str, str] = {
    "draft": "a state holds one model; a draft model would be a second state",
    "rope_delta": "a state counts positions along one axis; models that read images are not captured",
}


def coverage(tried: set[str]) -> str:
    """One line: how many of the known classes the faults `tried` (their class names) stand for."""
    missing = [name for name in KNOWN if name not in tried]
    said = [f"{KNOWN[name]} ({CANNOT.get(name, 'not tried')})" for name in missing]
    rest = f"; without: {'; '.join(said)}" if said else ""
    return f"Known field bugs: {len(KNOWN) - len(missing)} of {len(KNOWN)}{rest}"
