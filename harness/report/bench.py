"""What a bench says: one table per dtype, time per token against context, copies per token."""

from collections import Counter
from typing import Any

from harness import machine
from harness.report.html import cell, section
from harness.report.names import plain
from harness.report.picture import plots

COLUMNS = ["cache", "dtype", "context", "branches", "per_token_s", "middle_half", "ratio_to_dynamic", "times_limit",
           "bytes_copied_per_token", "open_s"]  # fmt: skip
HEADS = {"per_token_s": "ms per token", "middle_half": "middle half, ms", "open_s": "ms to open",
         "prefill_s": "prefill, ms", "save_s": "save, ms", "load_s": "load, ms"}  # fmt: skip
LOW, HIGH = "per_token_low_s", "per_token_high_s"  # the quartiles of the steps
FEWEST = 8  # steps of which quartiles tell something
CONSOLE = {
    "cache": "cache",
    "dtype": "dtype",
    "context": "context",
    "at once": "branches",
    "ms per token": "per_token_s",
    "times as fast as dynamic": "ratio_to_dynamic",
}  # what fits a terminal
BESIDE = ["engine", "cache", "dtype", "context", "per_token_s", "ratio_to_llamacpp", "prefill_s", "save_s",
          "load_s", "stored_bytes"]  # fmt: skip


