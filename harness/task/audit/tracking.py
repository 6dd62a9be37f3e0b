"""What a tracking server was told of a run, of its cells and of a sweep: derived again from their folders by
the functions that told it."""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness import track
from harness.report.evaluate import page as evaluate
from harness.report.sweep import cells as answers
from harness.report.sweep import evaluated, rounding, search, seeds, summary, unfinished, variation
from harness.report.sweep import page as pages
from harness.report.sweep.verdicts import WHY
from harness.snapshot import record as records
from harness.snapshot.result import ROWS
from harness.task.audit import wording
from harness.task.audit.source import read
from harness.track import contents, description, lists, names, parent, parts, remnant
from harness.track import metrics as measured
from harness.track.totals import first, summed, totals

Result = dict[str, Any]
Values = dict[str, dict[int, float]]  # by name and step


@dataclass(frozen=True)
class Told:
    """status: empty where the record does not say. notes: its description, in every form that an honest one may
    have; none where it is not derived. once: what an older version said of its outcome. before: what it said of
    tags and parameters, by name. sizes: and what of sizes, which were of what was read."""

    name: str
    word: str
    tags: dict[str, str]
    params: dict[str, str]
    metrics: Values
    status: str = ""
    notes: list[str] = field(default_factory=list)
    once: str = ""
    before: dict[str, str] = field(default_factory=dict)
    sizes: dict[str, float] = field(default_factory=dict)

    def claims(self, said: str) -> str:
        """What a server may claim in place of `said`."""
        return f"{said} {self.once}"


def run(folder: Path, result: Result, held: dict[str, Any], theres: Iterable[str]) -> Told:
    """Of a single run or a point. held: the run as the server has it. theres: as of `description.there`, those that its
    description may end with."""
    config = read(folder / records.NAME).get("config") or {}
    rows = _cells(folder, result)
    return Told(
        names.of_run(result, folder, str(config.get("name"))),
        contents.word(result, folder),
        {**_formerly(result, config), **contents.tags(result, folder)},
        dict(contents.parameters(folder)),
        _stepped(
            [*measured.metrics(result, once=True), *measured.turns(folder), *parts.above(rows)]
        ),
        contents.status([result]),
        [
            description.note(result, held["id"], folder, rows, there)
            for there in dict.fromkeys(theres)
        ],
        _once(folder) if rows else "",
        _before(folder, config, result),
        {f"size/{key}": float(v) for key, v in (result.get("size") or {}).items() if v is not None},
    )


def called(point: Path, sweep: Path | None) -> str:
    """The name of what is audited, without its outcome: of a run by itself, or of `sweep`; empty where an edited
    record gives none."""
    try:
        if sweep:
            return track.sweep_name(sweep)
        name = (read(point / records.NAME).get("config") or {}).get("name")
        return names.begun(read(point / "result.json"), point, str(name))
    except Exception:  # an edited record holds anything
        return ""


def _formerly(result: Result, config: Result) -> dict[str, str]:
    """The tags that older versions told beside those of this one: the options and the digests of the elements."""
    told = {
        f"element.{entry['number']:02d}_{entry['name']}": entry["digest"][:16]
        for entry in result.get("elements") or []
    }
    if result.get("task") == contents.AUDIT:
        return told | {"option.task": contents.AUDIT}
    options = dict(result.get("options") or {}) | ({"prompt": "text"} if config.get("text") else {})
    options |= {key: some for key, some in lists.options(config).items() if key in options}
    return told | {f"option.{key}": str(option) for key, option in options.items()}


def _before(folder: Path, config: Result, result: Result) -> dict[str, str]:
    """The one option that its configuration holds, where this version tells the several that its task took, the
    conclusion as it was recorded, and the first line of the reason."""
    one = contents.configured(folder)
    held = _once_told(config) | {key: one[key] for key in lists.options(config) if key in one}
    said = str(result.get("conclusion") or result.get("reason"))[: contents.PARAM_LIMIT]
    reason = str(result.get("reason")).partition("\n")[0][: contents.PARAM_LIMIT]
    once = {"conclusion": said, "reason": reason}
    once["snapshot_id"] = str((result.get("snapshot") or {}).get("id"))  # of a resume what it read
    return held | {f"option.{key}": value for key, value in held.items()} | once


def _once_told(config: Result) -> dict[str, str]:
    """Parameters as older versions told them: each list as JSON, and of a model the option that was chosen, where this
    one says which folder it is."""
    some = {key: value for key, value in contents.flat(config) if isinstance(value, list)}
    told = {contents.safe(k): json.dumps(v)[: contents.PARAM_LIMIT] for k, v in some.items()}
    return told | {"model": str((config.get("model") or {}).get("name"))}


def _once(folder: Path) -> str:
    """The outcomes of an evaluation as older versions told them."""
    told = [say(folder, parts.contained) for say in (parts.answered, parts.ranged)]
    return " ".join([*told, parts.ranged(folder)])


def cells(folder: Path, result: Result) -> list[Told]:
    """Of the runs below that of an evaluation, one for each cell; none where they were too many."""
    above, config = contents.configured(folder), contents.config(folder)
    made = []
    for row in _cells(folder, result):
        said = parts.told(row, description.of_part(folder))
        once = parts.told(row, say=parts.contained)
        before = {key: once[key] for key in ("conclusion",) if key in once} | _once_told(config)
        figures = _stepped((k, float(v), 0) for k, v in row["metrics"].items())
        params = parts.parameters(row, above)
        notes = [said["mlflow.note.content"]] if said else []
        tags = {**contents.of_part(result), **row["tags"], **said}
        word = said.get("outcome", "")
        made.append(
            Told(
                row["name"], word, tags, params, figures, "", notes, once.get("outcome", ""), before
            )
        )
    return made


