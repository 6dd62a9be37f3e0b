"""Where two texts differ, in words."""

import re
from collections.abc import Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any

from harness.snapshot.result import ORDER, UNJUDGED, worse

NO_NEARER = "No nearer than chance"  # of the nearest point of a sweep, where tokens kept at random come as near
FORCED = "at each step, the tokens of the uninterrupted run being fed (teacher forcing)"  # a choice
PURPOSE = (
    "pruned on purpose",
    "pruned and quantized on purpose",
    "quantized on purpose",
)  # as evidence of a diagnosis begins
BEFORE = 2  # words that both texts have, before the one that is another

Span = tuple[int, int]


def other(one: str, two: str) -> tuple[Span, Span] | None:
    """Where the first word that is another stands in each of two texts; None where they are the same."""
    if one == two:
        return None
    shorter = min(len(one), len(two))
    place = next((i for i, (a, b) in enumerate(zip(one, two)) if a != b), shorter)
    start = one.rfind(" ", 0, place + 1) + 1
    ends = ((text.find(" ", max(place, start)), len(text)) for text in (one, two))
    first, second = ((start, end if end >= 0 else last) for end, last in ends)
    return first, second


def others(one: str, two: str) -> tuple[list[Span], list[Span]]:
    """Where the words of each of two texts stand that the other one has not in their place, in order; neighbours
    each for itself. Texts of as many words are compared word by word, as what two runs chose step by step is."""
    words = tuple(list(re.finditer(r"\S+", text)) for text in (one, two))
    said = [[word[0] for word in some] for some in words]
    if len(said[0]) == len(said[1]):
        places = [{i for i, (a, b) in enumerate(zip(*said)) if a != b}] * 2
    else:
        steps = SequenceMatcher(None, said[0], said[1], autojunk=False).get_opcodes()
        steps = [step for step in steps if step[0] != "equal"]
        places = [
            {i for _, start, end, _, _ in steps for i in range(start, end)},
            {i for _, _, _, start, end in steps for i in range(start, end)},
        ]
    first, second = ([some[i].span() for i in sorted(at)] for some, at in zip(words, places))
    return first, second


def stepwise(said: Mapping[str, Any], one: str, two: str) -> tuple[list[Span], list[Span]]:
    """Where the tokens stand that a step chose otherwise, in each of two texts; by their words where the record does
    not say what each token reads as."""
    both = said.get("pieces")
    if not both:
        return others(one, two)
    ids = list(zip(said["token_ids"], said["restored_ids"]))
    other = {step for step, (a, b) in enumerate(ids) if a != b}
    return tuple(_spans(both[part], other) for part in ("continuation", "restored"))  # type: ignore[return-value]


def _spans(pieces: list[str], other: set[int]) -> list[Span]:
    """Of the steps in `other`, the characters of each without the spaces around them."""
    spans, place, waiting = [], 0, False
    for step, piece in enumerate(pieces):
        waiting |= step in other
        start, place = place + len(piece) - len(piece.lstrip()), place + len(piece)
        if piece and waiting:  # else it is part of a character that ends later
            spans.append((start, place - len(piece) + len(piece.rstrip())))
            waiting = False
    return [(start, end) for start, end in spans if start < end]


def quoted(one: str, two: str) -> tuple[str, str] | None:
    """That word of each text, with those before it; None where one of the two has ended there."""
    places = other(one, two)
    if places is None or any(start >= end for start, end in places):
        return None
    (start, end), (_, last) = places
    begin = start - len("".join(f"{word} " for word in one[:start].split()[-BEFORE:]))
    return one[begin:end], two[begin:last]


def numbered(text: Mapping[str, Any]) -> dict[str, Any]:
    """`text` of a result as a person reads it: ids that have no text by their number."""
    return {**text, **(text.get("shown") or {})}


def streamed(text: dict[str, Any]) -> tuple[str, str]:
    """What a resumed run was given to read, and what it said after that, of all that was streamed."""
    given, whole = str(text.get("added") or ""), str(text["streamed"])
    return (given, whole.removeprefix(given)) if given and whole.startswith(given) else ("", whole)


def apart(places: list[str]) -> list[str]:
    """Two folders by the last parts that differ, and each by its own last where all that the other has more is
    inside it; a number, as a sweep calls its points, with the folder that it is in; one alone as it is."""
    if not places[1:]:
        return places
    if len(set(places)) == 1:
        return [place.rstrip("/").rpartition("/")[2] for place in places]
    parts = [list(filter(None, place.split("/"))) for place in places]
    while min(map(len, parts)) > 1 and len({part[-1] for part in parts}) == 1:
        parts = [part[:-1] for part in parts]
    for most in range(1, max(map(len, parts)) + 1):
        short = ["/".join(part[-most:]) for part in parts]
        if len(set(short)) == len(short) and not any(map(str.isdecimal, short)):
            return short
    return [part[-1] if part else place for part, place in zip(parts, places)]


def spanned(numbers: Sequence[int]) -> str:
    """`0 to 27`, `0, 2 to 5`: rising whole numbers, neighbours as a span."""
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][-1] + 1:
            spans[-1] = [spans[-1][0], number]
        else:
            spans.append([number])
    return ", ".join(" to ".join(map(str, span)) for span in spans)


def purpose(result: Mapping[str, Any]) -> str:
    """What was done on purpose to the state that went on, as a word; empty of one that holds what was read."""
    return altered(result).replace("pruned", "pruning").replace("quantized", "quantizing")


