"""What the page of a run or a sweep says on a tracking server, in markdown."""

import re
import shlex
from collections.abc import Iterator, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from harness.config import Config, launched, tracking
from harness.present.messages import worded
from harness.snapshot import table as tables
from harness.snapshot.objective import shown
from harness.snapshot.record import AUDITED
from harness.snapshot.result import STEPS
from harness.snapshot.result import counted as from_one
from harness.snapshot.words import FORCED, cause, numbered, required, streamed
from harness.track import contents, links, snapshot, turns
from harness.track.parts import ENDS, interval

SAID = 240  # characters of what a run said
DIFFERENCES, WIDE = 20, 80  # that an audit's description lists, and characters of a cell
LIMIT = 8000  # characters of a tag, as a description is: MLflow cuts the rest, mid-word
AGAIN = "Run it again"
TAKEN = f"{AGAIN} (its `out=` is taken by now: give another, or `overwrite=true`)"
CUT = "more rows."  # where a table has lost its last ones
UNITS = {
    "max_abs_diff": "logits", "mean_abs_diff": "logits", "max_ulp": "units in the last place", "kl_mean": "nats",
    "kl_max": "nats", "top1_agreement": "share", "top5_overlap": "share", "nll_delta": "nats",
    "exact": "share", "contains": "share", "nll": "nats", "kl": "nats", "divergence_step": "tokens", "per_token": "s",
}  # fmt: skip
DIGEST = re.compile(r"\b[0-9a-f]{40,}\b")  # of which a table shows the beginning
SECTIONS = "Metrics under `time/` are seconds, under `size/` bytes or tokens, as they are called."
GAP, SPACE = "&emsp;", "&nbsp;"  # MLflow draws tables without any room around a cell or below

Row = dict[str, Any]


def note(
    result: Row,
    run_id: str,
    folder: Path,
    parts: Sequence[Row] = (),
    there: str = "",
    links: str = "",
) -> str:
    """The run's description, in markdown: what came out, picture, table, and how it is run again. parts: the
    rows of the runs below it, which are the table where no logits were compared. there: as of `there`. links: to
    the runs below it."""
    said = contents.concluded(result)
    word = contents.word(result, folder)
    head = [_headline(word, said), ""]
    lines = worded(result.get("reason")).splitlines()
    if more := [line for line in lines if not _told(line, said, result)]:
        head += [_listed(more), ""]
    head += [*_said(result, folder), *turns.listed(folder, result)]
    if (folder / "divergence.svg").is_file():
        head += [f"![divergence per step](get-artifact?path=divergence.svg&run_uuid={run_id})", ""]
    table = _measured(result) or _tabled(result, folder) or _parts(parts)
    if result.get("task") == contents.AUDIT:
        table = _found(result, contents.audited(folder))
    if result.get("task") == "diff":
        table = _differing(result)
    once = _here(launched.of_point(folder), there)
    left = result.get("task") != snapshot.READING or bool(result.get("next"))
    full = left and re.search(r" '?out=", once) and " overwrite=true" not in once
    taken = TAKEN if full else AGAIN
    again = "\n\n".join(filter(None, (commanded(once, taken), audited(run_id, there))))
    if result.get("task") == contents.AUDIT:
        again = commanded(once, "Audit the same again")
    elif (
        result.get("verdict") == "failed" or result.get("task") not in AUDITED
    ):  # no audit takes it
        again = commanded(once)
    varied = " ".join(map(contents.read, contents.varied(folder))).replace("`", "'")
    asked = [f"Varied: `{varied}`", ""] if varied else []
    units = [f"{SECTIONS}{_sized(result)}", ""] if result.get("time_s") else []
    tail = ["", "", *units, *asked, f"Folder: `{result.get('folder')}`", "", again]
    return fitted("\n".join([*head, links]), table, "\n".join(tail))


def _here(told: str, there: str) -> str:
    """A command whose run was to go to another address or experiment than the one that has it, for this one."""
    words = shlex.split(told)
    rest = [word for word in words if not word.startswith(("track.uri=", "track.experiment="))]
    return told if len(rest) == len(words) else shlex.join(rest) + there