def sweep(folder: Path, points: list[Path], held: dict[str, Any], theres: Iterable[str]) -> Told:  # fmt: skip
    """Of the run above the points of a sweep, which are those with a result. held, theres: as of `run`."""
    known = parent.known(folder)
    if known.get(remnant.CUT):
        return _cut(folder, held, known.get("asked"))
    rows = pages.rows(points)
    ways = search.ways(folder, rows)
    document = read(folder / "sweep.json")
    asked = document.get("asked", document.get("points"))
    former = summary.said(rows, ways, asked, once=True)
    chosen, rows = answers.conclusion(folder, rows), evaluated.completed(folder, rows)
    spread = seeds.told(rows, variation.varied(rows, ways))
    words, sentence, table, best = summary.said(rows, ways, asked, chosen, spread)
    seen = wording.seen(rows)
    tables = [
        summary.markdown(unfinished.diagnosed(folder, rows, WHY), ways),
        table,
        summary.markdown(rows, ways, each=True),
        summary.markdown(seen, ways),
    ]
    once = summary.told(rows, ways, asked, once=True)[1] or summary.measured(rows, ways, once=True)
    plain = summary.measured(rows, ways)  # of one point alone beside the full cache, once
    missing = len(rows) < (asked or 0)
    marked = list(summary.winners(rows, ways)[0])
    alike = seeds.alike(rows, variation.varied(rows, ways), marked)
    unnamed = wording.unnamed(words, bool(alike))
    older = summary.winners(rows, ways, once=True)
    formerly = older[1][0]["point"] if older[1] else ""
    if held["tags"].get("best") == summed(folder, rows, formerly, list(older[0])).get("best"):
        best, marked = formerly, list(older[0])
        tables.append(summary.markdown(rows, ways, once=True))
    axes = variation.varied(rows, ways)
    tables += [wording.once_best(some, rows, axes) for some in tables]
    tables += [rounding.NEAR.sub("", some) for some in tables]
    point = first(best, marked)
    ended = summed(folder, rows, point, marked, not missing, sentence)
    alone = [summed(folder, rows, point, some, not missing) for some in (marked, [])]
    before_these = (
        summary.once_marked(rows, ways),
        list(summary.winners(rows, ways, each=True)[0]),
        list(summary.winners(seen, ways)[0]),
    )
    for some in before_these:
        alone.append(summed(folder, rows, "", some, not missing, sentence))
    alone += [{**told, "best": wording.once_named(told.get("best", ""))} for told in alone]
    once_best = [told for told in alone if told.get("best") == held["tags"].get("best")]
    before = held["metrics"]  # what an earlier try counted, and is zero now
    broken = any(row["verdict"] == "failed" for row in rows)
    tail = held["tags"].get("reason", "") if missing or broken else ""
    text, lasted = description.unfinished(sentence, tail), before.get(parent.WORKED)
    notes = [
        description.of_sweep(
            words,
            text,
            "",
            some,
            description.repeated(folder, point, held["id"], there, lasted, len(marked)),
        )
        for there in dict.fromkeys(theres)
        for some in tables
    ]
    return Told(
        names.ended(track.sweep_name(folder), words),
        words,
        _said(folder, words, sentence) | ended,
        dict(parent.parameters(folder)),
        _stepped(totals(rows, evaluated.sought(rows, ways), before, best, alike)),
        "KILLED" if missing else contents.status(rows),
        notes,
        before=_typed(folder, held["params"])
        | dict.fromkeys(
            ("verdict", "outcome"),
            unnamed if unnamed == held["tags"].get("outcome") else wording.best_first(former[0]),
        )
        | dict(*once_best[:1])  # as older versions named it
        | {
            "conclusion": wording.older(
                [
                    *(sentence, *wording.unstopped(sentence), once, words, plain),
                    *(*former[:2], *wording.unstopped(former[1])),
                ],
                held["tags"].get("conclusion"),
                rows,
            )
        },
    )


def _cut(folder: Path, held: dict[str, Any], asked: int | None) -> Told:
    """Of the run above the points of a sweep whose process was gone before its end."""
    left = remnant.left(folder, asked)
    return Told(
        names.ended(track.sweep_name(folder), left.words),
        left.words,
        _said(folder, left.words, left.sentence),
        dict(parent.parameters(folder)),
        _stepped(totals(left.rows, (), held["metrics"])),
        "KILLED",
        before=dict.fromkeys(("verdict", "outcome"), wording.best_first(left.words)),
    )


def _said(folder: Path, words: str, sentence: str) -> dict[str, str]:
    """The tags of a sweep's run, and its verdict, which was its outcome in older versions."""
    told = parent.told(words, sentence)
    return {"verdict": words, **parent.tags(folder), **parent.commit(folder), **told}


def _typed(folder: Path, there: dict[str, str]) -> dict[str, str]:
    """The parameters of a sweep's run as the older version told them that told those which are `there`: what was typed,
    some with a space between its values."""
    typed = {**parent.fixed(folder), **contents.axes(folder)}
    told = {}
    for key, value in typed.items():
        forms = [form[: contents.PARAM_LIMIT] for form in (value, lists.bracketed(value))]
        told[contents.safe(key)] = forms[there.get(contents.safe(key)) == forms[1]]
    return told


def _cells(folder: Path, result: Result) -> list[dict[str, Any]]:
    """The rows of the runs below that of an evaluation; none of another task, or of one that came to no end."""
    table = read(folder / ROWS, list) if result.get("task") == "evaluate" else []
    return evaluate.children(table) if table else []


def _stepped(figures: Iterable[tuple[str, float, int]]) -> Values:
    made: Values = {}
    for key, value, step in figures:
        made.setdefault(key, {})[step] = value
    return made
