"""What older versions told of a sweep: the words that its run on a server may have in place of today's."""

import re
from typing import Any

from harness.report.picture import plots
from harness.report.sweep import (
    agreement,
    baseline,
    choice,
    conclusion,
    evaluated,
    inert,
    overall,
    price,
    pruned,
    seeds,
    summary,
    tally,
    tie,
    variation,
    which,
)
from harness.snapshot.result import ORDER
from harness.track import contents

MARKED = re.compile(
    r" \([^:]*\)(?=: points are compared)"
)  # which points, that older versions did not say
NATS = re.compile(r"(mean KL [^ ,)]+) nats")  # a unit that older versions did not say
COUNTED = rf"\d+ (?:{'|'.join(ORDER)})"
COUNTS = re.compile(rf"{COUNTED}(?:, {COUNTED})+")  # which older versions told the best first
REACH = re.compile(
    r", as far as [\d to]+ prompts? can tell(?=:)"
)  # of cells, that older versions did not say
OVER = re.compile(r"^(\d+ points over )[^:]+:")  # which named the seeds alone
EACH = re.compile(r" of rounding's own in each")
UNTOUCHED = re.compile(f"{conclusion.UNTOUCHED},?( |:)")
NEAREST = re.compile(
    r"(?<=[Tt]he )nearest(?=(?: so far)? (?:is marked for each|over \d+ values of) )"
)  # what older versions called the best
MEMORY = re.compile(
    r"([\d,]+) bytes, ([\d,]+) of them in memory alone"
)  # of which older versions told the rest
SPREAD = re.compile(
    r" \((?:mean KL [^()]* nats, )?[\d,]+(?: to [\d,]+)? bytes[^()]*\)"
)  # over seeds, of which older versions told no figure
UNPLACED = re.compile(
    r"(?<=bytes) on disk|(?<=B) on disk(?=\))"
)  # what older versions said of no size
REWORDED = {  # what is best of a sweep, and how older versions said that
    "The only one within rounding": "The only one to differ by no more than rounding",
    "The only one with the same tokens": "The only one to keep every token",
    " within rounding": " that differs by rounding",
    " with the same tokens": " that keeps every token",
    "The nearest ties with": "It ties with",
    "The nearest tie with": "They tie with",
    "The nearest policy": "The nearest",
    "Both came back": "All 2 came back",
    "both came back": "all 2 came back",
    "The pruned point came back": "It came back",
    "the pruned point came back": "it came back",
}
Result = dict[str, Any]


def _on_disk(found: re.Match[str]) -> str:
    whole, inside = (int(number.replace(",", "")) for number in found.groups())
    return f"{whole - inside:,} bytes"


def best_first(said: str) -> str:
    """Counts of verdicts as older versions told them."""

    def ordered(found: re.Match[str]) -> str:
        return ", ".join(sorted(found[0].split(", "), key=lambda n: ORDER.index(n.split()[1])))

    return COUNTS.sub(ordered, said)


def unnamed(words: str, over_seeds: bool = False) -> str:
    """How many points are safe, as older versions told it that named no cell of points which were asked different
    things. over_seeds: these were seeds, of which another has the same best cell."""
    cell = r": \S.*|, \S.* at most" if over_seeds else rf": \S.*{evaluated.EACH}"
    return re.sub(rf"(?<= safe)(?:{cell})$", "", words)


def once_named(name: str) -> str:
    """A point's name as it was while a policy's own seed was called as the run's is, and no policy had no budget."""
    return re.sub(r"\b\w+\.(?=(?:seed|steps)=)|(?<=\bprune=none) (?:tokens=)?[\d.]+", "", name)


