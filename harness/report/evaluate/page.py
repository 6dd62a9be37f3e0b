"""The page of `task=evaluate`: what is answered against what is held, one table, what was said."""

from collections.abc import Sequence
from itertools import zip_longest
from math import exp
from typing import Any

from harness.report.evaluate import budget, choice, times, wrong
from harness.report.evaluate.choice import conclusion as conclusion
from harness.report.html import cell, section, soundness
from harness.snapshot.cells import RIGHT, WORSE, best, full, is_full, name, nearest
from harness.snapshot.result import CELL

COLUMNS = (
    "cell", "asked", "KiB", "bytes, %", "ms", "right, %", "95%", "exact, %", "ppl", "KL", "differs at",
)  # fmt: skip
HEADS = (
    "cell", "asked", "KiB held", "of full bytes, %", "ms per token", "right, %", "95% interval, %", "exact, %",
    "perplexity", "KL, nats", "same tokens",
)  # fmt: skip
SHOWN = ("cell", "asked", "KiB", "ms", "right, %", "95%", "ppl", "KL")  # on the console
BEST = 3  # answers shown per cell and asking that are not those of the full cache
LARGE = 100.0  # a perplexity that nobody expects beside right answers
NAMED = 6  # cells and askings of which each is told how many there are
ASKED, SAID, WRONG = (
    1,
    4,
    "bad long",
)  # places in a row of what was said otherwise, and a class of its cells
PARAMETERS = {"budget": "prune.ratio", "asked": "task.asked"}  # of a cell, as a single run has them
# What is compared prompt by prompt, in which unit, and how many of it one is.
MEASURES = {
    "contains": ("right answers", "percentage points", 100.0),
    "nll": ("expected text", "nats per token", 1.0),
}
TIMED = 5  # columns of the table up to the time of a token, whose spread comes next on the page

LIKELY = (
    " The negative log-likelihood (NLL) says how unlikely the model finds the expected text, put straight after the "
    "question: lower is better."
)
ASKING = (
    " Asked after: the question asked after pruning, which cannot know it; before: the question asked before "
    "pruning, and pruned with the context."
)

Row = dict[str, Any]
AGAINST = (
    "The mean difference with its 95% interval; one that holds 0 tells nothing apart, though with few prompts a large "
    f"loss may hide in it. A cell is a safe choice where {choice.SAFE}."
)


def sections(
    rows: list[Row], answered: dict[str, list[Row]], asking: Sequence[Any], plain: Row
) -> list[Row]:
    """Blocks of the page for `html.page`. answered: by the number of the question in `asking` and when it
    was asked (`0/after`). plain: the `soundness` block of the path that fills cells."""
    winner = best(rows)
    panels = budget.pictures(rows, winner)
    made = [
        section(
            "Answers against memory",
            pills=choice.pills(rows),
            text=budget.text(rows, any(moved for _, moved in panels))
            + " A ring is around the smallest safe choice." * bool(winner)
            + LIKELY
            + ASKING * any(row["prune"] != "none" for row in rows),
            legend=budget.legend(rows, winner),
            panels=[panel for panel, _ in panels],
        ),
        section(
            "Every policy, quantizer and budget",
            text="Right: the answer has the expected one in it; exact: up to its first full stop it is the "
            "expected one. Perplexity: of the expected text itself, put straight after the question (1: no "
            "surprise); where a model answers in other words it is large though the answer is right. KL: to "
            "the full cache, along the expected text. Same tokens: said before the first one that the full "
            "cache does not say, on average; the full cache's own row says how many there could be."
            + times.told(answered),
            columns=[*HEADS[:TIMED], "middle half, ms", *HEADS[TIMED:]],
            rows=[
                marked(
                    [
                        *row[: TIMED - 1],
                        *times.timed(row[TIMED - 1], place, answered),
                        *row[TIMED:],
                    ],
                    winner,
                )
                for place, row in zip(cells(rows), _table(rows), strict=True)
            ],
        ),
        section(
            "Against the full cache, prompt by prompt",
            text=AGAINST,
            columns=["cell", "asked", "of", "difference", "from", "to", "in", ""],
            rows=_differences(rows),
        ),
    ]
    if errors := [r for r in rows if r["measure"] in ("key_error", "value_error")]:
        made.append(
            section(
                "Errors of the codes",
                text="Root mean squares as shares of the keys' and the values' own, means over layers "
                "and heads; per layer and head in the report of a single run.",
                columns=["cell", "asked", "of", "error", "of full bytes"],
                rows=[
                    [name(r), r["asked"], f"{r['measure'].partition('_')[0]}s", f"{r['value']:.3%}",
                     f"{r['kv_bytes'] / _full(rows, r)['kv_bytes']:.1%}"]
                    for r in errors
                ],
            )
        )  # fmt: skip
    columns = ["cell", "asked", "question", "expected", "said", "full cache", "first other word"]
    changed = otherwise(answered, asking)
    told = (
        f"{_some(answered, asking)}, those that are wrong first; the first other word is that of "
        "its answer for that of the full cache, and tokens are counted from 1."
    )
    if not changed:
        told = "Every cell said what the full cache says, token for token."
    made.append(section("What was said otherwise than by the full cache", text=told, columns=columns, rows=changed, fold=bool(changed)))  # fmt: skip
    return [*made, *wrong.sections(answered, asking), soundness(plain)]


