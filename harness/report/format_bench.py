"""Save formats as a page: which is fastest and smallest, size against speed, the memory each takes, the table behind
it, the claim, commit and restore."""

from html import escape
from typing import Any

from harness import machine
from harness.report.html import cell, grouped, section
from harness.report.names import plain
from harness.report.picture import plots

HEADS = {
    "format": "format", "dtype": "dtype", "runs": "rounds", "save_s": "save, ms",
    "raw_write_s": "raw write, ms", "save_of_raw": "save, of raw", "load_s": "load, ms",
    "raw_read_s": "raw read, ms", "load_of_raw": "load, of raw", "map_s": "map, ms",
    "ratio": "stored over K/V bytes", "peak_extra_bytes": "extra memory",
}  # fmt: skip
FIGURES = {
    "one_sequence_kv_bytes": "one sequence: bytes of keys and values",
    "one_sequence_save_of_raw": "one sequence: save, of a raw write",
    "one_sequence_load_of_raw": "one sequence: load, of a raw read",
    "one_sequence_map_s": "one sequence: map, ms",
    "context": "tokens restored, and recomputed",
    "restore_to_first_token_s": "restore, to the first token, ms",
    "recompute_to_first_token_s": "recompute, to the first token, ms",
    "restore_speedup": "times as fast to restore",
    "commit_tokens": "tokens that a commit adds",
    "full_save_bytes": "bytes of a full save",
    "commit_bytes": "bytes of the commit",
    "commit_share": "commit, of a full save",
    "signed_save_of_plain": "signed save, of plain",
    "signed_load_of_plain": "signed load, of plain",
    "encrypted_save_of_plain": "encrypted save, of plain",
    "encrypted_load_of_plain": "encrypted load, of a plain one into memory",
    "encrypted_load_of_mapped": "encrypted load, of a plain one that is mapped",
    "encrypted_load_of_fresh_memory": "encrypted load, of filling as much fresh memory",
    "map_save_s": "plain save, ms", "map_load_s": "plain load, mapped, ms",
    "read_save_s": "plain save again, ms", "read_load_s": "plain load into memory, ms",
    "signed_save_s": "signed save, ms", "signed_load_s": "signed load, ms",
    "encrypted_save_s": "encrypted save, ms", "encrypted_load_s": "encrypted load, ms",
    "memory_s": "filling as much fresh memory, ms",
}  # fmt: skip
SOLID = 6  # formats with a filled marker; further ones are hollow
MARKS = "os^D"  # one per dtype
NOWHERE = "memory"  # keeps nothing on a disk

Row = dict[str, Any]


def conclusions(rows: list[Row], rounds: int) -> list[str]:
    """A line per dtype: which format saves fastest, loads fastest, is smallest, and what memory they take."""
    return [
        _conclusion(dtype, [r for r in rows if r["dtype"] == dtype], rounds)
        for dtype in dict.fromkeys(r["dtype"] for r in rows)
    ]


def _conclusion(dtype: str, rows: list[Row], rounds: int) -> str:
    shown = [r for r in rows if r["format"] != NOWHERE]
    small = min(shown, key=lambda r: r["ratio"])
    least, most = (pick(shown, key=lambda r: r["peak_extra_bytes"]) for pick in (min, max))
    peaks = [f"{machine.human(r['peak_extra_bytes'])} ({r['format']})" for r in (least, most)]
    size = machine.human(shown[0]["kv_bytes"])
    return (
        f"{size} of K/V in {dtype}: {_fastest(shown, 'save', rounds)}; {_fastest(shown, 'load', rounds)}; "
        f"{small['format']} is smallest ({small['ratio']:.2f} of the K/V's bytes); extra memory at its peak from "
        f"{' to '.join(peaks)}."
    )


def _fastest(rows: list[Row], kind: str, rounds: int) -> str:
    """`torch saves fastest (12 ms)`, where it did so in every round; in most of them is said with who was first in the
    others; else nobody is named."""
    wins = {r["format"]: r[f"{kind}_first"] for r in rows if r[f"{kind}_first"]}
    took = {r["format"]: machine.seconds(r[f"{kind}_s"]) for r in rows}
    first, *others = sorted(wins, key=lambda name: -wins[name])
    if not others:
        return f"{first} {kind}s fastest ({took[first]})"
    many = machine.many(rounds, "round")
    if 2 * wins[first] > rounds:
        said = f"{first} {kind}s fastest in {wins[first]} of {many} ({took[first]}), "
    else:
        said, others = f"none {kind}s fastest in most of {many}: ", [first, *others]
    return said + ", ".join(f"{name} in {wins[name]} ({took[name]})" for name in others)


