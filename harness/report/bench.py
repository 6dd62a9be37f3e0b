"""The page of `task=bench`: decode steps, restores and save formats, each as one table and its pictures."""

from html import escape
from typing import Any

from harness import machine
from harness.report.html import cell, grouped, section
from harness.report.names import plain
from harness.report.picture import plots

Row = dict[str, Any]
Sections = list[dict[str, Any]]

LOW, HIGH = "per_token_low_s", "per_token_high_s"  # quartiles of the steps
FEWEST = 8  # steps from which quartiles tell caches apart
LABELS = {
    "per_token_s": "ms per token", "middle_half": "middle half, ms", "open_s": "ms to open",
    "prefill_s": "prefill, ms", "save_s": "save, ms", "load_s": "load, ms", "raw_write_s": "raw write, ms",
    "raw_read_s": "raw read, ms", "map_s": "map, ms", "to_device_s": "to the device, ms",
    "first_token_s": "first token, ms", "save_of_raw": "save, of raw", "load_of_raw": "load, of raw",
    "kv_bytes": "K/V bytes", "ratio": "stored over K/V bytes", "peak_extra_bytes": "extra memory",
    "peak_device_bytes": "peak on the device, bytes", "speedup": "restored against prefilled, times",
    "runs": "rounds", "format": "format",
}  # fmt: skip

DECODE = ["cache", "dtype", "context", "branches", "per_token_s", "middle_half", "ratio_to_dynamic", "times_limit",
          "bytes_copied_per_token", "open_s"]  # fmt: skip
BESIDE = ["engine", "cache", "dtype", "context", "per_token_s", "ratio_to_llamacpp", "prefill_s", "save_s",
          "load_s", "stored_bytes"]  # fmt: skip
CONSOLE = {
    "cache": "cache", "dtype": "dtype", "context": "context", "at once": "branches",
    "ms per token": "per_token_s", "times as fast as dynamic": "ratio_to_dynamic",
}  # fmt: skip

WAYS = ("prefill", "restored")
TIMED = ("save_s", "raw_write_s", "load_s", "raw_read_s", "to_device_s", "first_token_s")
RESTORED = (*TIMED, "prefill_s", "restored_s", "speedup", "save_of_raw", "kv_bytes", "stored_bytes",
            "peak_device_bytes")  # fmt: skip
FIRST = ("same_first_token", "first_apart", "first_gap")  # against the live cache's logits
RESTORE = ["context", "kv_bytes", "prefill_s", "load_s", "to_device_s", "first_token_s", "speedup",
           "save_s", "save_of_raw", "peak_device_bytes"]  # fmt: skip

FORMATS = ["format", "dtype", "runs", "save_s", "raw_write_s", "save_of_raw", "load_s", "raw_read_s",
           "load_of_raw", "map_s", "ratio", "peak_extra_bytes"]  # fmt: skip
SOLID = 6  # formats with a filled marker; further ones are hollow
DOTS = ("\u25cf", "\u25cb")  # filled, hollow
MARKS = "os^D"  # one per dtype
NOWHERE = "memory"  # stores nothing on a disk


def console(rows: list[Row]) -> list[Row]:
    """Rows of decode steps under the labels of CONSOLE."""
    return [{label: shown(column, row) for label, column in CONSOLE.items()} for row in rows]


def shown(column: str, row: Row) -> Any:
    """A value as the table shows it: times in milliseconds, whole numbers in groups of three digits."""
    if column == "middle_half":
        low, high = row.get(LOW), row.get(HIGH)
        return None if low is None or high is None else f"{low * 1e3:.3g}-{high * 1e3:.3g}"
    value = row[column]
    if value is None:
        return None
    if column == "peak_extra_bytes":
        return cell(machine.human(value), kind="n")
    if column == "bytes_copied_per_token":
        return cell(f"{value:,.0f}", kind="n")
    return value * 1e3 if column.endswith("_s") else grouped(value)


def _table(title: str, columns: list[str], rows: list[Row], text: str = "", **more: Any) -> Row:
    labels = [LABELS.get(c) or plain(c) for c in columns]
    values = [[shown(c, row) for c in columns] for row in rows]
    return section(title, text=text, columns=labels, rows=values, **more)


def _refused(rows: list[Row], columns: list[str]) -> Sections:
    failed = [row for row in rows if row["reason"]]
    return [_table("Not measured", [*columns, "reason"], failed)] * bool(failed)


