"""How lossy a quantizer was, per layer and head, as a block of the report."""

from typing import Any

from harness.report.run.kept_tokens import share

MANY = 32  # layers and heads; more of them are folded


def section_of(coded: dict[str, Any], full: int | None = None) -> dict[str, Any]:
    """The table of errors, with what it saved. full: bytes of K/V of the full cache, where tokens were dropped too."""
    bytes_ = coded["kv_bytes"]
    told = f"{share(bytes_, coded['plain_bytes'], 'bytes of K/V')}"
    if full and full != coded["plain_bytes"]:
        told += f" of the tokens that were kept, {bytes_ / full:.1%} of the {full:,} that the full cache takes"
    columns = ["layer", "head", "key error", "value error", "largest of keys", "largest of values"]
    return {
        "title": f"Quantization: {coded['quantizer']}",
        "text": f"{told}, coded in "
        f"{coded['seconds']:.3g} s. Errors are root mean squares, as shares of the keys' and the "
        "values' own; the largest are absolute.",
        "columns": columns,
        "fold": len(coded["layers"]) > MANY,
        "rows": [
            [
                row["layer"], row["head"], f"{row['key_error']:.3%}", f"{row['value_error']:.3%}",
                row["key_max_error"], row["value_max_error"],
            ]
            for row in coded["layers"]
        ],
    }  # fmt: skip
