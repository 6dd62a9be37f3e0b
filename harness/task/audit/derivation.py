"""What of a record follows from its own figures, made from them again: the sentence and the page.

Times are measured anew by every run, so no second run says what a record should say of them; that the
sentence and the page say what `result.json` says can be told without one.
"""

import html
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from harness.present.conclusion import conclusion, speed, stored
from harness.present.messages import worded
from harness.present.refusal import sentences
from harness.report.audit.figures import came
from harness.report.footer import LEFT
from harness.results.reason import Code, args_of, find
from harness.snapshot.result import COMPARED, GOOD
from harness.task.audit.finding import Finding

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
    have said it, only the numbers can be told."""
    recorded, derived = result.get("conclusion"), concluded(result)
    alike = words(recorded) == words(derived)
    if alike and recorded != derived and recorded is not None:
        yield Finding("conclusion", recorded, derived, "not what the record's own figures give")
    elif not alike and isinstance(recorded, str) and result.get("verdict") in COMPARED:
        for claim, own in claims(recorded, f"{derived} {worded(result.get('reason'))}", result):
            why = "the sentence says this, and no figure of the record gives it"
            yield Finding("conclusion", claim, own, why)
    reason = result.get("reason")
    errors = result.get("oracle") or {}
    ours_off, plain = errors.get("restored"), errors.get("plain")
    if ours_off is not None and plain and errors.get("ratio") != ours_off / plain:
        yield Finding("oracle.ratio", errors.get("ratio"), ours_off / plain, "not its two errors")
    rule = find(reason, Code.ORACLE_ERROR)
    if rule and (args_of(rule).get("restored"), args_of(rule).get("plain")) != (ours_off, plain):
        said = [ours_off, plain]
        yield Finding("reason", reason, said, "not the errors that `oracle` says")


def concluded(result: Mapping[str, Any]) -> str:
    """The conclusion that a run with these figures records: of a refusal the first thing that does not fit, where that
    is known."""
    first = sentences(dict(result))[:1] if came(result) else ()
    return first[0] if first else conclusion(result)


def claims(said: str, known: str, result: Mapping[str, Any]) -> Iterator[tuple[str, str | None]]:
    """What the sentence `said` claims in numbers that neither a figure of the result nor the sentence `known` gives,
    and what one does: how much faster, how much stored, and any other number that stands alone."""
    for pattern, own in ((SPEED, speed(result, 0.0)), (AMOUNT, stored(result))):
        for claim in pattern.findall(said):
            if not own.startswith(claim):
                yield claim, own or None
        said = pattern.sub("", said)
    verdict = str(result.get("verdict"))
    for phrase, holds in (("bit-equal", verdict == "exact"), ("Same thought", verdict in GOOD)):
        if phrase in said and not holds:
            yield phrase, verdict
    given = {*ALONE.findall(known)}
    blocks = {k: v for k, v in result.items() if k not in UNSAID}
    numbers = [*_numbers(blocks)]
    for match in ALONE.finditer(said):
        claim = match.group()
        if claim not in given and not any(prints(n, claim) for n in numbers):
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


def words(said: Any) -> Any:
    """A sentence without its numbers and what they compare to."""
    return NUMBER.sub("#", said) if isinstance(said, str) else said


def page(point: Path, result: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the page's headline, and how much faster it says that anything is, are those of the result beside it: no
    other version draws the rest of it again to the letter."""
    file = point / "report.html"
    text = html.unescape(file.read_text("utf-8")) if file.is_file() else ""
    said, own = result.get("conclusion"), speed(result, 0.0)
    if came(result):  # without the places that its conclusion names
        said = (result.get("diagnosis") or {}).get("evidence")
    if text and result.get("task") in HEADED and isinstance(said, str) and said not in text:
        yield Finding("report.html", said, "another", "its headline is not the record's sentence")
    for claim in SPEED.findall(text):
        if not own.startswith(claim):
            why = "the page says this, and no figure of the record gives it"
            yield Finding("report.html", claim, own or None, why)