def decode(rows: list[Row], model: str = "") -> Sections:
    """Decode steps. model: its name and size."""
    out: Sections = []
    timed = [row for row in rows if row["per_token_s"]]
    for dtype in dict.fromkeys(row["dtype"] for row in timed):
        single = [row for row in timed if row["dtype"] == dtype and row["branches"] == 1]
        if single:
            out.append(
                section(
                    f"Time per token, {dtype}",
                    text="Median of the steps, the caches taking turns; an upright line is their middle half. The "
                    "dotted line is what reading weights and K/V once takes at the bandwidth measured in between.",
                    legend=plots.colours(dict.fromkeys(row["cache"] for row in single)),
                    panels=decode_panels(single),
                )
            )
    if out:
        out[0]["headline"] = f"{fastest(rows)}{model and f' ({model})'}."
    if drawn := [
        plots.bars([r["cache"] for r in alike], [r["per_token_s"] * 1e3 for r in alike],
                   f"{branches} at once, {context:,} past tokens, {dtype}", "ms")
        for (dtype, context, branches), alike in settings(timed).items() if branches > 1
    ]:  # fmt: skip
        text = "Milliseconds until each of several continuations of one past has its next token."
        out.append(section("Several continuations at once", text=text, panels=drawn))
    text = (
        "Times the limit: how many times as long as reading weights and K/V once takes. To open: until a cache "
        "stands over the past, before any token."
    )
    out.append(_table("All figures", DECODE, rows, text, long=len(rows) > FEWEST))
    if beside := [row for row in rows if row.get("engine")]:
        text = "The same weights and dtype, decode steps taking turns. Prefill, save and load of ours are those "
        text += "of the library and a snapshot, whatever the cache."
        out.append(_table("Beside llama.cpp", BESIDE, beside, text))
    return [*out, *_refused(rows, ["cache", "dtype", "context"])]


def settings(rows: list[Row]) -> dict[tuple[str, int, int], list[Row]]:
    """Rows measured alike, by dtype, past tokens and continuations."""
    made: dict[tuple[str, int, int], list[Row]] = {}
    for row in rows:
        made.setdefault((row["dtype"], row["context"], row["branches"]), []).append(row)
    return made


def tied(rows: list[Row]) -> tuple[list[str], str]:
    """Of rows measured alike, the caches not told apart from the one with the least median, and why."""
    best, *others = sorted(rows, key=lambda r: r["per_token_s"])
    steps, high = min(r.get("runs", FEWEST) for r in rows), best.get(HIGH)
    if steps < FEWEST:
        names, why = (
            others,
            f"only {machine.many(steps, 'step')} of each timed, fewer than {FEWEST}",
        )
    elif high is None:
        names, why = others, "the spread of their times is not known"
    else:
        names = [r for r in others if (r.get(LOW) or 0.0) <= high]
        why = "the middle halves of their times overlap"
    return [str(r["cache"]) for r in names], why if names else ""


def fastest(rows: list[Row]) -> str:
    """The fastest cache at the longest past, or those that are not told apart; empty for no row."""
    alone = [row for row in rows if row["branches"] == 1 and row["per_token_s"]]
    if not alone:
        return ""
    longest = max(row["context"] for row in alone)
    best = min((r for r in alone if r["context"] == longest), key=lambda r: r["per_token_s"])
    alike = settings(alone)[best["dtype"], longest, 1]
    took = f"{best['per_token_s'] * 1e3:.3g} ms a token"
    where = f"after {longest:,} tokens in {best['dtype']}"
    names, why = tied(alike)
    if names:
        return f"{where}, {', '.join([best['cache'], *names[:-1]])} and {names[-1]} are not told apart ({why}): {took}"
    ratio = best["ratio_to_dynamic"]
    times = ratio and best["cache"] != "dynamic"
    beside = f", {ratio:.1f} times as fast as dynamic" if times else ""
    return f"{where}, {best['cache']} is the fastest: {took}{beside}"


