"""What a record says beside what its second run says, as an audit counts and shows it: each figure, the tokens,
the digests of the elements, and of a run that was refused what it names of the refusal."""

from collections.abc import Callable, Mapping
from itertools import zip_longest
from pathlib import Path
from typing import Any

from harness import foreign
from harness.report.audit import answered
from harness.report.html import cell
from harness.report.names import plain
from harness.snapshot.elements import spoken
from harness.snapshot.result import ROWS, counted, outcome

DIGITS = 6  # of two figures that are not the same
SHORT = 26  # characters that no narrow screen breaks
SAME = "the same"
NAMED = ("cause", "element", "layer", "head", "token", "evidence")  # of a diagnosis
LISTS = {
    "text.token_ids": "tokens of the uninterrupted run",
    "text.restored_ids": "tokens of the restored run",
    "elements": "digests of the elements",
    "curves": "figures per step",
    "noise_floor": "figures of the noise floor",
    "soundness": "figures of the yardstick: its plain runs and their bounds",
    "diagnosis.picture": "errors by layer and token, in noise floors",
    "known.elements": "digests of what had been read",
}
WORDED = (
    "text.token_ids",
    "text.restored_ids",
    "elements",
    "known.elements",
    answered.ANSWERS,
)  # no figures
CAME = ("refused", "failed")
RESTORE = "itself.verdict"
ALLOWED = {
    RESTORE: "verdict: restored as saved",
    "verdict": "verdict: against the full cache",
    "oracle.ratio": "times the plain path's error against float64",
}  # of a pruned or quantized run, of which other logits may be all right
BLOCKS = {
    "metrics": "every figure of the logits",
    "noise_floor": "every figure of the noise floor",
    "oracle": "the errors against float64",
    "soundness": "the yardstick (its plain runs and their bounds)",
    "curves": "the figures of each step",
    "text": "the tokens",
    "elements": "the digests of the elements",
    "size": "sizes",
}  # of a `result.json`, as a person is told of them
UNTIMED = "Not compared: times, memory that was in use, the command that was typed, and places."