def sections(rows: list[Row], claim: Row, figures: Row, drawn: bool) -> list[Row]:
    """rows: of bench.json. claim: the row of claims.json. figures: commit and restore. drawn: whether the
    weights were drawn at random, by the seed."""
    weights = "seeded random weights" if drawn else "the model's own weights"
    return [
        section(
            "Size against speed",
            text=f"K/V of a real prefill of random token ids, by {weights}; the dashed line is a "
            "raw write (or read) of the uncompressed bytes in the same run. Further right is faster, lower is smaller.",
            legend=_legend(rows),
            panels=pictures(rows),
        ),
        section(
            "Extra memory at its peak",
            text="What a save or a load takes of this process's own memory beyond the tensors themselves, the larger of "
            "the two, sampled every millisecond, once what a format prepares for good (imports, threads) is there; pages of mapped files are not counted.",
            panels=[_peaks(some, dtype) for dtype, some in _by_dtype(rows).items()],
        ),
        section(
            "Every format",
            text="Medians of rounds in which the formats take turns, after a first time of each that is not counted "
            "(one round: timed that first time alone, being slow). save: digest, manifest and fsync included; load: "
            "every byte verified; map: opened, nothing read. of raw: raw time over ours, 1 is as fast. memory keeps nothing on "
            "a disk and is gone with the process, so it is never called the fastest or the smallest.",
            columns=list(HEADS.values()),
            rows=[[_shown(c, row[c]) for c in HEADS] for row in rows],
        ),
        section(
            f"The founding claim: {claim['verdict']}",
            text=f"{claim['says']} {claim['because']} Conditions: {claim['conditions']}.",
            columns=["figure", "value"],
            rows=[[plain(k), grouped(v)] for k, v in claim["figures"].items()],
        ),
        section(
            "Commit, restore, signature and encryption",
            text="Medians after a first time that is not counted. of plain: plain time over the protected one, in pairs "
            "of one run, 1 is as fast.",
            columns=["figure", "value"],
            rows=[[FIGURES[k], _shown(k, v)] for k, v in figures.items()],
        ),
    ]


def pictures(rows: list[Row]) -> list[str]:
    """Stored share of the K/V over throughput, saving and loading."""
    return [
        _picture(rows, "Saving", "save_s", "raw_write_s"),
        _picture(rows, "Loading, verified", "load_s", "raw_read_s"),
    ]


def _shown(column: str, value: Any) -> Any:
    """Times in milliseconds, memory in its unit, whole numbers in groups of three digits."""
    if column == "peak_extra_bytes":
        return cell(machine.human(value), kind="n")
    return value * 1e3 if column.endswith("_s") else grouped(value)


def _by_dtype(rows: list[Row]) -> dict[str, list[Row]]:
    made: dict[str, list[Row]] = {}
    for row in rows:
        made.setdefault(row["dtype"], []).append(row)
    return made


def _peaks(rows: list[Row], dtype: str) -> str:
    values = [row["peak_extra_bytes"] / 2**20 for row in rows]
    return plots.bars([row["format"] for row in rows], values, dtype, "MiB")


def _series(rows: list[Row]) -> tuple[list[str], list[str]]:
    """The formats that take room on a disk, each with a colour, and the dtypes, each with a marker."""
    shown = [r for r in rows if r["format"] != NOWHERE]
    names, dtypes = (list(dict.fromkeys(r[key] for r in shown)) for key in ("format", "dtype"))
    return names, dtypes


def _legend(rows: list[Row]) -> str:
    names, dtypes = _series(rows)
    dot = ("\u25cf", "\u25cb")  # filled, hollow
    said = "".join(
        f'<span><b style="color:{plots.COLOURS[n % SOLID]}">{dot[n >= SOLID]}</b> '
        f"{escape(name)}</span>"
        for n, name in enumerate(names)
    )
    marks = zip(dtypes, MARKS, strict=False)
    return said + "".join(f"<span>{plots.SHAPES[m]} {escape(d)}</span>" for d, m in marks)


def _picture(rows: list[Row], title: str, way: str, raw: str) -> str:
    made, (axis,) = plots.figure(plots.WIDTH, 3.8)
    names, dtypes = _series(rows)
    for row in rows:
        if row["format"] == NOWHERE:
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