def older(sentences: list[str], there: str | None, rows: list[Result] | None = None) -> str:
    """The conclusion of a sweep as that older version told it which told `there`. sentences: as this version tells
    it, and as it was told once. rows: its points."""
    told: list[str] = []
    axes = variation.varied(rows) if rows else []
    sentences = [*sentences, *_by_figures(sentences, rows or [], axes)]
    for before in (_among_all, _of_draws, _by_bytes, _of_ties, _of_each_seed, _of_seen):
        sentences = [*sentences, *before(rows or [], axes)]
    sentences = [*sentences, *(SPREAD.sub("", said) for said in sentences)]
    sentences = [*sentences, *_unparted(sentences, rows or [], axes)]
    sentences = [*sentences, *_of_digits(sentences, rows or [], axes)]
    sentences = [*sentences, *_refused_last(sentences, rows or [], axes)]
    if rows and not choice.short_of(baseline.tried(rows, axes)):
        sentences = [*sentences, *(NEAREST.sub("best", said) for said in sentences)]
    sentences = [*sentences, *_of_errors(sentences, rows or [])]
    sentences = [*sentences, *_of_all(sentences, rows or [], axes)]
    sentences = [*sentences, *_uncautioned(sentences, rows or [], axes)]
    counted = tally.sentence(baseline.tried(rows, axes), axes) if rows else ""
    bare = [said.replace(counted, "").strip() for said in sentences] if counted else []
    sentences = [*sentences, *bare, *(said[:1].upper() + said[1:] for said in bare)]
    beside = agreement.sentence(choice.leading(rows, axes), axes, rows) if rows else ""
    alone = [said.replace(beside, "").rstrip() for said in sentences] if beside else []
    sentences = [*sentences, *alone, *_of_controls(sentences, axes, rows or [])]
    sentences += [s.replace(". Nearest to", f". {pruned.POLICY} to") for s in sentences]
    for sentence in dict.fromkeys([*sentences, *map(best_first, sentences)]):
        few = MARKED.sub("", sentence)
        sized = UNPLACED.sub("", sentence)
        shorter = (
            sized,
            NATS.sub(r"\1", sized),
            few,
            REACH.sub("", sentence),
            MEMORY.sub(_on_disk, sentence),
        )
        brief = (NATS.sub(r"\1", sentence), NATS.sub(r"\1", few), *shorter, sentence)
        told += [said[: contents.PARAM_LIMIT] for said in brief]
    told += list(map(_reworded, told))
    plain = _read(there or "", axes, rows or [])
    return next((there or "" for said in told if said in (there, plain)), told[0])


def _of_controls(sentences: list[str], axes: list[str], rows: list[Result]) -> list[str]:
    """What was told while a control counted as chance whatever it kept, and while nothing was said of nearer logits,
    or of what each is held to."""
    some = overall.chosen(baseline.tried(rows, axes), axes)
    now, before = (agreement.control(some, axes, rows, once=once) for once in (False, True))
    near = agreement.nearer(some, axes, baseline.tried(rows, axes))
    held = agreement.held(some, axes, rows)
    told = [said.replace(now, before) for said in sentences] if now and now != before else []
    told += [said.replace(held, near).strip() for said in sentences if held and near]
    return told + [
        said.replace(more, "").replace("  ", " ").strip()
        for said in sentences
        for more in (near, held)
        if more and more in said
    ]


def _unparted(sentences: list[str], rows: list[Result], axes: list[str]) -> list[str]:
    """What was told while nothing was said of the first other token, of what writes into the cache, and of a sweep over seeds that they alone varied."""
    mine = baseline.tried(rows, axes)
    some, there = overall.chosen(mine, axes), baseline.policies(mine, axes)
    told: list[str] = []
    for now in (agreement.touching(some, axes, there), agreement.parting(some, axes, there)):
        more = [*sentences, *told]
        told += [said.replace(f" {now}", "") for said in more if now and now in said]
    drawn = " and ".join(filter(variation.is_seed, axes))
    over = [OVER.sub(rf"\1{drawn}:", said) for said in sentences] if drawn else []
    return told + [EACH.sub(" in each of rounding's own", said) for said in over]


def _by_figures(sentences: list[str], rows: list[Result], axes: list[str]) -> list[str]:
    """What was told over seeds while no option was said to tell the outcomes apart."""
    now, before = (seeds.told(rows, axes, once) if rows else "" for once in (False, True))
    before = before or summary.measured(rows)
    return [said.replace(now, before) for said in sentences if now and now in said]


def _of_digits(sentences: list[str], rows: list[Result], axes: list[str]) -> list[str]:
    """What was told while divergences of the same two digits tied, and each point that ties was told by itself."""
    mine = baseline.tried(rows, axes)
    asked = [(overall.chosen(mine, axes), baseline.policies(mine, axes))] if rows else []
    asked += [(choice.leading(rows, axes, once=True), rows)] if rows else []
    told = []
    for some, there in asked:
        if now := tie.sentence(some, axes, there):
            before = _tied(some, axes, there)
            told += [said.replace(now, before).replace("  ", " ").strip() for said in sentences]
    return told


