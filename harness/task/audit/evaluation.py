"""An evaluation beside its second run: every question and answer again, and the table that the answers give."""

from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch

from harness.pipeline.evaluation.answers import SHOWN, differ
from harness.pipeline.evaluation.record import ANSWERS, ASKED, Evaluation
from harness.pipeline.evaluation.rows import Row
from harness.pipeline.questions.score import scores
from harness.snapshot.cells import code, name
from harness.snapshot.result import CELL, ROWS, finite
from harness.task.audit.difference import SAME
from harness.task.audit.finding import Finding
from harness.task.audit.rounding import MARGIN, SIDES, UNMEASURED, WHY
from harness.task.audit.source import read

INTERVALS = ("low", "high", "delta_low", "delta_high")
NUMBERS = ("nll", "kl", "key_error", "value_error", "margin")  # which rounding moves
TOKENS = ("ids", "said", "exact", "contains", "divergence_step", SHOWN)  # which a near tie moves
FOLLOWS = "not what the record's own answers give"
Place = tuple[Any, ...]


def evaluation(run: Path) -> Evaluation | None:
    """What a run of task=evaluate left; None of another task, and of one that came to no end."""
    result = read(run / "result.json")
    ended = result.get("task") == "evaluate" and "stages" not in result
    return Evaluation.read(result, run.joinpath) if ended else None


def differences(was: Evaluation, now: Evaluation, exact: bool) -> Iterator[Finding]:
    """All of the record `was` that its second run `now` does not say, or its own answers do not give.

    exact: whether the bits are the same; elsewhere `rounding` compares what was computed.
    """
    others = _others(was, now)
    for number in others:
        one, two = (vars(e.asking[number]) if number < len(e.asking) else None for e in (was, now))
        yield Finding(f"{ASKED}: {number}", one, two, "another question is asked today")
    if [*was.places] != [*now.places] or len(was.places) != len(was.answers):
        why = "answers are missing, added or moved"
        yield Finding(f"{ANSWERS}: answers", len(was.answers), len(now.answers), why)
    for place, two in now.places.items():
        one = was.places.get(place)
        if one is None or _number(place) in others:
            continue
        free = () if exact else (*NUMBERS, *TOKENS)
        for key in dict.fromkeys([*one, *two]):
            if key not in free and not key.endswith("_s") and one.get(key) != two.get(key):
                yield Finding(f"{_answer(place)}: {key}", one.get(key), two.get(key), SAME)
    yield from following(was)
    if exact and not others:
        yield from _rows(was.rows, now.rows, exact, ("per_token_s",), SAME)


def following(was: Evaluation) -> Iterator[Finding]:
    """Marks that the words of an answer do not give, rows that the answers do not, and the code of the outcome."""
    for place, answer in was.places.items():
        number, same = _number(place), was.answered[answer["question"]]
        whole = next(a for a in same if a["cache"] == answer["cache"])
        step = differ(answer["ids"], whole["ids"], whole["divergence_step"])
        marks = scores(answer["said"], was.asking[number]) if number < len(was.asking) else {}
        for key, mark in {**marks, "divergence_step": step}.items():
            if answer.get(key) != mark:
                yield Finding(f"{_answer(place)}: {key}", answer.get(key), mark, FOLLOWS)
    yield from _rows(was.rows, finite(was.averages), False, (), FOLLOWS)
    known = (was.result.get("evaluation") or {}).get("code")  # none in older records
    if known not in (None, now := code(was.averages)):
        yield Finding("evaluation.code", known, now, FOLLOWS)


def _rows(
    was: list[Row], now: list[Row], exact: bool, free: tuple[str, ...], why: str
) -> Iterator[Finding]:
    """Rows that are not the same: to the bit, what was averaged anew to the rounding of its sums."""
    ours, again = ({tuple(r[k] for k in (*CELL, "measure")): r for r in t} for t in (was, now))
    if [*ours] != [*again] or len(ours) != len(was):
        yield Finding(f"{ROWS}: rows", len(was), len(now), why)
    for place in [p for p in ours if p in again]:
        one, two = ours[place], again[place]
        for key in dict.fromkeys([*one, *two]):
            rough = key in INTERVALS or not exact
            same = one.get(key) == two.get(key) or (
                rough and _near(one.get(key), two.get(key), two)
            )
            if key not in free and not same:
                what = f"{ROWS}: {_cell(two)} {two['measure']}: {key}"
                yield Finding(what, one.get(key), two.get(key), why)