def altered(result: Mapping[str, Any]) -> str:
    """The same of the state: `pruned`, `quantized`, both or nothing."""
    words = {"pruned": result.get("pruned"), "quantized": result.get("quantization")}
    return " and ".join(word for word, done in words.items() if done)


def listed(numbers: Sequence[Any]) -> str:
    """One number of each row in a sentence: `98`, `98, 97`."""
    return ", ".join(map(str, numbers))


def prunings(form: Mapping[str, Any]) -> list[str]:
    """What pruned a state, in the order of time: policy, budget and what it left. form: its document `kv_format`."""
    return [_pruning(stage) for stage in _stages(form, "pruned")]


def quantizings(form: Mapping[str, Any]) -> list[str]:
    """The same of what quantized it."""
    said = []
    for stage in _stages(form, "quantized"):
        recent = stage.get("recent")
        said.append(
            f"{stage.get('quantizer')}{f', the last {recent} tokens left as they are' * bool(recent)}"
        )
    return said


def _stages(form: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    stored = form.get(key)
    return [stage for stage in stored if isinstance(stage, Mapping)] if isinstance(stored, list) else []  # fmt: skip


def tokens_kept(result: Mapping[str, Any]) -> tuple[int, float]:
    """How many tokens a pruned state keeps: the layers and heads that keep the most, and the mean over them, which is
    the first where a record does not tell it of just these tokens."""
    size, block = result.get("size") or {}, result.get("kept") or {}
    few, heads = size.get("kept_tokens") or 0, block.get("heads") or 0
    held, left = block.get("held") or [], block.get("left_out") or 0
    if not heads or len(held) + left != size.get(
        "tokens"
    ):  # of a padded row, or of before others were read
        return few, few
    return few, block.get(
        "mean", few if left else sum(held) / heads
    )  # which older records do not tell


def uneven(few: int, mean: float) -> bool:
    """Whether layers or heads keep other numbers of tokens than the `few` that one keeps at most."""
    return mean < few - 0.5


def fewer(result: Mapping[str, Any]) -> bool:
    """Whether any layer or head is told to keep fewer tokens than were read."""
    few, mean = tokens_kept(result)
    return few < ((result.get("size") or {}).get("tokens") or 0) or uneven(few, mean)


def of_kept(result: Mapping[str, Any], of: str = "") -> str:
    """`on_average` of what a record says."""
    return on_average(*tokens_kept(result), of)


def on_average(few: int, mean: float, of: str) -> str:
    """`146`; of layers and heads that keep other numbers the mean of them and the most, `79 on average, at most 146`.
    of: what stands after the number."""
    return f"{mean:,.0f}{of} on average, at most {few:,}" if uneven(few, mean) else f"{few:,}{of}"


def _pruning(stage: Mapping[str, Any]) -> str:
    inside = "; ".join(_budget(one) for one in _stages(stage, "stages"))
    said = f"{_budget(stage)}{f' of {inside}' if inside else ''}"
    said += f": {stage.get('kept_tokens')} of {stage.get('from_tokens')} tokens kept"
    said += f" {stage['at']}" if "at" in stage else ""
    return said + ", at new positions" * (stage.get("positions") == "reindexed")


def _budget(stage: Mapping[str, Any]) -> str:
    """`knorm, ratio 0.5`"""
    asked = stage.get("budget")
    given = asked.items() if isinstance(asked, Mapping) else ()
    per_head = ", per head" * (stage.get("per_head") is True)
    return f"{stage.get('policy')}{''.join(f', {k} {v}' for k, v in given)}{per_head}"


def required(result: dict[str, Any]) -> str:
    """What the verdict had to be and the key that asks for it; where it is worse, that this is why the job
    fails, and what would let it through."""
    key = "compare.require_pruned" if result.get("pruned") else "compare.require"
    word, verdict = result["required"], result["verdict"]
    better = {"diverged": "nothing, other tokens are allowed", "exact": word}
    said = f"{better.get(word, f'{word} or better')} ({key}={word})"
    if worse(verdict, word):
        said += f"; this is {verdict}: exit code 1."
        return (
            f"{said} {key}={verdict} lets it through."
            if verdict in ORDER[: ORDER.index(UNJUDGED)]
            else said
        )
    itself = result.get("itself") or {}
    if itself.get("required") and worse(itself["verdict"], itself["required"]):
        return f"{said}; but beside itself in another cache it is {itself['verdict']}: exit code 1."
    return said


def on_purpose(diagnosis: Mapping[str, Any]) -> bool:
    """Whether what a diagnosis found is what was asked for, and no damage."""
    return str(diagnosis.get("evidence")).startswith(PURPOSE)


def cause(diagnosis: Mapping[str, Any]) -> str:
    """The word that a diagnosis begins with: what was asked for is no damage to a block."""
    return "AS ASKED" if on_purpose(diagnosis) else str(diagnosis.get("cause")).upper()


def unchosen(result: Mapping[str, Any]) -> str:
    """Why a run has the same tokens though at a step that reads a given text another one is most likely; empty where
    that is not so."""
    first = (result.get("metrics") or {}).get("first_divergence")
    read = (result.get("text") or {}).get("read") or 0
    if result.get("verdict") == "diverged" or first is None or first >= read:
        return ""
    return f"Step {first + 1} reads a token that was given: another one is most likely there, and chooses nothing."
