"""What of a record follows from its own figures, made from them again: the sentence and the page.

Times are measured anew by every run, so no second run says what a record should say of them; that the
sentence and the page say what `result.json` says can be told without one.
"""

import html
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness import foreign
from harness.compare.conclusion import conclusion, speed, stored
from harness.pipeline.environment import code, packages
from harness.pipeline.evaluation.record import Evaluation
from harness.pipeline.finish import draw_page
from harness.report.audit.figures import came
from harness.report.footer import LEFT
from harness.report.loop import TRACE
from harness.snapshot import record as records
from harness.snapshot.refused import sentences
from harness.snapshot.result import COMPARED, GOOD
from harness.task.audit.finding import Finding
from harness.task.audit.parting import parted
from harness.task.audit.source import read

DRAWN = ("report.html", "divergence.svg")
DRAWS = ("matplotlib", "Jinja2")  # what a page depends on besides the code
NAMED = rf"sweep|{LEFT}|manifest of (?:the snapshot|what it goes on from|what it wrote)|harness\.log|[a-z_]+\.jsonl?"
LINK = rf'<a href="[^"<>]*">({NAMED})</a>'
RESUMED = re.compile(r"(?:&#x27;|&#39;)?resume=[^<\n]*")  # to the end of its element
LINKS = re.compile(rf'<p class="links">({LINK}\s*)+</p>')  # to what lies around it, here or there
NUMBER = re.compile(r"[\d.]*\d(e[+-]?\d+)?|faster|slower")
# No part of a name, as in float64.
ALONE = re.compile(r"(?<![\w.])[\d.]*\d(?:e[+-]?\d+)?(?![\d.]*\d)")
SPEED = re.compile(r"[\d.]+ times (?:faster|slower)")
AMOUNT = re.compile(r"[\d.]+ [KMGT]i?B\b")
HEADED = ("experiment", "resume", "evaluate")  # whose pages begin with the conclusion
# No number of a sentence is one of these; of times it says how much faster, told above.
UNSAID = ("model", "elements", "environment", "curves", "time_s")