def _tied(winners: list[Result], axes: list[str], rows: list[Result]) -> str:
    """The sentence on such points; empty where there are none."""
    digits = {f"{row['kl_mean']:.2g}" for row in winners}
    names = {row["point"] for row in winners}
    others = [row for row in choice.able(rows) if row["point"] not in names]
    others = [row for row in others if f"{row['kl_mean']:.2g}" in digits]
    if not others or any(map(variation.asks, axes)):
        return ""
    called = [" ".join(f"{a}={plots.short(row[a])}" for a in axes) for row in others]
    told = [*called[: which.FEW], *[f"{len(called) - which.FEW} more"] * (len(called) > which.FEW)]
    ties, takes = ("tie", "take") if winners[1:] else ("ties", "takes")
    nats = f"{float(digits.pop()):g} nats"
    return f"The nearest {ties} with {' and '.join(told)} to two digits ({nats}) and {takes} the fewest bytes."


def _of_errors(sentences: list[str], rows: list[Result]) -> list[str]:
    """What was told while no point with codes counted in the largest error, and nothing was said of those left out."""
    known = [row if _exact(row) else {**row, "error_ratio": None} for row in rows]
    now, before = summary.measured(rows), summary.measured(known)
    return [said.replace(now, before) for said in sentences if now and now in said]


def _exact(row: Result) -> bool:
    return pruned.whole(row) and str(row.get("quantize") or "none") == "none"


def _of_all(sentences: list[str], rows: list[Result], axes: list[str]) -> list[str]:
    """What was told while points that came to no end counted among those that do not keep the tokens."""
    near = [r for some in choice.lacking(axes, baseline.tried(rows, axes)) for r in some]
    now, before = (
        choice.short_of(near)[:-1] if near else "",
        f"None of {len(near)} keeps the tokens",
    )
    if "that ran" not in now:
        return []
    pairs = ((now, before), (now[0].lower() + now[1:], before[0].lower() + before[1:]))
    return [said.replace(a, b) for said in sentences for a, b in pairs if a in said]


def _uncautioned(sentences: list[str], rows: list[Result], axes: list[str]) -> list[str]:
    """What was told while nothing was said of one prompt where a point keeps the tokens, or an answer is expected."""
    some = overall.chosen(baseline.tried(rows, axes), axes)
    caution = price.caution(some, axes, rows)
    return [said.replace(f" {caution}", "") for said in sentences if caution and caution in said]


def _refused_last(sentences: list[str], rows: list[Result], axes: list[str]) -> list[str]:
    """What was told while a nearer point that is refused came behind those that tie."""
    some = overall.chosen(baseline.tried(rows, axes), axes)
    held, *rest = agreement.each(some, axes, rows) or [""]
    if not held or held != agreement.held(some, axes, rows):
        return []
    last = agreement.control(some, axes, rows)
    before = " ".join([*(said for said in rest if said != last), held, last]).rstrip()
    return [said.replace(" ".join([held, *rest]), before) for said in sentences]


def once_best(table: str, rows: list[Result], axes: list[str]) -> str:
    """The table of a sweep as it was while the nearest of those that meet what is required was marked as best."""
    lacks = choice.lacking(axes, baseline.tried(rows, axes))
    near = {row["point"] for some in lacks for row in some}
    for place in (row["point"] for row in rows if row["point"] not in near):
        for mark in ("nearest policy", "nearest"):
            table = table.replace(f"| **{place}** ({mark}) |", f"| **{place}** (best) |")
    return table


def _among_all(rows: list[Result], axes: list[str]) -> list[str]:
    """What was told while the full cache and the control could be chosen, too: of a whole sweep, and of a part."""
    told = []
    for so_far in ("", " so far") if rows else ():
        some = choice.leading(rows, axes, once=True)
        said = conclusion.told(some, axes, rows, so_far, once=True)
        said = pruned.told(rows, some, axes, so_far, said).replace(pruned.POLICY, "Nearest") or said
        beside = [say(some, axes, rows) for say in (tie.sentence, agreement.sentence)]
        told.append(" ".join(filter(None, (said, *beside))))
    return [said for said in told if said]


