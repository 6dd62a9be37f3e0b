"""One sentence for a person: what a record says. It is built from the record alone."""

from collections.abc import Mapping
from math import inf, isclose, isfinite, isnan
from typing import Any

from harness.config import draws
from harness.machine import many
from harness.present.messages import coded, worded
from harness.present.refusal import kept_out
from harness.results.reason import Code, find
from harness.snapshot.result import GOOD, MOMENT, recomputing, timed_twice, times_faster
from harness.snapshot.words import fewer, numbered, of_kept, purpose, quoted

ALIKE = 1.15  # a ratio of two samples that says nothing about which is faster
LONG = 24  # characters of what is no word: tokens of which none is a space
WRONG = ("drifted", "diverged")
NO_NUMBERS = "its logits are not numbers"


def conclusion(result: Mapping[str, Any]) -> str:
    """The sentence for a `result.json` (its verdict, figures and sizes); never empty."""
    verdict = result.get("verdict") or "unjudged"
    if coded():
        return f"{verdict} {worded(result.get('reason'))}".strip()
    measured = (result.get("metrics") or {"none": 0}).values()
    if verdict in _SAID and all(value is None for value in measured):
        return _plain(result)  # a table of measurements: no two runs were compared
    sentence = _SAID.get(verdict, _plain)(result)
    if verdict not in _SAID or verdict == "unsound":
        return sentence
    again, back = recomputing(result)
    both = f"{back:.2g} s to load, verify and restore, {again:.2g} s to prefill, each timed once"
    if timed_twice(result):
        beside = f"{again:.2g} s for the faster of two prefills of the same tokens"
        both = f"{back:.2g} s to load, verify and restore, timed once; {beside}"
    wrong = verdict in WRONG and not on_purpose(result)  # whose speed is of no use
    faster = "" if wrong else speed(result) and f"{speed(result)} ({both})"
    kept = stored(result) and f"{stored(result)} {_where(result)}"
    facts = [fact for fact in (faster, kept) if fact]
    return (
        f"{_itself(result)}{', '.join([sentence, *facts])}.{_codes(result)}{_wrong(result)}".strip()
    )


def _exact(result: Mapping[str, Any]) -> str:
    return f"Same thought{_in_turn(result)}: every logit is bit-equal to {_other(result)}"


def _equivalent(result: Mapping[str, Any]) -> str:
    ratio = (result.get("oracle") or {}).get("ratio")
    scale = "" if ratio is None else f" (error {ratio:.2g} of rounding's own, 2 allowed)"
    first = (result.get("metrics") or {}).get("first_divergence")
    near = "" if first is None else f"step {first + 1}{_turn(result)}"
    often = _often(result)
    tie = f" but for a near tie at {near}, which rounding decides" * bool(near)
    if near and often and not often.startswith("1 of "):
        tie = f" but for near ties in {often}, first at {near}, which rounding decides"
    return f"Same thought{_in_turn(result)}: the tokens of {_other(result)}{tie}, within rounding{scale}"


def _drifted(result: Mapping[str, Any]) -> str:
    if meant := on_purpose(result):
        came, purpose, kept = meant
        return f"{came}{purpose}: the {_same(result)} of the full cache{_likely(result)}, but {_apart(result)}{kept}"
    told = f"the {_same(result)} of {_other(result)}{_likely(result)}"
    return f"Not quite the same thought{_in_turn(result)}: {told}, but {_apart(result)}"


def _same(result: Mapping[str, Any]) -> str:
    """What is the same where tokens were drawn, and where the most likely ones were taken."""
    drawn = (result.get("options") or {}).get("sampling", "greedy") != "greedy"
    return "drawn tokens" if drawn and _likely(result) else "tokens"


def _likely(result: Mapping[str, Any]) -> str:
    """That at some step another token is most likely, where tokens were drawn and all of them are the same."""
    first = (result.get("metrics") or {}).get("first_divergence")
    return "" if first is None else f", though at step {first + 1} another one is most likely"


