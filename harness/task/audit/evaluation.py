"""An evaluation beside its second run: every answer again, and what follows from the answers.

Words make an answer right or wrong, answers an average and its interval, averages the sentence: all of it
is made from them again, so that no row and no sentence can be edited alone, wherever the record was made.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import zip_longest
from math import isfinite
from pathlib import Path
from typing import Any

import torch

from harness.pipeline import environment
from harness.pipeline.evaluation.answers import SHOWN, differ
from harness.pipeline.evaluation.record import ANSWERS, ASKED, FILES, Evaluation
from harness.pipeline.evaluation.rows import Row
from harness.pipeline.questions.question import Question
from harness.pipeline.questions.score import scores
from harness.present.messages import worded
from harness.report.evaluate.page import conclusion, name
from harness.snapshot import record as records
from harness.snapshot.cells import code
from harness.snapshot.result import CELL, ROWS, UNJUDGED, finite
from harness.task.audit.derivation import ALONE, prints, words
from harness.task.audit.finding import Finding
from harness.task.audit.rounding import MARGIN, SIDES, UNMEASURED, WHY

INTERVALS = ("low", "high", "delta_low", "delta_high")
NUMBERS = ("nll", "kl", "key_error", "value_error", "margin")  # which rounding moves
SAID = ("ids", "said", "exact", "contains", "divergence_step")  # follow from the tokens
AGAIN = "the evaluation run again does not say this"
Place = tuple[Any, ...]


def differences(was: Evaluation, now: Evaluation, exact: bool) -> Iterator[Finding]:
    """All of the record `was` that its second run `now` does not say, or its own answers do not give.

    exact: whether the bits are the same; elsewhere `rounding` compares what was computed.
    """
    others = _others(was, now)
    for number in others:
        one, two = (vars(e.asking[number]) if number < len(e.asking) else None for e in (was, now))
        why = "something else is asked today: the file, or what generates it, has changed"
        yield Finding(f"{ASKED}: {number}", one, two, why)
    if [*was.places] != [*now.places] or len(was.places) != len(was.answers):
        apart = was.places.keys() ^ now.places.keys()
        which = min(map(_answer, apart)) if apart else "the order"
        why = f"answers are missing, added or moved, {which} among them"
        yield Finding(f"{ANSWERS}: answers", len(was.answers), len(now.answers), why)
    for place, two in now.places.items():
        one = was.places.get(place, two)
        if _number(place) in others:
            continue
        free = () if exact else (*NUMBERS, *SAID, SHOWN)
        free = free if SHOWN in one else (*free, SHOWN)  # an older one; it follows from the ids
        keys = [k for k in dict.fromkeys([*one, *two]) if k not in free and not k.endswith("_s")]
        if unlike := [key for key in keys if one.get(key) != two.get(key)]:
            said, says = ({key: answer.get(key) for key in unlike} for answer in (one, two))
            yield Finding(f"{_answer(place)}: {', '.join(unlike)}", said, says, AGAIN)
    named = set()
    for finding in _following(was, was.asking or now.asking, exact):
        named.add(finding.what)
        yield finding
    if exact and not others:
        again = _rows(was.rows, now.rows, exact, ("per_token_s",), AGAIN)
        yield from (finding for finding in again if finding.what not in named)


def told(point: Path, result: Mapping[str, Any]) -> Iterator[Finding]:
    """What of an evaluation in `point` whose seal is broken its own words, answers and averages do not give: which
    answers were edited, and which cells say something else than the answers do."""
    ended = result.get("task") == "evaluate" and "stages" not in result
    files = {what for what, was, _ in records.broken(point) if was is not None}
    if ended and files & {*FILES}:
        was = Evaluation.read(result, point.joinpath)
        yield from _following(was, was.asking, True)


def _following(told: Evaluation, asking: list[Question], exact: bool) -> Iterator[Finding]:
    """What the record's own words, answers and averages do not give. A mark that was edited is not averaged: the averages
    are held to what the words give."""
    mended: dict[tuple[Any, ...], dict[str, Any]] = {}
    for place, answer in told.places.items():
        number, same = _number(place), told.answered[answer["question"]]
        whole = next(a for a in same if a["cache"] == answer["cache"])
        step = differ(answer["ids"], whole["ids"], whole["divergence_step"])
        marks = scores(answer["said"], asking[number]) if number < len(asking) else {}
        for key, mark in {**marks, "divergence_step": step}.items():
            if answer.get(key) != mark:
                why = "not what the words and tokens of this answer give"
                mended.setdefault(place, {})[key] = mark
                yield Finding(f"{_answer(place)}: {key}", answer.get(key), mark, why)
    if mended:
        keys = ("question", *CELL)
        lines = [
            {**line, **mended.get(tuple(line[key] for key in keys), {})} for line in told.answers
        ]
        told = replace(told, answers=lines)
    yield from _rows(told.rows, finite(told.averages), exact, (), "not what its answers give")
    known = (told.result.get("evaluation") or {}).get("code")  # none in older records
    if known not in (None, now := code(told.averages)):
        yield Finding("evaluation.code", known, now, "not what its answers give")
    if told.result.get("verdict") == UNJUDGED:
        reason, said = worded(told.result.get("reason"), plain=True), conclusion(told.averages)
        ours = (told.result.get("environment") or {}).get("code") == environment.code()
        if reason != said and (ours or words(reason) == words(said)):
            yield Finding("reason", reason, said, "not what its answers give")
        elif reason != said:
            yield from _claims(str(reason), said, told.averages)


def _claims(reason: str, said: str, rows: list[Row]) -> Iterator[Finding]:
    """What a sentence of another version says in numbers that no answer gives: of a cell that it names, and
    of any other number that stands alone. said: what this version says."""
    why, known = "the sentence says this, and no answer gives it", {*ALONE.findall(said)}
    full = {row["asked"]: row["kv_bytes"] for row in reversed(rows)}  # the full cache comes first
    numbers, right = [], dict[str, list[str]]()
    for row in rows:
        keys = ("value", "budget", *INTERVALS)
        parts = [row[key] for key in keys if row.get(key) is not None]
        parts += [row["kv_bytes"] / full[row["asked"]], row["value"] - (row["low"] or 0.0)]
        numbers += [row["n"], *parts, *(100 * part for part in parts)]
        if row["measure"] == "contains":
            right.setdefault(name(row), []).append(f"{row['value']:.0%}")
    named = "|".join(map(re.escape, sorted(right, key=len, reverse=True)))
    for cell, share in re.findall(rf"\b({named}): (\d+%)", reason):
        if share not in right[cell]:
            yield Finding("reason", f"{cell}: {share}", right[cell], why)
    numbers += [float(round(number)) for number in numbers if isfinite(number)]
    for claim in ALONE.findall(reason):
        if claim not in known and not any(prints(abs(number), claim) for number in numbers):
            yield Finding("reason", claim, None, why)


def _rows(
    was: list[Row], now: list[Row], exact: bool, free: tuple[str, ...], why: str
) -> Iterator[Finding]:
    """Rows that are not the same: to the bit where they may be, intervals and what was averaged elsewhere
    to the rounding of their sums."""
    ours, again = ({tuple(r[k] for k in (*CELL, "measure")): r for r in t} for t in (was, now))
    if [*ours] != [*again] or len(ours) != len(was):
        yield Finding(f"{ROWS}: rows", len(was), len(now), f"another table, {why}")
    for place in [p for p in ours if p in again]:
        one, two = ours[place], again[place]
        rough = INTERVALS if exact else (*one, *two)
        if unlike := [
            key
            for key in dict.fromkeys([*one, *two])
            if key not in free
            and one.get(key) != two.get(key)
            and not (key in rough and _near(one.get(key), two.get(key), two))
        ]:
            said, says = ({key: row.get(key) for key in unlike} for row in (one, two))
            what = f"{ROWS}: {_cell(two)} {two['measure']}: {', '.join(unlike)}"
            yield Finding(what, said, says, why)


def _near(one: Any, two: Any, row: Row) -> bool:
    """Whether two orders of one sum over the prompts may give these."""
    numbers = [abs(v) for v in row.values() if isinstance(v, float)]
    if not isinstance(one, float) or not isinstance(two, float):
        return False
    return abs(one - two) <= row["n"] * torch.finfo(torch.float64).eps * max(numbers)


def apart(was: Evaluation, now: Evaluation) -> bool:
    """Whether any answer was computed otherwise."""
    keys = (*NUMBERS, *SAID)
    return any(
        one.get(key) != now.places.get(place, one).get(key)
        for place, one in was.places.items()
        for key in keys
    )


def rounding(
    was: Evaluation, now: Evaluation, other: Evaluation | None
) -> tuple[list[Finding], dict[str, float], dict[str, str]]:
    """Answers that rounding does not explain; the floors allowed, by cell and measure; what was not
    compared, since rounding decides it.

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
            findings.append(Finding(f"{_answer(place)}: said", one["said"], two["said"], AGAIN))
    used = {f"{_cell(dict(zip((*CELL, 'measure'), p)))} {p[-1]}": f for p, f in floors.items()}
    told = {f"{len(ties)} of {len(was.places)} answers": f"a near tie: {'; '.join(ties)}"}
    return findings, used, told if ties else {}


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
    return f"{ANSWERS}: {place[0]} {_cell(dict(zip(CELL, place[1:])))}"


def _cell(row: Row) -> str:
    return f"{name(row)}, {row['cache']}, asked {row['asked']}"
