"""What stands at the end of a run's lines: whose words were shown, and the command that goes on from here."""

import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from harness import machine, process
from harness.config.launched import audit, surroundings
from harness.config.literal import MULTIRUN
from harness.config.literal import command as spelled_out
from harness.present.messages import worded
from harness.results.reason import Code, code_of
from harness.snapshot.result import UNJUDGED, exit_code
from harness.snapshot.words import FORCED, cause, numbered, on_purpose, purpose, required, streamed
from harness.variants import config_dirs

CARRIED = ("plugins.", "runs_dir=", "track=", "track.")
ENDS = 120  # characters of a long text that are shown of each of its ends
MOST, SEVERAL = 3, 4  # ids that are named; of so many that are all the same it is told
ONE = "one token {} times over"
LITTLE, MORE = ": that both runs choose it says little", ", how near their logits are says more"


def whose(done: str) -> tuple[str, str]:
    """What two runs are called: that of all that was read, and the other. done: from `altered`."""
    return (
        ("the full cache, never interrupted", done)
        if done
        else ("the uninterrupted run", "restored")
    )


def texts(text: dict[str, Any], done: str, judged: bool = True) -> Iterator[tuple[str, str]]:
    """`(label, words)` of what was said: one line where both runs say the same, else one for each run.

    text: of a result. done: what was done to the restored state, from `altered`. judged: whether two runs were
    compared.
    """
    without, text = text.get("without_text") or [], numbered(text)
    said, ids = text["continuation"], text.get("token_ids") or []
    count = len(ids)
    more = f"{count} tokens, the first before any step" if count > 1 else ""
    if "streamed" in text:  # what was chosen after it is the next run's to say
        read, said = streamed(text)
        ids = ids[text["read"] : text["read"] + text["steps"]]
        more = f"{machine.many(text['steps'], 'token')} generated"
        if read:
            yield "read", ends(read)
    chosen = text.get("restored_ids") or []
    other = bool(chosen and text.get("token_ids")) and chosen != text["token_ids"]
    if about := of_ids(ids, said, judged and not other, without):
        more += f"{more and '; '}{about}"
    restored = text.get("restored")
    if restored == text["continuation"] and other:  # the same text of other tokens
        yield "continuation", f"{said!r} ({whose(done)[0]}{more and f'; {more}'})"
        yield whose(done)[1], f"{restored!r}: other ids, {_apart(text['token_ids'], chosen)}"
        return
    if restored in (None, text["continuation"]):
        yield "continuation", f"{said!r}{more and f' ({more})'}"
        return
    first, second = whose(done)
    yield "continuation", f"{said!r} ({first}{more and f'; {more}'})"
    yield second, f"{restored!r} (what it chooses {FORCED})"


def answer(text: dict[str, Any], done: str, judged: bool = True) -> str:
    """Whether what was said has the answer that its prompt expects; empty where it expects none. done, judged: as of
    `texts`."""
    if "expected" not in text:
        return ""
    word = {True: "right", False: "wrong"}
    full, other = (word[bool(text[f"{run}_right"])] for run in ("continuation", "restored"))
    apart = f"{done or 'restored'} {other}, {'full cache' if done else 'uninterrupted'} {full}"
    said = other if not judged else f"{full} in both" if full == other else apart
    return f"{said} ({text['expected']!r} is expected)"


def ends(text: str) -> str:
    """`text` in quotes; of a long one how it begins and how it ends."""
    if len(text) <= 2 * ENDS:
        return repr(text)
    return f"{text[:ENDS]!r} ... {text[-ENDS:]!r}, {len(text):,} characters"


def _apart(ids: list[int], chosen: list[int]) -> str:
    """The first place where two runs of ids differ."""
    pairs = enumerate(zip(ids, chosen), 1)
    for place, (was, now) in pairs:
        if was != now:
            return f"token {place} is {now} where that has {was}"
    return f"{len(chosen)} of them where that has {len(ids)}"


def of_ids(ids: list[int], said: str, both: bool = True, without: Sequence[int] = ()) -> str:
    """What should be known of `ids` whose text is `said`: that there is no text for them, and that they are one and the
    same; empty where neither is so. both: whether two runs were compared. without: ids that have no text, which are shown by their number."""
    if not ids:
        return ""
    named = ", ".join(map(str, dict.fromkeys(ids[:MOST])))
    told = "" if said else f"the tokenizer has no text for such ids: {named}"
    same = len(ids) >= SEVERAL and len(set(ids)) == 1
    if missing := sum(token in without for token in ids):
        told = f"{missing} of {machine.many(len(ids), 'token')} have no text in this tokenizer"
    if missing and same:
        return f"{ONE.format(len(ids))}, without text in this tokenizer{LITTLE * both}"
    return f"{told}{told and '; '}{ONE.format(len(ids))}{(LITTLE + MORE) * both}" if same else told


