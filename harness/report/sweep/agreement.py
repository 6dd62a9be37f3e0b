"""What is said beside the nearest point: which is nearer and refused, which are as near, which has more of its tokens
the same, and whether it is a control."""

from statistics import median
from typing import Any

from harness.report.picture import plots
from harness.report.sweep import earlier, pruned, tie
from harness.report.sweep.baseline import CONTROL, policies, tried
from harness.report.sweep.choice import able, option, stored, written
from harness.report.sweep.distance import as_near, missed, other_tokens
from harness.report.sweep.variation import asks, group, is_seed
from harness.report.sweep.which import FEW, called
from harness.snapshot.words import NO_NEARER

WRONG = ("drifted", "diverged")
SAME = "top1_agreement"
CHANCE = f"{NO_NEARER}: the control, {{name}}, has {{nats}} nats."
MORE = "As near or nearer with more tokens kept: the control, {name} ({nats} nats)."

Row = dict[str, Any]


def beside(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """All of it, in sentences; empty where there is nothing."""
    return " ".join(each(winners, axes, rows))


def each(winners: list[Row], axes: list[str], rows: list[Row]) -> list[str]:
    """The same, each by itself."""
    mine = tried(rows, axes)
    if not any(row.get("prune") == CONTROL for row in winners):
        mine = policies(mine, axes)
    said = [say(winners, axes, mine) for say in (tie.sentence, sentence)]
    refused = held(winners, axes, rows)
    near = "" if refused else nearer(winners, axes, mine)
    parted, touched = parting(winners, axes, mine), touching(winners, axes, mine)
    return list(filter(None, [refused, *said, touched, parted, near, control(winners, axes, rows)]))


def touching(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """Which points are no further off than those that mean KL chose, and not chosen because they write into the
    caller's cache; empty where none is."""
    if not winners or not all(missed(row) and row.get("kl_mean") is not None for row in winners):
        return ""
    mine = group(winners, questions := [axis for axis in axes if asks(axis)])
    some = [
        row
        for row in rows
        if written(row)
        and row.get("kl_mean") is not None
        and any(
            as_near(row["kl_mean"], own["kl_mean"]) for own in mine.get(option(row, questions), [])
        )
    ]
    if not some or any(map(written, winners)):
        return ""
    names = _names(some, axes, rows)
    told = [*names[:FEW], *[f"{len(names) - FEW} more"] * (len(names) > FEW)]
    return f"As near, and writing into your cache: {' and '.join(told)}."


def parting(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """At which step the one point that mean KL chose has another token, and which keeps the same ones longest, where that
    is another; empty elsewhere, and where tokens are drawn."""
    drawn = any(row.get("sampling") not in (None, "greedy") for row in winners)
    if any(map(asks, axes)) or len(winners) != 1 or drawn:
        return ""
    (row,) = winners
    first = row.get("first_divergence")
    if not other_tokens(row) or first is None or row.get("kl_mean") is None:
        return ""
    known = [r for r in _able(rows) if r.get("first_divergence") is not None]
    last = max((r["first_divergence"] for r in known), default=first)
    said = f"The first other token of the nearest is at step {first + 1}"
    if last <= first:
        return f"{said}."
    late = [r for r in known if r["first_divergence"] == last]
    told = called({option(r, axes) for r in late}, axes, [], rows)[0]
    told = f"{len(late)} others" if told.count(" or ") >= FEW else told
    return f"{said}, that of {told} at step {last + 1}."


def held(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """Which point is nearer than those that are chosen and yet short of what is required, because what is pruned and
    what is quantized alone are held to two limits; empty where none is."""
    questions = [axis for axis in axes if asks(axis)]
    mine = [r for r in winners if pruned.allowed(r) and r.get("kl_mean") is not None]
    short = [r for r in rows if pruned.coded(r) and int(r["exit_code"]) and r["verdict"] in WRONG]
    near = [
        row
        for row in short
        if row.get("kl_mean") is not None
        and any(
            not as_near(own["kl_mean"], row["kl_mean"])
            for own in mine
            if all(own[axis] == row[axis] for axis in questions)
        )
    ]
    if not near:
        return ""
    names = _names(near, axes, rows)
    some = [*names[:FEW], *[f"{len(names) - FEW} more"] * (len(names) > FEW)]
    least = min(float(row["kl_mean"]) for row in near)
    return (
        f"Nearer, and yet refused: {' and '.join(some)} (mean KL {'from ' * bool(near[1:])}{least:.3g} nats), since what is "
        "pruned is held to compare.require_pruned and what is quantized alone to compare.require."
    )


def nearer(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """Which point has the nearest logits, where that is none of those that are chosen for their tokens; empty elsewhere,
    and of several questions."""
    known = [row for row in rows if row.get("kl_mean") is not None]
    if any(map(asks, axes)) or not winners or any(row["verdict"] != "drifted" for row in winners):
        return ""
    least = min((float(row["kl_mean"]) for row in winners if row in known), default=0.0)
    near = min(
        (row for row in known if missed(row)),
        key=lambda row: (float(row["kl_mean"]), stored(row)),
        default=None,
    )
    if near is None or as_near(least, near["kl_mean"]):
        return ""
    (name,) = _names([near], axes, rows)
    why = "short of what is required"
    if near["verdict"] == "diverged":
        first, of = near.get("first_divergence"), int(near.get("steps") or 0)
        last = f" of {of}" * (first is not None and first < of)
        why = "with another token" + (
            f", the first at step {first + 1}{last}" if first is not None else ""
        )
    return f"Nearer in its logits, though {why}: {name} (mean KL {near['kl_mean']:.3g} nats, here {least:.3g})."


def control(winners: list[Row], axes: list[str], rows: list[Row], once: bool = False) -> str:
    """That tokens kept at random come as near as the policies do, be it with more of them; empty where they do not, or
    nothing was asked of how near points are. once: as older versions told it, whatever the control kept."""
    if not winners or not all(missed(row) and row.get("kl_mean") is not None for row in winners):
        return ""
    if any(row.get("prune") == CONTROL for row in winners):
        return ""
    questions = [axis for axis in axes if asks(axis)]
    for words, more in ((CHANCE, once), (MORE, True)):
        least = [_random(row, rows, questions, more) for row in winners]
        near = [r for r in least if r]
        if len(near) == len(winners):
            names = _names(near, [axis for axis in axes if axis not in questions], rows)
            name = names[0] if len(names) == 1 else f"prune={CONTROL}"
            ends = dict.fromkeys(
                f"{end(float(r['kl_mean']) for r in near):.3g}" for end in (min, max)
            )
            return words.format(name=name, nats=" to ".join(ends))
    return ""


def _random(row: Row, rows: list[Row], questions: list[str], more: bool) -> Row | None:
    """The control that is nearest, where it is as near as the point `row`, which was asked the same. more: also one that
    keeps more tokens."""
    some = [r for r in rows if r.get("prune") == CONTROL and r.get("kl_mean") is not None]
    some = [r for r in some if all(r[axis] == row[axis] for axis in questions)]
    few = row.get("kept_tokens") or 0
    some = [r for r in some if more or not few or (r.get("kept_tokens") or 0) <= few]
    near = min(some, key=lambda r: float(r["kl_mean"]), default=None)
    return near if near and as_near(near["kl_mean"], row["kl_mean"]) else None


def sentence(winners: list[Row], axes: list[str], rows: list[Row]) -> str:
    """Which these are, where one measure chose `winners` and the other chooses another; empty elsewhere."""
    if not winners or not all(missed(row) and row.get("kl_mean") is not None for row in winners):
        return ""
    said = []
    known = [row for row in _able(rows) if row.get(SAME) is not None]
    best = max((row[SAME] for row in known), default=0.0)
    mine = max((row.get(SAME) or 0.0 for row in winners), default=0.0)
    over = _over_seeds(winners, axes, known) if earlier.told() else None
    if over is not None:
        said += over
    elif known and best > mine:
        names = _names([row for row in known if row[SAME] == best], axes, rows)
        told = " or ".join(names) if len(names) <= 2 else f"{len(names)} others"
        said.append(f"Most tokens the same: {told} ({best:.0%}, the nearest {mine:.0%}).")
    if all(row.get("prune") == CONTROL for row in winners):
        said.append(f"prune={CONTROL} is a control, no policy.")
    return " ".join(said)


def _over_seeds(winners: list[Row], axes: list[str], known: list[Row]) -> list[str] | None:
    """The same of settings, by their medians over the seeds, where `winners` are the points of one; None elsewhere."""
    options = [axis for axis in axes if not asks(axis)]
    settings = group(known, options)
    own = {option(row, options) for row in winners}
    if len(own) != 1 or not winners[1:] or not any(map(is_seed, axes)) or not own <= {*settings}:
        return None
    medians = {name: median(row[SAME] for row in some) for name, some in settings.items()}
    best, mine = max(medians.values()), medians[own.pop()]
    if best <= mine:
        return []
    names = [" ".join(f"{a}={plots.short(v)}" for a, v in zip(options, name, strict=True))
             for name, share in medians.items() if share == best]  # fmt: skip
    told = " or ".join(names) if len(names) <= 2 else f"{len(names)} others"
    drawn = any(len({row[SAME] for row in some}) > 1 for some in settings.values())
    middle = " in the median" * drawn
    return [f"Most tokens the same: {told} ({best:.0%}{middle}, the nearest {mine:.0%})."]


def _able(rows: list[Row]) -> list[Row]:
    """The points that mean KL chose among: as `choice.able`, whatever their divergence."""
    level = [{**row, "kl_mean": 0.0} for row in rows]
    names = {row["point"] for row in able(level)}
    return [row for row in rows if row["point"] in names]


def _names(best: list[Row], axes: list[str], rows: list[Row]) -> list[str]:
    """The points `best` by what varies; by their options alone where these are so in every question."""
    questions, options = [a for a in axes if asks(a)], [a for a in axes if not asks(a)]
    every = len(group(rows, questions))
    names = []
    for some in group(best, options).values():
        shown = options if options and len(some) == every else axes
        names += [" ".join(f"{axis}={plots.short(row[axis])}" for axis in shown) for row in some]
    return list(dict.fromkeys(names))