def _by_bytes(rows: list[Result], axes: list[str]) -> list[str]:
    """What was told while points with other tokens were called the smallest, and with the right answer."""
    told, mine = [], baseline.tried(rows, axes)
    for so_far in ("", " so far") if rows else ():
        some = overall.chosen(mine, axes, once=True)
        said = conclusion.told(some, axes, mine, so_far, once=True)
        said = pruned.told(mine, some, axes, so_far, said) or said
        said = f"{said} {agreement.beside(some, axes, rows)}".rstrip()
        said = baseline.beside_full(said, rows, axes)
        told.append(said.replace(" to it (", " to the full cache ("))
    return [said for said in told if said]


def seen(rows: list[Result]) -> list[Result]:
    """The points as older versions saw them: a seed was a question also where it draws nothing, and one whose policy
    dropped nothing was none of the full cache."""
    once = [{**row, "sampling": ""} for row in rows]
    return [{**row, "tokens": None} if baseline.idle(row) else row for row in once]


def _of_seen(rows: list[Result], axes: list[str]) -> list[str]:
    """What was told of these."""
    if not rows:
        return []
    said = summary.told(before := seen(rows), {})[1]
    caution = price.caution(overall.chosen(baseline.tried(before, axes), axes), axes, before)
    told = [said, f"{said} {caution}".rstrip()]
    return told + [f"{said} {inert.DRAWS}" for said in told if inert.inert(rows, axes)]


def _of_ties(rows: list[Result], axes: list[str]) -> list[str]:
    """What was told while a question in which all points tie had no best one."""
    return _chosen_as(overall.of_each(baseline.tried(rows, axes), axes, once=True), rows, axes)


def _of_each_seed(rows: list[Result], axes: list[str]) -> list[str]:
    """What was told while no setting was best over the seeds, where each has another best point."""
    return _chosen_as(overall.of_each(baseline.tried(rows, axes), axes), rows, axes)


def _chosen_as(some: list[Result], rows: list[Result], axes: list[str]) -> list[str]:
    """What is told of a sweep of which these points are chosen."""
    told, mine = [], baseline.tried(rows, axes)
    for so_far in ("", " so far") if rows else ():
        said = conclusion.told(some, axes, mine, so_far)
        said = pruned.told(mine, some, axes, so_far, said) or said
        said = f"{said} {agreement.beside(some, axes, rows)}".rstrip()
        said = baseline.beside_full(said, rows, axes)
        told += [said, f"{said} {price.caution(some, axes, rows)}".rstrip()]
    return told


def _of_draws(rows: list[Result], axes: list[str]) -> list[str]:
    """What was told while the seed of an option could be chosen, as any other of its keys."""
    draws = {axis: f"{axis}_" for axis in axes if axis.endswith(".seed")}
    if not draws:
        return []
    once = [{draws.get(key, key): value for key, value in row.items()} for row in rows]
    (told,) = summary.told(once, {})[1:2]
    for axis, key in draws.items():
        told = told.replace(key, axis)
    return [told]


def _reworded(said: str) -> str:
    """What is best of a sweep in the words of older versions."""
    leaves = " that leaves" if "The only" in said else " and leaves"
    said = UNTOUCHED.sub(rf"{leaves} your cache as it was\1", said)
    for now, once in REWORDED.items():
        said = said.replace(now, once)
    return said


def _read(said: str, axes: list[str], rows: list[Result]) -> str:
    """A conclusion without what older versions said of options that the best points do not read: their values tie."""
    for axis in (axis for axis in axes if any(which.unread(axis, [row]) for row in rows)):
        key = re.escape(axis)
        tie = rf", where every value of {key} ties|(?<=value of ){key} and | and {key}(?= ties)"
        said = re.sub(tie, "", said)
    return said


def unstopped(sentence: str) -> list[str]:
    """The conclusion of a sweep that was stopped without those words, as older versions told it."""
    if not sentence.startswith(summary.STOPPED):
        return []
    few = sentence.removeprefix(summary.STOPPED)
    return [few, few.partition(". ")[2]]