def _diverged(result: Mapping[str, Any]) -> str:
    first = (result.get("metrics") or {}).get("first_divergence")
    often, words = _often(result), _in_words(result, first)
    if other := draws.others(result):
        return _drawn(result, other)
    later = find(result.get("reason"), Code.OTHER_GENERATED)
    if meant := on_purpose(result):
        came, purpose, kept = meant
        where = "" if first is None else f", first at step {first + 1}{words}"
        if later:  # what a model thought of the words of a text that was given is no answer
            where = f", of what was generated first at step {later['args']['step']}"
        changed = f"another token than the full cache's at {often}" if often else "other tokens"
        lost = f", {_apart(result)}" * (_apart(result) == NO_NUMBERS)
        return f"{came}{purpose}: {changed}{where}{lost}{kept}"
    if first is None:
        return f"Another thought: other tokens{_turn(result)}, {_apart(result)}"
    step = f"at step {first + 1}{_turn(result)}" + f", in {often}" * bool(often)
    return f"Another thought {step}: another token is most likely{words}, {_apart(result)}"


def _drawn(result: Mapping[str, Any], other: list[int]) -> str:
    """Of such a run: its tokens are others, be the most likely ones the same or not."""
    words = _in_words(result, other[0] - 1)
    step = f"at step {other[0]}" if other[0] else "before any step"
    often = f"{len(other)} of {many(len(result['text']['token_ids']), 'draw')}"
    if meant := on_purpose(result):
        came, purpose, kept = meant
        lost = f", {_apart(result)}" * (_apart(result) == NO_NUMBERS)
        said = f"another token than the full cache's in {often}, first {step}{words}"
        return f"{came}{purpose}: {said}{lost}{kept}"
    return f"Another thought {step}, in {often}: another token is drawn{words}, {_apart(result)}"


def _in_turn(result: Mapping[str, Any]) -> str:
    """Of a chat, in which of its turns these logits were compared."""
    said = _turn(result).removeprefix(" of ")
    return f", judged in {said}" if said else ""


def _turn(result: Mapping[str, Any]) -> str:
    """Of a chat, in which of its turns; an older record does not say."""
    number = (result.get("chat") or {}).get("judged_turn")
    return "" if number is None else f" of turn {number}"