def shown(rows: list[Row]) -> list[Row]:
    """The table's rows by column, for the console."""
    return [dict(zip(COLUMNS, row, strict=True)) for row in _table(rows)]


def surprised(rows: list[Row]) -> str:
    """What a large perplexity beside right answers is no sign of; empty where there is none."""
    found = [values["nll"] for values in cells(rows).values() if values["contains"]["value"] > 0.5]
    if all(exp(row["value"]) < LARGE for row in found):
        return ""
    return (
        "ppl is of the expected text itself, put straight after the question: it is large where a model is right in "
        "other words"
    )


def children(rows: list[Row]) -> list[Row]:
    """One MLflow run per cell; `as`: the section of the figures that the run above them has of this one (the full
    cache, the best cell: the smallest safe choice, else the nearest), `mark`: which of these two that is."""
    made, several = [], len({row["asked"] for row in rows}) > 1
    sections = {_place(full(rows)): "full"}
    winner = best(rows)
    if one := winner or nearest(rows):
        sections[_place(one)] = "best"
    for place, values in cells(rows).items():
        where = dict(zip(CELL, place, strict=True))
        when = f", asked {where['asked']}" * several
        first = next(iter(values.values()))
        metrics: dict[str, float] = {}
        for m, r in values.items():
            ends = [end for end in ("low", "high") if m == RIGHT and r.get(end) is not None]
            metrics |= {
                f"answers/{m}": r["value"],
                **{f"answers/{m}_{end}": r[end] for end in ends},
            }
        metrics |= {"size/kv_bytes": first["kv_bytes"], "size/kept_share": float(where["budget"])}
        metrics["answers/perplexity"] = exp(values["nll"]["value"])
        if first["per_token_s"] is not None:
            metrics["time/per_token"] = first["per_token_s"]
        tags = {k: str(v) for k, v in where.items()}
        held = tags if where["prune"] != "none" else {**tags, "budget": "1"}  # nothing is dropped
        params = {PARAMETERS.get(key, key): value for key, value in held.items()}
        row = {"name": f"{name(where)}{when}", "tags": tags, "metrics": metrics, "params": params}
        part = {"as": sections[place]} if place in sections else {}
        part |= {"mark": "best" if winner else "nearest"} if part.get("as") == "best" else {}
        made.append(row | part)
    return made


def _place(row: Row) -> tuple[Any, ...]:
    return tuple(row[key] for key in CELL)


def cells(rows: list[Row]) -> dict[tuple[Any, ...], dict[str, Row]]:
    """The rows by cell, in the order of `CELL`, and measure; the full cache comes first."""
    made: dict[tuple[Any, ...], dict[str, Row]] = {}
    for row in rows:
        made.setdefault(_place(row), {})[row["measure"]] = row
    return made


def _full(rows: list[Row], row: Row) -> Row:
    alike = ("cache", "asked")
    return next(r for r in rows if is_full(r) and all(r[k] == row[k] for k in alike))


def _named(row: Row, several: bool) -> str:
    return name(row) + (f", {row['cache']}" if several else "")


def _table(rows: list[Row]) -> list[list[Any]]:
    several = len({row["cache"] for row in rows}) > 1
    made = []
    for place, values in cells(rows).items():
        where = dict(zip(CELL, place, strict=True))
        right, seconds = values["contains"], values["contains"]["per_token_s"]
        share = right["kv_bytes"] / _full(rows, right)["kv_bytes"]
        made.append(
            [
                _named(where, several),
                where["asked"],
                digits(budget.kib(right)),
                round(100 * share, 1),
                None if seconds is None else float(f"{1000 * seconds:{times.MS}}"),
                percent(right["value"]),
                interval(right),
                percent(values["exact"]["value"]),
                exp(values["nll"]["value"]),
                values["kl"]["value"],
                values["divergence_step"]["value"],
            ]
        )
    return made


def digits(size: float) -> float | int:
    """A size in the digits of the sentence above it: three, and none behind the point from 100 on."""
    return round(size) if size >= 100 else plainly(float(f"{size:.3g}"))


def plainly(number: float) -> float | int:
    """A number without a fraction as such."""
    return int(number) if number == int(number) else number


def percent(share: float) -> float | int:
    """A share of answers as a number of percent: whole, or with one digit."""
    return plainly(round(100 * share, 1))


def interval(row: Row) -> str:
    """The 95% interval of a share in percent: `86-100`."""
    return f"{100 * row['low']:.0f}-{100 * row['high']:.0f}"