def verdicts(result: dict[str, Any], itself: str) -> Iterator[tuple[str, str]]:
    """`(label, words)` of what was judged. Of a pruned or a quantized state those are two questions, each under its own
    name: whether it goes on as it was kept, and what was lost in that. itself: the first one's answer in words."""
    judged, block = result["verdict"] != UNJUDGED, result.get("itself") or {}
    pruned, done = bool(result.get("pruned")), purpose(result)
    first = "restore" if block.get("against") == "saved" else "cross-check"
    own = [(first, f"{block['verdict'].upper()}: {itself}")] if block else []
    if done:
        yield from own
    yield from _unjudged(result)
    if judged:  # else the conclusion is the reason
        beside = ", beside the full cache" * bool(done)
        yield done or "verdict", f"{result['verdict'].upper()}{beside}: {worded(result['reason'])}"
    if not done:
        yield from own
    if told := result.get("diagnosis"):
        yield "diagnosis", f"{cause(told)}: {told['evidence']}"
    if judged:
        yield "required", f"{'of the pruning: ' * pruned}{required(result)}"


def wanting(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Of what `verdicts` says only what somebody has to know: damage, a verdict that misses what was required, and how
    one is got where nothing was judged."""
    if (told := result.get("diagnosis")) and not on_purpose(told):
        yield "diagnosis", f"{cause(told)}: {told['evidence']}"
    if exit_code(result):
        yield "required", required(result)
    yield from _unjudged(result)


def _unjudged(result: dict[str, Any]) -> Iterator[tuple[str, str]]:
    if result["verdict"] != UNJUDGED or result["task"] != "resume":
        return
    key = "compare.require_pruned" if result.get("pruned") else "compare.require"
    yield "verdict", "UNJUDGED: nothing was compared"
    unchecked = f"{key}={result['required']} was not checked, which is no failure: exit code 0"
    yield "required", unchecked
    if judging := _judging(result, key):
        yield "to judge", judging


def _judging(result: dict[str, Any], key: str) -> str:
    """The command that does the same and gives a verdict however long it takes; empty where nobody typed one, or one
    of a sweep."""
    typed = (result["environment"].get("command") or [None])[3:]
    if typed == [] or {*typed} & {*MULTIRUN} or code_of(result["reason"]) == Code.OVER_LIMIT:
        return ""
    others = [w for w in typed if not w.startswith(("out=", "overwrite=", "compare.", "next="))]
    words = [*others, *(w for w in typed if w.startswith("compare.") and key not in w)]
    asked = f"{key}={result['required']}"
    return process.retold(spelled_out([*words, asked]))


def command(result: dict[str, Any]) -> str:
    """One command, as a shell takes it, that works on what a run has left: it goes on from the snapshot, looks at one
    that was damaged on purpose, or runs the record again. Empty where nothing was left."""
    typed = (result["environment"].get("command") or [None])[3:]
    words, kept = [process.spelled()], result.get("next") or result["snapshot"]
    if typed == []:  # a newcomer's first run
        return f"{words[0]} task=ui"
    if not kept.get("path") or kept.get("format") == "memory":
        return ""
    fault = (result.get("options") or {}).get("fault", "none")
    if result["task"] == "resume" and not result.get("next"):  # nothing new was written
        rest = audit(result["folder"])
    else:
        sound = fault == "none" and not result.get("waived")
        rest = [f"task={'resume' if sound else 'inspect'}", f"snapshot={kept['path']}"]
    carried = _carried(typed, Path(result["folder"]))
    return " ".join([*words, *map(shlex.quote, [*rest, *carried])])


def _carried(typed: list[str], folder: Path) -> list[str]:
    """What the next command needs of this one: what opens a snapshot that was written encrypted (with the key that
    read the last one unless another was given), where code from outside lies, and where results go, also where a file
    of one's own says so, which the next command does not name."""
    given = dict(word.split("=", 1) for word in typed if "=" in word)
    held = surroundings(folder)
    key = held.get("encrypt", held.get("decrypt"))
    opens = [] if key in (None, "none", "null") else [f"decrypt={key}"]
    flags = [word for place in config_dirs(typed) for word in ("--config-dir", str(place))]
    words = [word for word in typed if word.startswith(CARRIED)]
    files = [f"{k}={v}" for k, v in held.items() if k not in given and f"{k}=".startswith(CARRIED)]
    return [*opens, *flags, *words, *files]