def on_purpose(result: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Of a state that was pruned or quantized, and that no fault of its own sets apart from the full one: a sentence on
    how it came back, empty where nobody measured it, what was done to it, and what pruning kept. None for any
    other state."""
    size, block, done = result.get("size") or {}, result.get("itself") or {}, purpose(result)
    pruned, tokens = bool(result.get("pruned")), size.get("tokens") or 0
    if not done or block.get("verdict") in WRONG or not (pruned or result.get("quantization")):
        return None
    came = ""
    if block.get("verdict") in GOOD:
        near = "bit for bit" if block["verdict"] == "exact" else "within rounding"
        came = f"Cross-check: cache={block['cache']} goes on with what was kept just as this cache does, {near}. "
        if block.get("against") == "saved":
            came = f"Restore: as saved, {near}. "
    return (
        came,
        done[0].upper() + done[1:],
        f", with {of_kept(result, f' of {tokens} tokens kept')}" * (pruned and fewer(result)),
    )


def _in_words(result: Mapping[str, Any], first: int | None) -> str:
    """The first other token in words, where the texts are of the row that has it. first: the step that made it, from
    0; -1 for the stored logits."""
    text = result.get("text") or {}
    if text.get("apart"):
        return _bracket(result, quoted(*text["apart"])) or _ids(result, text)
    ids = [*zip(text.get("token_ids") or [], text.get("restored_ids") or [])]
    place = next((i for i, (a, b) in enumerate(ids) if a != b), None)
    if place is None or place - 1 != first:
        return ""
    words, pieces = numbered(text), text.get("pieces") or {}
    said = quoted(str(words.get("continuation")), str(words.get("restored")))
    if said and pieces and max(map(len, (part for side in said for part in side.split()))) > LONG:
        full, own = (pieces[part][place].strip() for part in ("continuation", "restored"))
        if not full or not own or full == own:
            return _ids(result, {"apart_ids": ids[place]})
        said = full, own
    return _bracket(result, said) or _ids(result, text)


def _bracket(result: Mapping[str, Any], said: tuple[str, str] | None) -> str:
    """The first words of two texts that are not the same, the uninterrupted run's first."""
    return f' ("{said[1]}" where {_whose(result)} says "{said[0]}")' if said else ""


def _ids(result: Mapping[str, Any], text: Mapping[str, Any]) -> str:
    """The first other ids of two texts, whose words do not tell; an older record has none."""
    full, own = text.get("apart_ids") or (None, None)
    return "" if full is None else f" (id {own} where {_whose(result)} chooses {full})"


def _whose(result: Mapping[str, Any]) -> str:
    return "the full cache" if purpose(result) else "the uninterrupted run"


def _often(result: Mapping[str, Any]) -> str:
    """At how many of its steps another token is most likely, where that is a whole number: rows of a batch differ
    each for itself."""
    share = (result.get("metrics") or {}).get("top1_agreement")
    steps = _steps(result)
    other = (1 - (1 if share is None else share)) * steps
    known = round(other) and isclose(other, round(other), abs_tol=1e-6)
    return f"{round(other)} of {steps} step{'s' * (steps > 1)}{_parts(result)}" if known else ""


def _steps(result: Mapping[str, Any]) -> int:
    """Steps that were compared, of text that was read and of tokens that were generated."""
    return len(((result.get("curves") or {}).get("restored") or {}).get("kl") or [])


def _parts(result: Mapping[str, Any]) -> str:
    """What those steps were spent on, where a text was read first or one more was judged: each token is one."""
    text = result.get("text") or {}
    read, made = text.get("read"), text.get("steps")
    if read is None or made is None:
        return ""
    more = _steps(result) - read - made
    spent = [f"{read} read the text", f"{made} generated", f"{more} more proves what was stored"]
    told = [said for said, count in zip(spent, (read, made, more), strict=True) if count > 0]
    return f" ({', '.join(told)})" if told[1:] else ""


def _unsound(result: Mapping[str, Any]) -> str:
    return f"No verdict on the restored run: {worded(result.get('reason'))}."


def _plain(result: Mapping[str, Any]) -> str:
    """Nothing was compared, or nothing could be."""
    said = worded(result.get("reason")) or "no reason was recorded"
    reason = said.strip().splitlines()[0]
    word = {"refused": kept_out(result), "failed": "It failed: "}.get(
        str(result.get("verdict")), ""
    )
    said = f"{word}{reason.rstrip('.:')}."
    return said if "_" in said.split()[0] else said[0].upper() + said[1:]  # a name stays as it is


def _other(result: Mapping[str, Any]) -> str:
    itself = result.get("against") == "itself"
    return "the same state, never saved" if itself else "the run that was never interrupted"


def _largest(result: Mapping[str, Any], block: str) -> float | None:
    return (result.get(block) or {}).get("max_abs_diff")


def _apart(result: Mapping[str, Any]) -> str:
    gap, floor = (_largest(result, block) for block in ("metrics", "noise_floor"))
    said = worded(result.get("reason")).partition("\n")[0].rstrip(".")
    ratio = (result.get("oracle") or {}).get("ratio")
    near = 2 if result.get("verdict") == "drifted" and ratio is not None and ratio <= 2 else 1
    chat = result.get("task") == "chat"  # whose reason counts its turns
    if said and not chat and gap is not None and floor and gap <= near * floor:
        return said  # it is not these logits that make the verdict
    if gap is None or not isfinite(gap):
        return NO_NUMBERS
    times = f", {gap / floor:.3g} times the noise floor of the logits" if floor else ""
    return f"logits are off by up to {gap:.3g}{times}"


def speed(result: Mapping[str, Any], least: float = MOMENT) -> str:
    """The same as `times_faster` in words: of one sample no more than two digits are worth saying."""
    ratio = times_faster(result, least)
    if ratio is None:
        return ""
    factor, way = max(ratio, 1 / ratio), "faster" if ratio >= 1 else "slower"
    if factor < ALIKE:
        return "about as fast as recomputing"
    much = f"{factor:.1f}" if factor < 9.95 else f"{float(f'{factor:.2g}'):.0f}"
    return f"{much} times {way} than recomputing"


def _codes(result: Mapping[str, Any]) -> str:
    """How lossy the codes are: the worst layer and head, of keys and of values."""
    coded = result.get("quantization") or {}
    if "quantizer" not in coded:  # a state by itself does not know what it was before
        return ""
    nothing, share = f" quantize={coded['quantizer']} changed nothing: ", _share(coded)
    if not coded.get("layers"):
        return f"{nothing}it turned no key and no value into codes."
    if not any(row.get(f"{p}_max_error", 1) for row in coded["layers"] for p in ("key", "value")):
        same = "its codes give back every key and every value as it was"
        if coded["kv_bytes"] >= coded["plain_bytes"]:
            return f"{nothing}{same}, in {share} of the bytes."
        return f" {coded['quantizer']} keeps {share} of {_plain_bytes(result)}, and {same}."
    said = []
    for part in ("key", "value"):
        row = max(coded["layers"], key=lambda r: _size_of(r[f"{part}_error"]))
        error = _size_of(row[f"{part}_error"])
        much = f"{error:.2%}" if isfinite(error) else "beyond any number"
        said.append(f"{much} of {part}s (layer {row['layer']}, head {row['head']})")
    return (
        f" {coded['quantizer']} keeps {share} of {_plain_bytes(result)}; the root mean square of its errors, in the head "
        f"where it is largest: {', '.join(said)}."
    )


def _itself(result: Mapping[str, Any]) -> str:
    """That a cache does not continue a pruned or a quantized state, or that it came back as another, whatever the pruning
    did: the first thing to know."""
    block = result.get("itself") or {}
    reason = worded(block.get("reason"))
    return f"{reason[:1].upper()}{reason[1:]}. " if block.get("verdict") in WRONG else ""


def _wrong(result: Mapping[str, Any]) -> str:
    """That answers of a chat are not those that were expected, however they came back."""
    chat = result.get("chat") or {}
    right, asked = chat.get("recalled"), chat.get("recall_questions")
    wrong = right is not None and asked and right < asked
    return f" {right} of {asked} expected answers are right." if wrong else ""


def _share(coded: Mapping[str, Any]) -> str:
    return f"{coded['kv_bytes'] / coded['plain_bytes']:.0%}"


def _plain_bytes(result: Mapping[str, Any]) -> str:
    """Of what a quantizer keeps a share: where tokens were dropped first, of what was left."""
    return "the K/V bytes" + " of the kept tokens" * bool(result.get("pruned"))


def _size_of(error: float | None) -> float:
    """`error` to compare by; what is no number (None in a record) is the largest."""
    return inf if error is None or isnan(error) else error


def _where(result: Mapping[str, Any]) -> str:
    """On what the bytes of `stored` are; of a resume that wrote what came of it, that they are of that."""
    after = result.get("next") or {}
    if result.get("task") == "chat":  # whose turns are stored each beside those before it
        return "on disk for its last turn"
    if (result.get("snapshot") or {}).get("format") == "memory" and not after:
        return "on disk beside the keys and values, which are in memory"
    if not after.get("size"):
        return "on disk"
    return "written" + " beside what it goes on from" * bool(after.get("beside"))


def stored(result: Mapping[str, Any]) -> str:
    """How much was stored, in the unit that suits it; of a resume that wrote what came of it, of that."""
    size = (result.get("next") or {}).get("size") or result.get("size") or {}
    amount = size.get("stored_bytes") or 0
    for unit, size in (("GiB", 2**30), ("MiB", 2**20)):
        if amount >= size:
            return f"{amount / size:.3g} {unit}"
    return f"{amount / 1024:.0f} KiB" if amount else ""


_SAID = {
    "exact": _exact,
    "equivalent": _equivalent,
    "drifted": _drifted,
    "diverged": _diverged,
    "unsound": _unsound,
}
