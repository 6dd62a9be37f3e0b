"""How lossy a quantizer was, per layer and head, as a block of the report."""

from typing import Any


def section_of(coded: dict[str, Any]) -> dict[str, Any]:
    """The table of errors, with what it saved."""
    share = coded["kv_bytes"] / coded["plain_bytes"]
    columns = ["layer", "head", "key error", "value error", "largest of keys", "largest of values"]
    return {
        "title": f"Quantization: {coded['quantizer']}",
        "text": f"{coded['kv_bytes']:,} of {coded['plain_bytes']:,} bytes of K/V ({share:.1%}), coded in "
        f"{coded['seconds']:.3g} s. Errors are root mean squares, as shares of the keys' and the "
        "values' own; the largest are absolute.",
        "columns": columns,
        "rows": [
            [
                row["layer"], row["head"], f"{row['key_error']:.3%}", f"{row['value_error']:.3%}",
                row["key_max_error"], row["value_max_error"],
            ]
            for row in coded["layers"]
        ],
    }  # fmt: skip