def decode_panels(rows: list[Row]) -> list[str]:
    """Milliseconds per token with the limit, and the speed against `cache=dynamic`."""
    times, speed = (plots.figure(plots.WIDTH, plots.HEIGHT) for _ in range(2))
    left, right = times[1][0], speed[1][0]
    for number, cache in enumerate(dict.fromkeys(row["cache"] for row in rows)):
        series = sorted((r for r in rows if r["cache"] == cache), key=lambda r: r["context"])
        style = {"color": plots.COLOURS[number % len(plots.COLOURS)], "marker": plots.mark(number)}
        contexts = [row["context"] for row in series]
        left.plot(contexts, [row["per_token_s"] * 1e3 for row in series], label=cache, **style)
        known = [row for row in series if row.get(LOW) is not None]
        low, high = ([1e3 * row[end] for row in known] for end in (LOW, HIGH))
        left.vlines([r["context"] for r in known], low, high, color=style["color"], linewidth=1)
        if ratios := [
            (r["context"], r["ratio_to_dynamic"]) for r in series if r["ratio_to_dynamic"]
        ]:
            right.plot(*zip(*ratios), label=cache, **style)
    limits = {row["context"]: row["limit_s"] * 1e3 for row in rows}
    ends = sorted(limits)
    if ends[1:]:
        left.plot(ends, [limits[c] for c in ends], ":", color=plots.INK, label="limit")
    else:
        left.axhline(limits[ends[0]], linestyle=":", color=plots.INK, label="limit")
    plots.against_context(left, "Time per token", "ms")
    plots.against_context(right, "Speed against dynamic", "times")
    return [plots.svg(times[0]), plots.svg(speed[0])]


def restore(rows: list[Row]) -> Sections:
    """Restores beside prefills."""
    measured = [row for row in rows if row["reason"] is None]
    out: Sections = []
    if measured:
        out.append(
            section(
                "Restored or prefilled",
                text="Time to the first token. Restored: every byte verified, moved to the device, one decode step. "
                "Medians after a first time that is not counted. The files were just written, so they are read from "
                "memory, as are the raw ones.",
                legend=plots.colours(WAYS),
                panels=_restore_panels(measured),
            )
        )
    known = [c for c in RESTORE if any(row[c] is not None for row in rows)]
    text = "Restored against prefilled: the prefill's time over load, move and first token together. Save, of raw: "
    text += "the time of writing the same bytes into one file over ours; 1 is as fast."
    return [*out, _table("All figures", known, rows, text), *_refused(rows, ["context"])]


def speedup(rows: list[Row]) -> str:
    """A restore beside a prefill at the longest past measured; empty for none."""
    measured = [row for row in rows if row["speedup"]]
    if not measured:
        return ""
    row = max(measured, key=lambda r: r["context"])
    return f"restoring takes {1 / row['speedup']:.2g} of the time of a prefill of {row['context']:,} tokens"


def first_tokens(rows: list[Row]) -> str:
    """Whether the first token after each restore is the live cache's."""
    measured = [row for row in rows if row["same_first_token"] is not None]
    other = [row for row in measured if not row["same_first_token"]]
    if not measured:
        return "no first token was measured"
    if not other:
        return "the first token is the same in each"
    gaps = [f"at {r['context']:,} the two likeliest are {r['first_gap']:.3g} apart, the two runs {r['first_apart']:.3g}"
            for r in other]  # fmt: skip
    return f"the first token is the same in {len(measured) - len(other)} of {len(measured)} ({'; '.join(gaps)})"


def _restore_panels(rows: list[Row]) -> list[str]:
    times, speed = (plots.figure(plots.WIDTH, plots.HEIGHT) for _ in range(2))
    contexts = [row["context"] for row in rows]
    for number, way in enumerate(WAYS):
        style = {"color": plots.COLOURS[number], "marker": plots.mark(number)}
        times[1][0].plot(contexts, [row[f"{way}_s"] * 1e3 for row in rows], **style)
    speed[1][0].plot(contexts, [row["speedup"] for row in rows], marker="o", color=plots.INK)
    plots.against_context(times[1][0], "To the first token", "ms")
    plots.against_context(speed[1][0], "Restored against prefilled", "times")
    return [plots.svg(times[0]), plots.svg(speed[0])]