def marked(row: list[Any], winner: Row | None) -> list[Any]:
    """A line of the table, its cell marked where it is the one to choose."""
    names = [] if winner is None else [_named(winner, several) for several in (False, True)]
    chosen = winner is not None and row[0] in names and row[1] == winner["asked"]
    return [cell(row[0], kind="good best"), *row[1:]] if chosen else row


def _differences(rows: list[Row]) -> list[list[Any]]:
    made = []
    for r in rows:
        if r["measure"] not in MEASURES or is_full(r):
            continue
        low, high = r["delta_low"], r["delta_high"]
        below, above = (high < 0, low > 0) if low is not None else (False, False)
        worse, better = (below, above) if r["measure"] == "contains" else (above, below)
        said = "worse" if worse else "better" if better else "not told apart"
        if r["measure"] == "contains" and not worse and r["delta"] <= -WORSE:
            said += (
                f", but {-100 * r['delta']:.2g} percentage points down"  # so that it is not chosen
            )
        tone = "bad" if worse else "good" if better else "soft"
        what, unit, one = MEASURES[r["measure"]]
        some = (None if value is None else one * value for value in (r["delta"], low, high))
        line = [name(r), r["asked"], what, *some, unit]
        made.append([*line, cell(said, kind=tone)])
    return made


def otherwise(answered: dict[str, list[Row]], asking: Sequence[Any]) -> list[list[Any]]:
    """A few answers of each cell and asking that differ from the full cache's, in text or only in tokens; the
    wrong ones of every cell before the right ones of any."""
    some = []
    for rows in changed(answered, asking).values():
        for when in dict.fromkeys(row[ASKED] for row in rows):
            some += [row for row in rows if row[ASKED] == when][:BEST]
    return sorted(some, key=_right)


def _some(answered: dict[str, list[Row]], asking: Sequence[Any]) -> str:
    """How many of the other answers of each cell and asking are shown; of many cells how many there are of all."""
    every = {
        (where, when): sum(row[ASKED] == when for row in rows)
        for where, rows in changed(answered, asking).items()
        for when in dict.fromkeys(row[ASKED] for row in rows)
    }
    several = len({when for _, when in every}) > 1
    told = [
        f"{min(BEST, count)} of {count} by {where}" + f" asked {when}" * several
        for (where, when), count in every.items()
    ]
    if len(told) > NAMED:
        shown = sum(min(BEST, count) for count in every.values())
        told = [f"{shown} of {sum(every.values())} answers, up to {BEST} of each cell and asking"]
    return f"Shown: {'; '.join(told)}"


def changed(answered: dict[str, list[Row]], asking: Sequence[Any]) -> dict[str, list[list[Any]]]:
    """Of each cell, sorted by name, every answer that differs from the full cache's, the wrong ones first; what
    reads the same twice, as it may under two caches, is there once."""
    made: dict[str, list[list[Any]]] = {}
    for number, answers in answered.items():
        asked = asking[int(number.partition("/")[0])]
        full: dict[str, Row] = {}
        for answer in answers:
            if is_full(answer):
                full[answer["cache"]] = answer
                continue
            where, whole = name(answer), full[answer["cache"]]
            place = answer["divergence_step"]
            if place < whole["divergence_step"]:
                said = [cell(_heard(a), kind=WRONG if not a["contains"] else "good long") for a in (answer, whole)]  # fmt: skip
                other = f"token {place + 1}: {_parted(answer, whole, place)}"
                row = [where, answer["asked"], asked.question, asked.expected, *said, other]
                every = made.setdefault(where, [])
                every += [row] * (row not in every)
    return {where: sorted(made[where], key=_right) for where in sorted(made)}


def _right(row: list[Any]) -> bool:
    """Whether the answer that a row of `changed` shows is right."""
    return bool(row[SAID]["kind"] != WRONG)


def _said(answer: Row) -> str:
    return str(answer.get("said_shown", answer["said"]))


def _heard(answer: Row) -> str:
    """What was said, and whether it is right: colour is not all that tells it."""
    return f"{_said(answer).strip()} ({'right' if answer['contains'] else 'wrong'})"


def _parted(answer: Row, whole: Row, place: int) -> str:
    """The first words that both do not say, quoted, of `answer` first; by the ids of their tokens at `place`
    where the words are the same."""
    words = [_said(a).split() for a in (answer, whole)]
    for pair in zip_longest(*words):
        if pair[0] != pair[1]:
            return " for ".join(
                "the end" if word is None else f"\u201c{word}\u201d" for word in pair
            )
    ids = [_token(a.get("ids"), place) for a in (answer, whole)]
    return f"the same words, id {' for '.join(ids)}"


def _token(ids: list[int] | None, place: int) -> str:
    return "?" if ids is None else str(ids[place]) if place < len(ids) else "the end"