def _near(one: Any, two: Any, row: Row) -> bool:
    """Whether two orders of one sum over the prompts may give these."""
    numbers = [abs(v) for v in row.values() if isinstance(v, float)]
    if not isinstance(one, float) or not isinstance(two, float):
        return False
    return abs(one - two) <= row["n"] * torch.finfo(torch.float64).eps * max(numbers)


def apart(was: Evaluation, now: Evaluation) -> bool:
    """Whether any answer was computed otherwise."""
    return any(
        one.get(key) != now.places.get(place, one).get(key)
        for place, one in was.places.items()
        for key in (*NUMBERS, *TOKENS)
    )


def rounding(
    was: Evaluation, now: Evaluation, other: Evaluation | None
) -> tuple[list[Finding], dict[str, str]]:
    """Answers that rounding does not explain; and what was not compared, since rounding decides it.

    other: the evaluation a third time, in another precision. Another token is rounding where that one
    says another too, or where the second best missed the best by less than the floor of such gaps.
    """
    others = _others(was, now)
    findings, floors, ties = [], _floors(now, other) if other else {}, []
    for place, one in was.places.items():
        two = now.places.get(place)
        if two is None or _number(place) in others:
            continue  # named as missing, or as another question
        third = other.places.get(place) if other else None
        for key in NUMBERS:
            a, b, floor = one.get(key), two.get(key), floors.get((*place[1:], key))
            if a == b or (key == "margin" and one.get("ids") != two["ids"]) or key not in one:
                continue
            if floor is None or a is None or b is None or not abs(a - b) <= floor:
                why = UNMEASURED if floor is None else f"{WHY}: {floor:.3g}"
                findings.append(Finding(f"{_answer(place)}: {key}", a, b, why))
        if one["ids"] != two["ids"]:
            near = third and two["margin"] <= floors.get((*place[1:], "margin"), 0.0)
            if near or (third and third["ids"] != two["ids"]):
                ties.append(_answer(place))
            else:
                why = UNMEASURED if third is None else "no near tie: rounding does not decide it"
                findings.append(Finding(f"{_answer(place)}: said", one["said"], two["said"], why))
        elif one["said"] != two["said"]:
            findings.append(Finding(f"{_answer(place)}: said", one["said"], two["said"], SAME))
    left = {f"{len(ties)} of {len(was.places)} answers": f"a near tie: {'; '.join(ties)}"}
    return findings, left if ties else {}


def _floors(now: Evaluation, other: Evaluation) -> dict[Place, float]:
    """How far two honest roundings of a cell's measure may lie apart."""
    dtype = getattr(torch, now.result["environment"]["dtype"])
    unit, gaps, largest = torch.finfo(dtype).eps, dict[Place, float](), dict[Place, float]()
    scale = unit / torch.finfo(torch.float32).eps if dtype == torch.float64 else 1.0
    for place, answer in now.places.items():
        beside = other.places.get(place, {})
        for key in NUMBERS:
            a, b = answer.get(key), beside.get(key)
            if a is None or b is None or (key == "margin" and answer["ids"] != beside["ids"]):
                continue
            where = (*place[1:], key)
            gaps[where] = max(gaps.get(where, 0.0), scale * abs(a - b))
            largest[where] = max(largest.get(where, 0.0), abs(a))
    return {where: SIDES * MARGIN * gap + unit * largest[where] for where, gap in gaps.items()}


def _others(was: Evaluation, now: Evaluation) -> list[int]:
    """The numbers of the questions that are not the same; none where a record kept none."""
    pairs = zip_longest(was.asking, now.asking)
    return [n for n, (one, two) in enumerate(pairs) if one != two] if was.asking else []


def _number(place: Place) -> int:
    return int(place[0].partition("/")[0])


def _answer(place: Place) -> str:
    return f"{ANSWERS}: {place[0]} {_cell(dict(zip(CELL, place[1:], strict=False)))}"


def _cell(row: Row) -> str:
    return f"{name(row)}, {row['cache']}, asked {row['asked']}"