def formats(rows: list[Row], claim: Row, figures: Row, drawn: bool) -> Sections:
    """Save formats. claim: the row of claims.json. figures: commit, restore, protection. drawn: whether the
    weights are random."""
    weights = "seeded random weights" if drawn else "the model's own weights"
    dtypes = dict.fromkeys(row["dtype"] for row in rows)
    return [
        section(
            "Size against speed",
            text=f"K/V of a real prefill of random token ids, by {weights}; the dashed line is a raw write (or read) "
            "of the uncompressed bytes in the same run. Further right is faster, lower is smaller.",
            legend=_format_legend(rows),
            panels=[
                _format_panel(rows, "Saving", "save_s", "raw_write_s"),
                _format_panel(rows, "Loading, verified", "load_s", "raw_read_s"),
            ],
        ),
        section(
            "Extra memory at its peak",
            text="This process's own memory beyond the tensors themselves, the larger of a save and a load, sampled "
            "every millisecond; pages of mapped files are not counted.",
            panels=[_memory_panel([r for r in rows if r["dtype"] == d], d) for d in dtypes],
        ),
        _table(
            "Every format", FORMATS, rows,
            "Medians of rounds in which the formats take turns, after a first time that is not counted (one round: "
            "slow, timed that first time alone). save: digest, manifest and fsync included; load: every byte verified; "
            "map: opened, nothing read. of raw: raw time over ours, 1 is as fast.",
        ),
        section(
            f"The founding claim: {claim['verdict']}",
            text=f"{claim['says']} {claim['because']} Conditions: {claim['conditions']}.",
            columns=["figure", "value"],
            rows=[[plain(k), grouped(v)] for k, v in claim["figures"].items()],
        ),
        section(
            "Commit, restore, signature and encryption",
            text="Medians after a first time that is not counted. of plain: plain time over the protected one, in "
            "pairs of one run, 1 is as fast.",
            columns=["figure", "value"],
            rows=[[_figure(k), shown(k, figures)] for k in figures],
        ),
    ]  # fmt: skip


def _figure(key: str) -> str:
    name = key.removesuffix("_s").replace("_", " ")
    return f"{name}, ms" if key.endswith("_s") else name


def format_winners(rows: list[Row], rounds: int) -> list[str]:
    """A line per dtype: the format that saves fastest, loads fastest, is smallest."""
    lines = []
    for dtype in dict.fromkeys(row["dtype"] for row in rows):
        alike = [row for row in rows if row["dtype"] == dtype and row["format"] != NOWHERE]
        small = min(alike, key=lambda r: r["ratio"])
        size = machine.human(alike[0]["kv_bytes"])
        lines.append(
            f"{size} of K/V in {dtype}: {_winner(alike, 'save', rounds)}; {_winner(alike, 'load', rounds)}; "
            f"{small['format']} is smallest ({small['ratio']:.2f} of the K/V's bytes)."
        )
    return lines


def _winner(rows: list[Row], way: str, rounds: int) -> str:
    best = max(rows, key=lambda r: r[f"{way}_first"])
    wins = best[f"{way}_first"]
    if 2 * wins <= rounds:
        return f"none {way}s fastest in most of {machine.many(rounds, 'round')}"
    often = "" if wins == rounds else f" in {wins} of {machine.many(rounds, 'round')}"
    return f"{best['format']} {way}s fastest{often} ({machine.seconds(best[f'{way}_s'])})"


def _memory_panel(rows: list[Row], dtype: str) -> str:
    values = [row["peak_extra_bytes"] / 2**20 for row in rows]
    return plots.bars([row["format"] for row in rows], values, dtype, "MiB")


def _series(rows: list[Row]) -> tuple[list[str], list[str]]:
    """The formats on a disk, each with a colour, and the dtypes, each with a marker."""
    stored = [row for row in rows if row["format"] != NOWHERE]
    names, dtypes = (list(dict.fromkeys(row[key] for row in stored)) for key in ("format", "dtype"))
    return names, dtypes


def _format_legend(rows: list[Row]) -> str:
    names, dtypes = _series(rows)
    colours = "".join(
        f'<span><b style="color:{plots.COLOURS[n % SOLID]}">{DOTS[n >= SOLID]}</b> {escape(name)}</span>'
        for n, name in enumerate(names)
    )
    marks = zip(dtypes, MARKS, strict=False)
    return colours + "".join(f"<span>{plots.SHAPES[m]} {escape(d)}</span>" for d, m in marks)


def _format_panel(rows: list[Row], title: str, way: str, raw: str) -> str:
    made, (axis,) = plots.figure(plots.WIDTH, 3.8)
    names, dtypes = _series(rows)
    for row in rows:
        if row["format"] == NOWHERE:
            continue
        number = names.index(row["format"])
        axis.plot(
            row["kv_bytes"] / row[way] / 1e6, row["ratio"],
            MARKS[dtypes.index(row["dtype"]) % len(MARKS)], markersize=7,
            color=plots.COLOURS[number % SOLID], markerfacecolor="none" if number >= SOLID else None,
        )  # fmt: skip
    limit = max(row["kv_bytes"] / row[raw] / 1e6 for row in rows)
    axis.axvline(limit, color=plots.INK, linestyle="--", linewidth=1)
    axis.set_xscale("log")
    plots.plain(axis.xaxis)
    axis.margins(x=0.1, y=0.1)
    plots.label(axis, title, "MB of K/V per second, logarithmic", "stored bytes / K/V bytes")
    return plots.svg(made)