def _said(result: Row, folder: Path) -> list[str]:
    """What was required of a run that was judged, what it read and said unless that is encrypted, and what its snapshot
    needs beside it."""
    words = () if contents.hidden(contents.config(folder)) else _words(result)
    told = [f"{label}: {_quoted(said)}" for label, said in words if said]
    if result.get("curves") and result.get("required"):
        told.insert(0, f"Required: {required(result)}")
        told += [f"Fault: `{name}`, on purpose" for name in [_fault(result)] if name != "none"]
        if found := result.get("diagnosis"):
            told.append(f"Diagnosis: {cause(found)}: {found.get('evidence')}")
    if above := (result.get("next") or {}).get("beside"):
        where = f"`tags.snapshot_id = '{(result.get('snapshot') or {}).get('id')}'`"
        told.append(
            f"Its snapshot needs `{', '.join(above)}` beside it, which the run of {where} has."
        )
    return ["\n\n".join(told), ""] if told else []


def _fault(result: Row) -> str:
    return str((result.get("options") or {}).get("fault", "none"))


def _words(result: Row) -> Iterator[tuple[str, str]]:
    """`(label, words)`: what a resumed run was given to read and what it said after that; of a judged one what the
    uninterrupted run said and, where that is something else, what the other one chose beside it."""
    text = numbered(result.get("text") or {})
    if "streamed" in text:
        read, said = streamed(text)
        yield "It read", read
        yield "It said", said
    elif result.get("curves"):
        full = "full cache, never interrupted" if result.get("pruned") else "uninterrupted"
        yield f"What was said ({full})", text.get("continuation") or ""
    if result.get("curves") and text.get("restored") not in (None, text.get("continuation")):
        whose = "pruned" if result.get("pruned") else "restored"
        yield f"What the {whose} run chooses {FORCED}", text["restored"]


def _sized(result: Row) -> str:
    """Of what the sizes of a resume are, which reads one snapshot and may write another."""
    if result.get("task") != snapshot.READING:
        return ""
    if result.get("next"):
        return " The sizes are those of what it wrote; `size/read_tokens` were read before it."
    return " The sizes are those of the snapshot that it read: it wrote none."


def _headline(word: str, said: str) -> str:
    """The outcome before its sentence, which may begin with that word itself: `**Saved**: every byte ...`."""
    said = said.removeprefix("It failed: ") if word == "failed" else said
    if word and said.lower().startswith(f"{word.lower()}: "):
        return f"**{said[: len(word)]}**{said[len(word) :]}"
    return f"**{word}**: {said}" if word else said


def _listed(lines: Sequence[str]) -> str:
    """Lines in markdown, which takes what follows a list for a part of its last entry."""
    told: list[str] = []
    for line in lines:
        item = line.lstrip().startswith("- ")
        if told and item != told[-1].lstrip().startswith("- "):
            told.append("")
        told.append(line)
    return "\n".join(told)


def _told(line: str, said: str, result: Row) -> bool:
    """Whether what came out says a line of the reason already; of an audit, whose sentence counts its runs as well,
    what follows the first words of it."""
    if result.get("task") == contents.AUDIT:
        line = line.partition(": ")[2] or line
    return line[1:].strip().rstrip(".") in said


def _quoted(text: str) -> str:
    """A text as code, which markdown leaves as it is; how it begins where it is long."""
    said = repr(text if len(text) <= SAID else f"{text[:SAID]}...").replace("`", "'")
    return f"`{said}`"


def commanded(told: str, what: str = AGAIN) -> str:
    """A command and what it does: in a block of its own where a line of code would lose text; empty without one."""
    fence = "```"
    if "`" not in told and "\n" not in told:
        return f"{what}: `{told}`" if told else ""
    while fence in told:
        fence += "`"
    return f"{what}:\n\n{fence}\n{told}\n{fence}"


