"""Save formats as a page: size against speed, the table behind it, the claim, commit and restore."""

from html import escape
from typing import Any

from harness.report.html import grouped, section
from harness.report.picture import plots

HEADS = {
    "format": "format", "dtype": "dtype", "runs": "runs", "save_s": "save, s",
    "raw_write_s": "raw write, s", "save_of_raw": "save, of raw", "load_s": "load, s",
    "raw_read_s": "raw read, s", "load_of_raw": "load, of raw", "map_s": "map, s",
    "ratio": "stored over K/V bytes", "peak_extra_bytes": "peak, bytes",
}  # fmt: skip
SOLID = 6  # formats with a filled marker; further ones are hollow
MARKS = "os^D"  # one per dtype


def sections(
    rows: list[dict[str, Any]], claim: dict[str, Any], figures: dict[str, Any]
) -> list[dict[str, Any]]:
    """rows: of bench.json. claim: the row of claims.json. figures: commit and restore."""
    return [
        section(
            "Size against speed",
            text="K/V of a real prefill of a model with seeded random weights; the dashed line is a "
            "raw write (or read) of the uncompressed bytes in the same run.",
            legend=_legend(rows),
            panels=pictures(rows),
        ),
        section(
            "Every format",
            text="Medians. save: digest, manifest and fsync included; load: every byte verified. "
            "of raw: raw time over ours. peak: own memory beyond the tensors themselves.",
            columns=list(HEADS.values()),
            rows=[[row[c] for c in HEADS] for row in rows],
        ),
        section(
            f"Claim: {claim['verdict']}",
            text=f"{claim['says']} {claim['because']} Conditions: {claim['conditions']}.",
            columns=["figure", "value"],
            rows=[[k.replace("_", " "), grouped(v)] for k, v in claim["figures"].items()],
        ),
        section(
            "Commit, restore, signature and encryption",
            text="of plain: plain time over the protected one, in pairs of one run.",
            columns=["figure", "value"],
            rows=[[k.replace("_", " "), grouped(v)] for k, v in figures.items()],
        ),
    ]


def pictures(rows: list[dict[str, Any]]) -> list[str]:
    """Stored share of the K/V over throughput, saving and loading."""
    return [
        _picture(rows, "Saving", "save_s", "raw_write_s"),
        _picture(rows, "Loading, verified", "load_s", "raw_read_s"),
    ]


def _series(rows: list[dict[str, Any]]) -> tuple[list[str], list[str]]:
    """The formats that take room on a disk, each with a colour, and the dtypes, each with a marker."""
    shown = [r for r in rows if r["format"] != "memory"]
    names, dtypes = (list(dict.fromkeys(r[key] for r in shown)) for key in ("format", "dtype"))
    return names, dtypes


def _legend(rows: list[dict[str, Any]]) -> str:
    names, dtypes = _series(rows)
    dot = ("\u25cf", "\u25cb")  # filled, hollow
    said = "".join(
        f'<span><b style="color:{plots.COLOURS[n % SOLID]}">{dot[n >= SOLID]}</b> '
        f"{escape(name)}</span>"
        for n, name in enumerate(names)
    )
    marks = zip(dtypes, MARKS, strict=False)
    return said + "".join(f"<span>{plots.SHAPES[m]} {escape(d)}</span>" for d, m in marks)


def _picture(rows: list[dict[str, Any]], title: str, way: str, raw: str) -> str:
    made, (axis,) = plots.figure(plots.WIDTH, 3.8)
    names, dtypes = _series(rows)
    for row in rows:
        if row["format"] == "memory":
            continue  # takes no room on the disk
        speed = row["kv_bytes"] / row[way] / 1e6
        number = names.index(row["format"])
        axis.plot(
            speed, row["ratio"], MARKS[dtypes.index(row["dtype"]) % len(MARKS)], markersize=7,
            color=plots.COLOURS[number % SOLID],
            markerfacecolor="none" if number >= SOLID else None,
        )  # fmt: skip
    limit = max(r["kv_bytes"] / r[raw] / 1e6 for r in rows)
    axis.axvline(limit, color=plots.INK, linestyle="--", linewidth=1)
    axis.set_xscale("log")
    plots.plain(axis.xaxis)
    axis.margins(x=0.1, y=0.1)
    plots.label(axis, title, "MB of K/V per second, logarithmic", "stored bytes / K/V bytes")
    return plots.svg(made)