def results(folder: Path, told: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The recorded `result.json` and that of the second run, from their copies in the audit's `folder`, with what an
    evaluation said (`answered.KEY`)."""
    sides = []
    for side in ("recorded", "again"):
        path = copy(folder, told, side)
        one = shaped(foreign.read_json(path)) if path and path.is_file() else {}
        files = {name: copy(folder, told, side, name) or folder for name in (answered.SAID, ROWS)}
        sides.append(one | {answered.KEY: answered.lists(files.__getitem__)} if one else one)
    return sides


def shaped(result: Any) -> dict[str, Any]:
    """The blocks of a record that have the form in which a run writes them: an edited one holds anything."""
    return {
        key: value
        for key, value in (result.items() if isinstance(result, Mapping) else ())
        if value is None or key not in FORMS or FORMS[key](value)
    }


def _figures(block: Any) -> bool:
    return isinstance(block, Mapping) and not any(
        isinstance(v, str | list | Mapping) for v in block.values()
    )


def _rows(block: Any) -> bool:
    return isinstance(block, list) and all(isinstance(row, Mapping) for row in block)


FORMS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(("metrics", "oracle", "size"), _figures),
    **dict.fromkeys(("elements", "differences"), _rows),
    **dict.fromkeys(
        ("diagnosis", "text", "known", "itself"), lambda block: isinstance(block, Mapping)
    ),
    "verdict": lambda word: isinstance(word, str),
    "faults": lambda faults: isinstance(faults, list),
}  # of the blocks that an audit shows


def copy(
    folder: Path, told: Mapping[str, Any], side: str, file: str = "result.json"
) -> Path | None:
    """Where the copy of a file of one side lies."""
    named = (told.get(side) or {}).get(file) or {}
    return folder / Path(str(named["file"])).name if named.get("file") else None


def figures(result: Mapping[str, Any]) -> dict[str, Any]:
    """What came out, by its name; of a run that was refused, what it names of that. Of a task that judges and stores
    nothing no verdict and no sizes."""
    made = {key: result[key] for key in ("verdict",) if result.get(key) and outcome(result)}
    if alone := restored(result):
        made[RESTORE] = alone
    for block in ("metrics", "oracle", "size"):
        some = result.get(block) or {}
        for key, value in some.items() if block != "size" or any(some.values()) else ():
            if value is not None:
                made[f"{block}.{key}"] = counted(key, value)
    if came(result):
        cause = result.get("diagnosis") or {}
        made |= {f"diagnosis.{k}": cause[k] for k in NAMED if cause.get(k) is not None}
        for number, row in enumerate(result.get("differences") or [], 1):
            what = f"{spoken(str(row.get('element')))}: {row.get('field')}"
            made[f"differences.{number}"] = f"{what}: {row.get('saved')}, {row.get('found')}"
    return made


def restored(result: Mapping[str, Any]) -> str | None:
    """The verdict on the restore alone, where the run's own is one on what was left out of the state."""
    block = result.get("itself") or {}
    return block.get("verdict") if block.get("against") == "saved" else None


def came(result: Mapping[str, Any]) -> str | None:
    """`refused` or `failed` of a run that came to no end; None of any other."""
    verdict = result.get("verdict")
    return verdict if verdict in CAME and "stages" in result else None


def lists(result: Mapping[str, Any]) -> dict[str, list[Any]]:
    """Tokens, digests and rows of figures that the record has, each as one list."""
    text, known = result.get("text") or {}, result.get("known") or {}
    made = {f"text.{key}": flat(text.get(key)) for key in ("token_ids", "restored_ids")}
    for key, rows in (("elements", result.get("elements")), ("known.elements", known.get("elements"))):  # fmt: skip
        made[key] = [f"{e.get('name')} {e.get('digest')}" for e in rows or []]
    made["curves"] = flat(result.get("curves"))
    for key in ("noise_floor", "soundness"):
        made[key] = [v for v in flat(result.get(key)) if type(v) in (int, float)]
    made["diagnosis.picture"] = flat((result.get("diagnosis") or {}).get("picture"))
    made |= result.get(answered.KEY) or {}
    return {key: values for key, values in made.items() if values}


def covered(folder: Path, document: Mapping[str, Any]) -> str:
    """What of the records was held beside the second run's, and what not, where any was run again to its end."""
    ended = [told for told in (document.get("evidence") or {}).values() if not told.get("came")]
    recorded = [results(folder, told)[0] for told in ended]
    held = [said for key, said in BLOCKS.items() if any(_holds(one, key) for one in recorded)]
    if not held:
        return ""
    if any(one.get(answered.KEY) for one in recorded):
        held = [*answered.MEASURED, *held]
    if any(map(outcome, recorded)):
        held = ["the verdict", *held]
    how = (
        "each the same to the last bit"
        if exact(document)
        else "each within its bound, where its row names one"
    )
    how = "" if document["differences"] else f"; {how}"
    return f"Compared: {listed(held)}{how}. {UNTIMED}"


def _holds(result: Mapping[str, Any], block: str) -> bool:
    """Whether a block of a record says anything; sizes that are all zero are those of what stores nothing."""
    values = flat(result.get(block))
    return any(values) if block == "size" else bool(values)


def flat(tree: Any) -> list[Any]:
    """Every value in nested lists and mappings, one after another."""
    if isinstance(tree, Mapping):
        tree = list(tree.values())
    if isinstance(tree, list):
        return [value for inner in tree for value in flat(inner)]
    return [] if tree is None else [tree]


def told(recorded: Mapping[str, Any], again: Mapping[str, Any]) -> dict[str, Any]:
    """What a headline says of a run: `came` to no end or None, its `verdict`, `named` of a refusal, how many `figures`, how many
    of them the `same`, how many `tokens`, how many `answers` of an evaluation, how many of them the `same_answers`."""
    recorded, again = shaped(recorded), shaped(again)
    was, said = figures(recorded), (recorded.get(answered.KEY) or {}).get(answered.ANSWERS, [])
    heard = (again.get(answered.KEY) or {}).get(answered.ANSWERS, [])
    same, every = tally(recorded, again)
    tokens = sum(len(values) for key, values in lists(recorded).items() if key.startswith("text."))
    named = [what for what in NAMED if f"diagnosis.{what}" in was]
    named += [key for key in ("differences", "faults") if recorded.get(key)]
    return {
        "came": came(recorded),
        "verdict": recorded.get("verdict"),
        **({"restore": alone} if (alone := restored(recorded)) else {}),
        "named": [*named, "reason"],
        "figures": every,
        "same": same,
        "tokens": tokens,
        "answers": len(said),
        "same_answers": sum(a == b for a, b in zip(said, heard)),
    }


def tally(one: Mapping[str, Any], two: Mapping[str, Any]) -> tuple[int, int]:
    """How many of the record's figures the second run has to the last digit, and how many there are: each that has a
    name, and those of every list of figures."""
    was, now, was_, now_ = figures(one), figures(two), lists(one), lists(two)
    pairs = [(value, now.get(what)) for what, value in was.items()]
    for what in (key for key in was_ if key not in WORDED):
        pairs += zip_longest(was_[what], now_.get(what, [])[: len(was_[what])])
    return sum(a == b for a, b in pairs), len(pairs)


def rows(one: Mapping[str, Any], two: Mapping[str, Any], held: Mapping[str, Any]) -> tuple[str, list[list[Any]]]:  # fmt: skip
    """In a sentence how many figures are the same; and a row for each, those that are not the same first, then one for
    the tokens, the digests and every other list. held: from `bounds`; empty where every one has to be the same."""
    was, now = figures(one), figures(two)
    order = sorted(dict.fromkeys([*was, *now]), key=lambda w: w != "verdict" and was.get(w) == now.get(w))  # fmt: skip
    made = []
    for what in order:
        bound = held.get(what) or {} if was.get(what) != now.get(what) else {}
        row = [label(what, RESTORE in was), *pair(was.get(what), now.get(what))]
        made.append(row + [bound.get(key, "") for key in ("held_to", "why")] * bool(held))
    was_, now_ = lists(one), lists(two)
    for what in dict.fromkeys([*was_, *now_]):
        first, second = was_.get(what, []), now_.get(what, [])
        bound = held.get(what) or {} if first != second else {}
        row = [LISTS.get(what) or answered.label(what), short(len(first)), beside(first, second)]
        made.append(row + [bound.get(key, "") for key in ("held_to", "why")] * bool(held))
    alike, every = tally(one, two)
    count = f"{alike:,} of {every:,}" if alike < every else f"all {every:,}"
    of = "what it names of the refusal" if came(one) == "refused" else "its figures"
    return (f"Of {of} {count} are the same to the last digit." if every else ""), made


def label(what: str, less: bool = False) -> str:
    """The name of a figure in a person's words. less: of a run whose state holds less than was read, of which another
    verdict than that on the restore is one on what was left out."""
    block, _, last = what.partition(".")
    if less and what in ALLOWED:
        return ALLOWED[what]
    if block == "diagnosis":
        return (
            last if last in ("cause", "element", "evidence") else f"first {last} beyond the noise"
        )
    return f"difference {last}" if block == "differences" else plain(what)


def beside(first: list[Any], second: list[Any]) -> Any:
    """How a list compares to the one of the second run."""
    if first == second:
        return short(SAME)
    if len(first) != len(second):
        return f"{len(second):,} of them"
    apart = [place for place, (a, b) in enumerate(zip(first, second)) if a != b]
    where = f"{len(apart):,} {'is another' if len(apart) == 1 else 'are others'}"
    value = first[apart[0]]
    named = f": {', '.join(str(first[p]).partition(' ')[0] for p in apart[:3])}" if isinstance(value, str) else ""  # fmt: skip
    return f"{where}{named or f', the first is number {apart[0] + 1:,}'}"


def pair(recorded: Any, again: Any) -> tuple[Any, Any]:
    """Two figures, to as many digits as tell them apart."""
    if recorded == again:
        return short(recorded), "" if recorded is None else short(SAME)
    if isinstance(recorded, float) and isinstance(again, float):
        recorded, again = apart(recorded, again)
    return short(recorded), short(again)


def short(value: Any) -> Any:
    """A cell that no narrow screen breaks; a whole number in groups of three digits; a sentence as it is."""
    if type(value) is int:
        value = f"{value:,}"
    wide = isinstance(value, str) and len(value) > SHORT
    return value if wide or value is None else cell(value, kind="n")


def apart(one: float, two: float) -> tuple[str, str]:
    """Two numbers to three digits, and to more where these do not tell them apart; where `DIGITS` do not either, by
    how much the second is more or less."""
    for digits in range(3, DIGITS + 1):
        said = f"{one:.{digits}g}", f"{two:.{digits}g}"
        if said[0] != said[1]:
            return said
    by = f"{abs(two - one):.2g} {'more' if two > one else 'less'}"
    return f"{one:.3g}", f"{two:.3g} ({by})"


def exact(document: Mapping[str, Any]) -> bool:
    """Whether nothing that decides the bits has changed."""
    changed = (document.get("environment") or {}).values()
    return not any(c.get("decisive") for rows in changed for c in rows)


def listed(words: list[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
