"""What of a record follows from its own figures, made from them again: the sentence and the page.

Times are measured anew by every run, so no second run says what a record should say of them; that the
sentence and the page say what `result.json` says can be told without one.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from harness.compare.conclusion import conclusion
from harness.pipeline.environment import code, packages
from harness.pipeline.finish import draw_page
from harness.snapshot import record as records
from harness.task.audit.finding import Finding

DRAWN = ("report.html", "divergence.svg")
DRAWS = ("matplotlib", "Jinja2")  # what a page depends on besides the code
LINK = r'<a href="[^"<>]*">(sweep|manifest of the snapshot|result\.json|record\.json)</a>'
LINKS = re.compile(rf'<p class="links">({LINK}\s*)+</p>')  # to what lies around it, here or there
NUMBER = re.compile(r"[\d.]*\d(e[+-]?\d+)?|faster|slower")


def sentence(result: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the conclusion is the one that the figures give. Of other words, as another version may
    have said it, nothing is known where the code is another one too."""
    recorded, derived = result.get("conclusion"), conclusion(result)
    alike = ours(result) or words(recorded) == words(derived)
    if alike and recorded != derived and recorded is not None:
        yield Finding("conclusion", recorded, derived, "not what the record's own figures give")
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


def ours(result: Mapping[str, Any]) -> bool:
    """Whether this very code made the record."""
    return (result.get("environment") or {}).get("code") == code()


def words(said: Any) -> Any:
    """A sentence without its numbers and what they compare to."""
    return NUMBER.sub("#", said) if isinstance(said, str) else said


def page(point: Path, result: Mapping[str, Any]) -> Iterator[Finding]:
    """Whether the page and its picture are those of the result beside them. Only what this very code
    drew, with these very packages, can be drawn again to the letter."""
    if not redrawable(point, result):
        return
    with TemporaryDirectory() as folder:
        _draw(point, result, Path(folder))
        for name in DRAWN:
            was, now = (_text(place / name) for place in (point, Path(folder)))
            if was != now and now is not None:
                yield Finding(name, "a page", "another", "not drawn from the result beside it")


def sweep_page(sweep: Path, points: Sequence[Path]) -> Iterator[Finding]:
    """Whether the page of a sweep is that of the results of its points, where it can be drawn again."""
    from harness.report import sweep as pages

    seen = [(p, records.read(p / "result.json")) for p in points if (p / "result.json").is_file()]
    document = records.read(sweep / "sweep.json")
    waiting = any((p / records.PENDING).exists() for p, _ in seen) or "not_uploaded" in document
    if not seen or waiting or not all(redrawable(p, result) for p, result in seen):
        return
    said = {Path(str(records.read(p / records.NAME).get("folder"))).parent.name for p, _ in seen}
    name = said.pop() if len(said) == 1 else sweep.name
    rows = pages.rows([p for p, _ in seen])
    if _text(sweep / "sweep.html") != pages.drawn(sweep, rows, document.get("points"), name):
        yield Finding("sweep.html", "a page", "another", "not drawn from the results of the points")


def redrawable(point: Path, result: Mapping[str, Any]) -> bool:
    """Whether `page` can tell."""
    sealed, here = records.read(point / records.NAME).get("packages") or {}, packages()
    return ours(result) and all(sealed.get(name) == here.get(name) for name in DRAWS)


def _draw(point: Path, result: Mapping[str, Any], folder: Path) -> None:
    from harness.report import chat, run

    result = {**result, "mlflow": None}
    if result.get("task") != "chat":
        run.write(folder / "report.html", result)
        return
    config = records.read(point / records.NAME).get("config") or {}
    rows = json.loads((point / "chat.json").read_text("utf-8"))
    sections = chat.sections(rows, result["chat"])
    draw_page(config["name"], sections, folder / "report.html", result)


def _text(path: Path) -> str | None:
    return LINKS.sub("", path.read_text("utf-8")) if path.is_file() else None
