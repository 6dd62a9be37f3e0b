"""Save formats as a page: size against speed, the table behind it, the claim, commit and restore."""

from typing import Any

from harness.report import plots
from harness.report.html import section

COLUMNS = ["format", "dtype", "runs", "save_s", "raw_write_s", "save_of_raw", "load_s", "raw_read_s",
           "load_of_raw", "map_s", "ratio", "peak_extra_bytes"]  # fmt: skip


def sections(
    rows: list[dict[str, Any]], claim: dict[str, Any], figures: dict[str, Any]
) -> list[dict[str, Any]]:
    """rows: of bench.json. claim: the row of claims.json. figures: commit and restore."""
    return [
        section(
            "Size against speed",
            text="K/V of a real prefill of a model with seeded random weights; the dashed line is a "
            "raw write (or read) of the uncompressed bytes in the same run.",
            panels=pictures(rows),
        ),
        section(
            "Every format",
            text="Medians. save: digest, manifest and fsync included; load: every byte verified. "
            "of raw: raw time over ours. peak: own memory beyond the tensors themselves.",
            columns=COLUMNS,
            rows=[[row[c] for c in COLUMNS] for row in rows],
        ),
        section(
            f"Claim: {claim['verdict']}",
            text=f"{claim['says']} {claim['because']} Conditions: {claim['conditions']}.",
            columns=["figure", "value"],
            rows=[[k.replace("_", " "), v] for k, v in claim["figures"].items()],
        ),
        section(
            "Commit, restore, signature and encryption",
            text="of plain: plain time over the protected one, in pairs of one run.",
            columns=["figure", "value"],
            rows=[[k.replace("_", " "), v] for k, v in figures.items()],
        ),
    ]


def pictures(rows: list[dict[str, Any]]) -> list[str]:
    """Stored share of the K/V over throughput, saving and loading."""
    return [
        _picture(rows, "Saving", "save_s", "raw_write_s"),
        _picture(rows, "Loading, verified", "load_s", "raw_read_s"),
    ]


def _picture(rows: list[dict[str, Any]], title: str, way: str, raw: str) -> str:
    made, (axis,) = plots.figure(plots.WIDTH, 3.8)
    names = list(dict.fromkeys(r["format"] for r in rows))
    dtypes = list(dict.fromkeys(r["dtype"] for r in rows))
    for row in rows:
        if row["format"] == "memory":
            continue  # takes no room on the disk
        speed = row["kv_bytes"] / row[way] / 1e6
        number = names.index(row["format"])
        axis.plot(
            speed, row["ratio"], "os^D"[dtypes.index(row["dtype"]) % 4], markersize=7,
            color=plots.COLOURS[number % 6], markerfacecolor="none" if number > 5 else None,
        )  # fmt: skip
        axis.annotate(
            f"{row['format']} {row['dtype']}", (speed, row["ratio"]), fontsize=7.5,
            color=plots.INK, xytext=(4, 4), textcoords="offset points",
        )  # fmt: skip
    limit = max(r["kv_bytes"] / r[raw] / 1e6 for r in rows)
    axis.axvline(limit, color=plots.INK, linestyle="--", linewidth=1)
    axis.set_xscale("log")
    axis.margins(x=0.2, y=0.1)
    plots.label(axis, title, "MB of K/V per second, logarithmic", "stored bytes / K/V bytes")
    return plots.svg(made)