def of_part(folder: Path) -> str:
    """How a part of the run in `folder` is made again: with all the others."""
    return commanded(launched.of_point(folder), "Run it again, with all beside it")


def repeated(folder: Path, best: str, run_id: str, there: str, seconds: float | None = None, many: int = 1) -> str:  # fmt: skip
    """How the sweep in `folder` is run again, its marked point `best` alone where there is one, and how all is compared.
    seconds: in which its points ran; None where that is not known. many: how many points are marked."""
    told = [lasted(seconds), commanded(launched.of_sweep(folder))]
    alone = f"{links.marked(many).capitalize()} alone"
    told += [commanded(launched.of_point(folder / best), alone)] if best else []
    return "\n\n".join(filter(None, (*told, audited(run_id, there))))


def unfinished(sentence: str, reason: str | None) -> str:
    """What a sweep came to and, of one that was stopped, how it goes on; how far it came is said once."""
    first, _, onward = (reason or "").partition("; ")
    if onward and sentence.lower().startswith(first):
        reason = f"{onward[:1].upper()}{onward[1:]}"
    return "\n\n".join(filter(None, (sentence, reason)))


def lasted(seconds: float | None) -> str:
    """In how many seconds the points of a sweep ran."""
    told = "" if seconds is None else f"{seconds:.{1 if seconds < 100 else 0}f} s"
    return (
        told
        and f"Its points ran for {told} (`sweep/seconds`; a pause before it was resumed is not counted)."
    )


def audited(run_id: str, there: str) -> str:
    """The command that runs a run, or every point of a sweep, again. there: as of `there`."""
    return f"Audit it (it is run again, and every figure compared): `python -m harness task=audit run={run_id}{there}`"


def there(uri: str | None, experiment: str, runs_dir: Path | None = None) -> str:
    """A server that is not our own, its password left out, or else a store in another folder than the usual one, and
    an experiment that is not the usual one, as the rest of a command."""
    words = [f"track.uri={re.sub('//[^/@]*@', '//...@', uri)}"] if uri else []
    elsewhere = not uri and runs_dir not in (None, Path(Config.runs_dir))
    words += [f"runs_dir={runs_dir}"] if elsewhere else []
    words += [f"track.experiment={experiment}"] if experiment != tracking.USUAL else []
    return "".join(f" {shlex.quote(word)}" for word in words)


def of_sweep(words: str, sentence: str, links: str, table: str, tail: str = "") -> str:
    """A sweep's description: what it came to, which point to choose, `links` to its points, all of them, and
    `tail`."""
    more = f"{sentence}\n\n" if sentence and sentence.rstrip(".") not in words else ""
    return fitted(f"**{words}**\n\n{more}{links}", table.splitlines(), f"\n\n{tail}" * bool(tail))


def fitted(head: str, table: list[str], tail: str = "") -> str:
    """`head`, the lines of a table, `tail`, in at most `LIMIT` characters: the table loses its last rows and
    says how many; a head that is too long by itself ends with one of its lines."""
    table = [line.replace(" | ", f"{GAP} | ") for line in table]
    tail = f"\n\n{SPACE}{tail}" if table and tail else tail
    text = head + "\n".join(table) + tail
    if len(text) > LIMIT:
        room = LIMIT - len(head) - len(tail) - 40  # for the line about the others
        ends = accumulate(len(line) + 1 for line in table)
        rows = sum(1 for end in ends if end <= room)
        more = ["", f"{len(table) - rows} {CUT}"] if rows < len(table) else []
        text = head + "\n".join([*table[:rows], *more]) + tail
    return text if len(text) <= LIMIT else text[:LIMIT].rpartition("\n")[0] or text[:LIMIT]