def console(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """`rows` under the heads of CONSOLE."""
    return [{head: _shown(column, row) for head, column in CONSOLE.items()} for row in rows]


def sections(rows: list[dict[str, Any]], model: str = "") -> list[dict[str, Any]]:
    """Blocks of the page for `bench.json` rows. model: what was timed, as one says it."""
    out = []
    for dtype in dict.fromkeys(r["dtype"] for r in rows):
        single = [
            r for r in rows if r["dtype"] == dtype and r["branches"] == 1 and r["per_token_s"]
        ]
        if single:
            out.append(
                section(
                    f"Time per token, {dtype}",
                    text="Median of the steps, the caches taking turns; an upright line is their middle half. The dotted line is what "
                    "reading weights and K/V once takes at the bandwidth measured in between.",
                    legend=plots.colours(dict.fromkeys(r["cache"] for r in single)),
                    panels=_panels(single),
                )
            )
    out += _together(rows)
    if out and out[0].get("panels"):
        out[0]["headline"] = headline(rows, model)
    out.append(
        section(
            "All figures",
            text="Times the limit: how many times as long as reading weights and K/V once takes. To open: until a cache "
            "stands over the past, before any token.",
            columns=[_headed(c) for c in COLUMNS],
            rows=[[_shown(c, r) for c in COLUMNS] for r in rows],
            long=len(rows) > FEWEST,
        )
    )
    if beside := [r for r in rows if r.get("engine")]:
        text = "The same weights and dtype, decode steps taking turns. Prefill, save and load of a row of "
        text += "ours are the library's prefill and a snapshot, whatever the cache."
        values = [[_shown(c, r) for c in BESIDE] for r in beside]
        out.append(
            section(
                "Beside llama.cpp", text=text, columns=[_headed(c) for c in BESIDE], rows=values
            )
        )
    refused = [r for r in rows if r["reason"]]
    if refused:
        shown = [[r["cache"], r["dtype"], r["context"], r["reason"]] for r in refused]
        out.append(
            section(
                "Refused, or not compared", columns=["cache", "dtype", "context", "why"], rows=shown
            )
        )
    return out


def _headed(column: str) -> str:
    return HEADS.get(column) or plain(column)


def headline(rows: list[dict[str, Any]], model: str = "") -> str:
    """What was measured, on what, and which cache is the fastest how often, in one sentence."""
    timed = [r for r in rows if r["per_token_s"]]
    if not timed:
        return ""
    caches, contexts = dict.fromkeys(r["cache"] for r in timed), sorted({r["context"] for r in timed})  # fmt: skip
    settings = _settings(timed)
    won = Counter(name for some in settings.values() if (name := first_of(some)))
    span = " to ".join(f"{n:,}" for n in dict.fromkeys((contexts[0], contexts[-1])))
    kinds = " and ".join(dict.fromkeys(r["dtype"] for r in timed))
    every = machine.many(len(settings), "setting")
    said = [f"{name} is the fastest in {count} of {every}" for name, count in won.most_common(1)]
    apart = Counter(why for some in settings.values() if (why := untold(some)))
    said += [f"not told apart in {count} of {every} ({why})" for why, count in apart.items()]
    most = ", ".join(said) or f"{every} measured"
    return f"Time to decode one token after {span} tokens of past, with {machine.many(len(caches), 'cache')}, in {kinds}{model and f', of {model}'}: {most}."


def first_of(rows: list[dict[str, Any]]) -> str:
    """The cache whose middle half of the times lies below that of every other; empty where there is none, where there
    is no spread to tell, as of few steps, and of one cache alone."""
    best = min(rows, key=lambda r: r["per_token_s"])
    return str(best["cache"]) if rows[1:] and not untold(rows) else ""


def untold(rows: list[dict[str, Any]]) -> str:
    """Why no cache is called the fastest of `rows`, which were measured alike; empty where one is, and of one alone."""
    steps, best = _steps(rows), min(rows, key=lambda r: r["per_token_s"])
    if not near(rows):
        return ""
    if steps < FEWEST:
        return f"only {machine.many(steps, 'step')} of each timed, where {FEWEST} begin to tell"
    known = best.get(HIGH) is not None
    return (
        "the middle halves of their times overlap"
        if known
        else "how far their times spread is not known"
    )


def near(rows: list[dict[str, Any]]) -> list[str]:
    """The caches that are not told apart from the one with the least median: all of few steps, else those whose
    middle half of the times reaches down to its own."""
    best, *others = sorted(rows, key=lambda r: r["per_token_s"])
    high, few = best.get(HIGH), _steps(rows) < FEWEST
    return [str(r["cache"]) for r in others if few or high is None or (r.get(LOW) or 0.0) <= high]


def _steps(rows: list[dict[str, Any]]) -> int:
    return min(r.get("runs", FEWEST) for r in rows)


def _together(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """One block with a bar per cache for each setting of several continuations at once; none where there is none."""
    settings = _settings([r for r in rows if r["branches"] > 1 and r["per_token_s"]])
    if not settings:
        return []
    told = "Milliseconds until each of several continuations of one past has its next token, the smallest being the best."
    drawn = [_bars(some, *setting) for setting, some in settings.items()]
    return [section("Several continuations at once", text=told, panels=drawn)]


def _settings(rows: list[dict[str, Any]]) -> dict[tuple[str, int, int], list[dict[str, Any]]]:
    """Rows of the caches that were measured alike, by dtype, past tokens and continuations."""
    made: dict[tuple[str, int, int], list[dict[str, Any]]] = {}
    for row in rows:
        made.setdefault((row["dtype"], row["context"], row["branches"]), []).append(row)
    return made


def _bars(rows: list[dict[str, Any]], dtype: str, context: int, branches: int) -> str:
    values = [row["per_token_s"] * 1e3 for row in rows]
    title = f"{branches} at once, {context:,} past tokens, {dtype}"
    return plots.bars([row["cache"] for row in rows], values, title, "ms")


def fastest(rows: list[dict[str, Any]]) -> str:
    """What is fastest at the longest past, beside `dynamic` where that was measured, and in how many of the other
    settings another is; empty for nothing."""
    alone = [r for r in rows if r["branches"] == 1 and r["per_token_s"]]
    if not alone:
        return ""
    longest = max(r["context"] for r in alone)
    row = min((r for r in alone if r["context"] == longest), key=lambda r: r["per_token_s"])
    ratio = row["ratio_to_dynamic"]
    others = [r for r in alone if r["context"] == longest and r["dtype"] == row["dtype"]]
    if why := untold(others):
        *names, last = [row["cache"], *near(others)]
        return (
            f"after {longest:,} tokens in {row['dtype']}, {', '.join(names)} and {last} are not told apart ({why}): "
            f"{row['cache']} has the least median, {row['per_token_s'] * 1e3:.3g} ms a token; "
        )
    beside = (
        f", {ratio:.1f} times as fast as dynamic" if ratio and row["cache"] != "dynamic" else ""
    )
    settings = _settings([r for r in rows if r["per_token_s"]])
    first = [first_of(some) if some[1:] else some[0]["cache"] for some in settings.values()]
    other, unclear = len(first) - first.count(row["cache"]) - first.count(""), first.count("")
    parts = [f"another cache in {other}"] * bool(other) + [f"not told apart in {unclear}"] * bool(unclear)  # fmt: skip
    often = f"{' and '.join(parts)} of all" if parts else "and so it is in all"
    more = f", {often} {len(first)} settings" if first[1:] else ""
    return (
        f"after {longest:,} tokens in {row['dtype']}, {row['cache']} is the fastest: "
        f"{row['per_token_s'] * 1e3:.3g} ms a token{beside}{more}; "
    )


def _shown(column: str, row: dict[str, Any]) -> Any:
    """Bytes are read in groups of three digits, times in milliseconds, as they are drawn; their quartiles in one."""
    if column == "middle_half":
        low, high = row.get(LOW), row.get(HIGH)
        return None if low is None or high is None else f"{low * 1e3:.3g}-{high * 1e3:.3g}"
    value = row[column]
    if column in HEADS and value is not None:
        return value * 1e3
    counted = column == "bytes_copied_per_token" and value is not None
    return cell(f"{value:,.0f}", kind="n") if counted else value


def _panels(rows: list[dict[str, Any]]) -> list[str]:
    """Milliseconds per token with the limit, and the speed against `cache=dynamic`."""
    times, speed = (plots.figure(plots.WIDTH, plots.HEIGHT) for _ in range(2))
    left, right = times[1][0], speed[1][0]
    for number, cache in enumerate(dict.fromkeys(r["cache"] for r in rows)):
        mine = sorted((r for r in rows if r["cache"] == cache), key=lambda r: r["context"])
        contexts = [r["context"] for r in mine]
        style = {"color": plots.COLOURS[number % len(plots.COLOURS)], "marker": plots.mark(number)}
        left.plot(contexts, [r["per_token_s"] * 1e3 for r in mine], label=cache, **style)
        known = [r for r in mine if r.get(LOW) is not None]
        low, high = ([1e3 * r[end] for r in known] for end in (LOW, HIGH))
        left.vlines([r["context"] for r in known], low, high, color=style["color"], linewidth=1)
        if any(r["ratio_to_dynamic"] for r in mine):
            ratios = [(r["context"], r["ratio_to_dynamic"]) for r in mine if r["ratio_to_dynamic"]]
            right.plot(*zip(*ratios), label=cache, **style)
    limits = {r["context"]: r["limit_s"] * 1e3 for r in rows}
    ends = sorted(limits)
    if ends[1:]:
        left.plot(ends, [limits[c] for c in ends], ":", color=plots.INK, label="limit")
    else:
        left.axhline(limits[ends[0]], linestyle=":", color=plots.INK, label="limit")
    plots.against_context(left, "Time per token", "ms")
    plots.against_context(right, "Speed against dynamic", "times")
    return [plots.svg(times[0]), plots.svg(speed[0])]