def sentence(result: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the conclusion is the one that the figures give. Of other words, as another version may
    have said it, only the numbers can be told where the code is another one too."""
    recorded, derived = result.get("conclusion"), concluded(result)
    older = {**result, "next": None}  # which told the size of what a resume had read
    if not ours(result) and recorded == conclusion(older):
        result, derived = older, recorded
    alike = ours(result) or words(recorded) == words(derived)
    if alike and recorded != derived and recorded is not None:
        yield Finding("conclusion", recorded, derived, "not what the record's own figures give")
    elif not alike and isinstance(recorded, str) and result.get("verdict") in COMPARED:
        for claim, own in _claims(recorded, derived, result):
            why = "the sentence says this, and no figure of the record gives it"
            yield Finding("conclusion", claim, own, why)
    reason, figures = str(result.get("reason")), result.get("chat") or {}
    errors = result.get("oracle") or {}
    ours_off, plain = errors.get("restored"), errors.get("plain")
    if ours_off is not None and plain and errors.get("ratio") != ours_off / plain:
        yield Finding("oracle.ratio", errors.get("ratio"), ours_off / plain, "not its two errors")
    if ours_off is not None and plain is not None and reason.startswith("error against float64"):
        said = f"error against float64 {ours_off:.3g}, plain path {plain:.3g}"
        if not reason.startswith(said):
            yield Finding("reason", reason, said, "not the errors that `oracle` says")
    for name in ("cached", "naive"):
        growth = figures.get(f"{name}_growth")
        if growth is not None and f"x{growth:.2f} {name}" not in reason:
            yield Finding("reason", reason, growth, f"not the growth that `chat` says: {name}")


def concluded(result: Mapping[str, Any]) -> str:
    """The conclusion that a run with these figures records: of a refusal the first thing that does not fit, where that
    is known."""
    first = sentences(dict(result))[:1] if came(result) else ()
    return first[0] if first else conclusion(result)


def _claims(said: str, derived: str, result: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """What the sentence `said` claims in numbers that no figure of the result gives, and what one does:
    how much faster, how much stored, and any other number that stands alone."""
    for pattern, own in ((SPEED, speed(result, 0.0)), (AMOUNT, stored(result))):
        for claim in pattern.findall(said):
            if not own.startswith(claim):
                yield claim, own or None
        said = pattern.sub("", said)
    verdict = str(result.get("verdict"))
    for phrase, holds in (("bit-equal", verdict == "exact"), ("Same thought", verdict in GOOD)):
        if phrase in said and not holds:
            yield phrase, verdict
    known = {
        m.group() for text in (derived, str(result.get("reason"))) for m in ALONE.finditer(text)
    }
    blocks = {k: v for k, v in result.items() if k not in UNSAID}
    numbers = [*_numbers(blocks)]
    for match in ALONE.finditer(said):
        claim = match.group()
        if claim not in known and not any(prints(n, claim) for n in numbers):
            yield claim, None


def _numbers(tree: Any) -> Iterator[float]:
    """Every figure below `tree`; token ids, and other lists of bare numbers, are none."""
    if isinstance(tree, Mapping):
        for value in tree.values():
            yield from _numbers(value)
    elif isinstance(tree, list):
        for value in tree:
            yield from _numbers(value) if isinstance(value, Mapping) else ()
    elif isinstance(tree, int | float) and not isinstance(tree, bool):
        yield tree


def prints(number: float, claim: str) -> bool:
    """Whether `number`, printed as shortly, is `claim`."""
    digits = len(claim.partition("e")[0].replace(".", "").lstrip("0")) or 1
    whole = claim.isdigit()
    return number == float(claim) if whole else float(f"{number:.{digits}g}") == float(claim)


def figures(result: Mapping[str, Any]) -> Iterator[Finding]:
    """Figures of one result that say the same thing twice: whether they agree, in any version."""
    curves = result.get("curves") or {}
    for block in ("metrics", "noise_floor"):
        said = result.get(block) or {}
        shown = [c for name, c in curves.items() if (name == "restored") == (block == "metrics")]
        for key, curve in (("max_abs_diff", "max_abs_diff"), ("kl_max", "kl")):
            steps = [v for c in shown for v in c.get(curve) or []]
            if steps and None not in steps and said.get(key) not in (None, max(steps)):
                why = "not the highest step of its curve"
                yield Finding(f"{block}.{key}", said[key], max(steps), why)
        share, first = said.get("top1_agreement"), said.get("first_divergence")
        if share is not None and (share == 1) != (first is None):
            why = f"not what top1_agreement says, {share:.3g} of the steps with the same most likely token"
            yield Finding(
                f"{block}.first_divergence", first, "none" if share == 1 else "a step", why
            )
        if said.get("bitwise_equal") and said.get("max_abs_diff"):
            why = "bit-equal numbers are not apart"
            yield Finding(f"{block}.bitwise_equal", True, said["max_abs_diff"], why)
    if (
        result.get("verdict") == "exact"
        and (result.get("metrics") or {}).get("bitwise_equal") is False
    ):
        yield Finding("verdict", "exact", "not bit-equal", "not what its metrics say")
    soundness = result.get("soundness") or {}
    paths = [p for p in soundness.get("paths") or [] if None not in (p["error"], p["bound"])]
    if soundness.get("sound") and any(p["error"] > p["bound"] for p in paths):
        yield Finding("soundness.sound", True, False, "one of its paths is beyond its bound")


def machine(result: Mapping[str, Any], wanted: Any = None) -> Iterator[Finding]:
    """Whether the machine of which a record speaks can be: its device, what is said of a GPU, the build of
    torch, and the device that the configuration asked for (`wanted`)."""
    place = result.get("environment") or {}
    device, why = str(place.get("device") or ""), "no such machine: the device is {}"
    for key in ("gpu", "cuda", "gpu_driver") if device else ():
        if place.get(key) is not None and not device.startswith("cuda"):
            yield Finding(f"environment.{key}", place[key], None, why.format(device))
    if not device.startswith("cuda"):
        there = None if wanted in (None, "auto") or not device else str(wanted)
        if there is not None and not device.startswith(there):
            why = "not the device that the configuration asks for"
            yield Finding("environment.device", device, there, why)
        return
    for key in ("gpu", "cuda"):
        if place.get(key) is None:
            yield Finding(f"environment.{key}", None, "a GPU's", why.format(device))
    build = str((place.get("versions") or {}).get("torch"))
    for asked, cpu in ((f"torch {build}", "+cpu" in build), (f"device={wanted}", wanted == "cpu")):
        if cpu:
            yield Finding("environment.device", device, "cpu", f"no such machine: it had {asked}")


def ours(result: Mapping[str, Any]) -> bool:
    """Whether this very code made the record; one that came to no end has no environment that says so."""
    return bool((result.get("environment") or result).get("code") == code())


def words(said: Any) -> Any:
    """A sentence without its numbers and what they compare to."""
    return NUMBER.sub("#", said) if isinstance(said, str) else said


def page(point: Path, result: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the page and its picture are those of the result beside them. Only what this very code
    drew, with these very packages, can be drawn again to the letter; of any other its headline can be
    told, and how much faster it says that anything is."""
    if not redrawable(point, result):
        yield from _spoken(html.unescape(_text(point / "report.html") or ""), result)
        return
    with TemporaryDirectory() as folder:
        _draw(point, result, Path(folder))
        for name in DRAWN:
            was, now = (_text(place / name) for place in (point, Path(folder)))
            if was != now and now is not None:
                why = "not drawn from the result beside it"
                yield Finding(name, *parted(was or "", now), why)


def _spoken(text: str, result: Mapping[str, Any]) -> Iterator[Finding]:
    """What a page of another version says that the record does not."""
    said, own = result.get("conclusion"), speed(result, 0.0)
    if came(result):  # without the places that its conclusion names
        said = (result.get("diagnosis") or {}).get("evidence")
    if text and result.get("task") in HEADED and isinstance(said, str) and said not in text:
        yield Finding("report.html", said, "another", "its headline is not the record's sentence")
    for claim in SPEED.findall(text):
        if not own.startswith(claim):
            why = "the page says this, and no figure of the record gives it"
            yield Finding("report.html", claim, own or None, why)


def sweep_page(sweep: Path, points: Sequence[Path]) -> Iterator[Finding]:
    """Whether the page of a sweep is that of the results of its points, where it can be drawn again."""
    from harness.report.sweep import page as pages

    seen = [(p, records.read(p / "result.json")) for p in points if (p / "result.json").is_file()]
    document = read(sweep / "sweep.json")  # none of one that was killed
    waiting = any((p / records.PENDING).exists() for p, _ in seen) or "not_uploaded" in document
    if not seen or waiting or not all(redrawable(p, result) for p, result in seen):
        return
    said = {Path(str(records.read(p / records.NAME).get("folder"))).parent.name for p, _ in seen}
    name = said.pop() if len(said) == 1 else sweep.name
    rows = pages.rows([p for p, _ in seen])
    drawn = pages.drawn(sweep, rows, document.get("points"), name)
    recorded = _text(sweep / "sweep.html") or ""
    was, now = (_placeless(page, {name, sweep.name}) for page in (recorded, drawn))
    if was != now:
        yield Finding("sweep.html", *parted(was, now), "not drawn from the results of the points")


def _placeless(page: str, names: set[str]) -> str:
    """`page` without the place of its sweep in the command that goes on with it, which is told as it lay where
    it was drawn: one word of a shell, whose folder is called by one of `names`. Anything more stays."""

    def place(found: re.Match[str]) -> str:
        try:
            (word,) = shlex.split(html.unescape(found[0]))
        except ValueError:
            return found[0]
        return "resume=" if Path(word.partition("=")[2]).name in names else found[0]

    return RESUMED.sub(place, page)


def redrawable(point: Path, result: Mapping[str, Any]) -> bool:
    """Whether `page` can tell."""
    sealed, here = records.read(point / records.NAME).get("packages") or {}, packages()
    return ours(result) and all(sealed.get(name) == here.get(name) for name in DRAWS)


def _draw(point: Path, result: Mapping[str, Any], folder: Path) -> None:
    from harness.report import chat, failure
    from harness.report.evaluate import page as evaluate
    from harness.report.run import page as run

    result = {**result, "mlflow": None}
    (folder / ".hydra").mkdir()
    composed = [Path(".hydra", f"{name}.yaml") for name in ("overrides", "hydra", "config")]
    for beside in (*composed, Path(TRACE)):
        if (point / beside).is_file():
            (folder / beside).write_bytes((point / beside).read_bytes())
    if "stages" in result:  # it came to no end
        failure.write(folder / "report.html", result)
        return
    config = records.read(point / records.NAME).get("config") or {}
    if result.get("task") == "evaluate":
        told = Evaluation.read(result, point.joinpath)
        blocks = (told.averages, told.answered, told.asking, result["soundness"])
        draw_page(config["name"], evaluate.sections(*blocks), folder / "report.html", result)
        return
    if result.get("task") != "chat":
        run.write(folder / "report.html", result)
        return
    rows = foreign.read_json(point / "chat.json")
    sections = chat.sections(rows, result["chat"], result)
    draw_page(config["name"], sections, folder / "report.html", result)


def _text(path: Path) -> str | None:
    return LINKS.sub("", path.read_text("utf-8")) if path.is_file() else None