def _found(result: Row, document: Row) -> list[str]:
    """What an audit looked at, in figures, and the first of its differences."""
    seen = document.get("tracked") or {}
    told = {
        "records": (result.get("audit") or {}).get("points"),
        "run again": len(document.get("evidence") or {}),
        "compared": document.get("compared"),
        "runs in MLflow": seen.get("runs"),
        "copies of files in MLflow": seen.get("copies"),
        "differences": len(document.get("differences") or ()),
    }
    looked = [lined((k, v, ""), LIMIT) for k, v in told.items() if v is not None]
    apart = [
        (row.get("what"), f"recorded {row.get('recorded')}", f"found {row.get('found')}")
        for row in (document.get("differences") or ())[:DIFFERENCES]
    ]
    return ["| audit | | |", "|---|---|---|", *looked, *map(lined, apart)]


def _differing(result: Row) -> list[str]:
    """Both sides of a comparison, and the first of what differs."""
    sides = result.get("sides") or {}
    rows = [
        (what, *(sides.get(side, {}).get(what) for side in "ab"), "")
        for what in ("path", "id", "tokens")
    ]
    rows += [
        (f"{row.get('what')} {row.get('where')}", row.get("a"), row.get("b"),
         row.get("amount") or row.get("largest difference") or "")
        for row in (result.get("differences") or ())[:DIFFERENCES]
    ]  # fmt: skip
    return ["| what | a | b | how much |", "|---|---|---|---|", *map(lined, rows)]


def lined(cells: Sequence[Any], wide: int = WIDE) -> str:
    """One of a table, digests cut, and cells of more than `wide` characters."""
    told = (" ".join(str(cell).replace("|", "/").split()) for cell in cells)
    told = (DIGEST.sub(lambda digest: f"{digest[0][:12]}...", cell) for cell in told)
    return f"| {' | '.join(t if len(t) <= wide else f'{t[: wide - 3]}...' for t in told)} |"


def _measured(result: Row) -> list[str]:
    """The figures of the logits beside their noise, those that were measured."""
    noise = result.get("noise_floor") or {}
    rows = [
        f"| {_headed(k)}{', from 1' * (k in STEPS)} | {_short(from_one(k, v))} "
        f"| {_short(from_one(k, noise.get(k)))} |"
        for k, v in (result.get("metrics") or {}).items()
        if v is not None or noise.get(k) is not None
    ]
    return ["| metric | measured | noise floor |", "|---|---|---|", *rows] if rows else []


def _tabled(result: Row, folder: Path) -> list[str]:
    """The table of a task that measures many things, row by row."""
    columns, rows = tables.columns(result), tables.rows(folder, result)
    if not columns or not rows:
        return []
    head = f"| {' | '.join(map(_headed, columns))} |"
    lines = (lined([_short(row.get(c)) for c in columns], SAID) for row in rows)
    return [head, "|---" * len(columns) + "|", *lines]


def _parts(parts: Sequence[Row]) -> list[str]:
    """One line for each part of the run (a cell, a fault, a claim), with all that is measured of it; the best cell is
    marked."""
    keys = list(dict.fromkeys(key for part in parts for key in part["metrics"]))
    low, high = (f"answers/{end}" for end in ENDS)  # one column
    keys = [key for key in keys if key != high]
    if not keys:
        return []
    names = [key.rpartition("/")[2] for key in keys]
    heads = names if len({*names}) == len(names) else keys
    heads = ["95%" if key == low else _headed(head) for key, head in zip(keys, heads, strict=True)]
    lines = [f"| {' | '.join(['', *heads])} |", "|---" * (len(keys) + 1) + "|"]
    for part in parts:
        held = part["metrics"]
        figures = (interval(held) if key == low else shown(key, held.get(key)) for key in keys)
        mark = part.get("mark", "best") if part.get("as") == "best" else ""
        name = f"**{part['name']}** ({mark})" if mark else part["name"]
        cells = [name.replace(" ", SPACE), *figures]
        lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
    return lines


def _headed(key: str) -> str:
    """A figure's name and its unit: `kl_max (nats)`; one that is shown with its unit (`73 KiB`) alone."""
    unit = UNITS.get(key.rpartition("/")[2])
    return f"{key} ({unit})" if unit else key


def _short(value: Any) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
