"""What the console says of a sweep: what it is before its first point, each point, the front of a search."""

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any

from harness import config, machine
from harness.cli import search
from harness.config import notes, tracking
from harness.config.literal import decoded, typed
from harness.present.refusal import REFUSED, sentences
from harness.snapshot.result import DONE, UNJUDGED
from harness.snapshot.result import outcome as words

WIDE = 60  # characters of an axis' values that are still told one by one


def begun(
    cfg: Any,
    overrides: Sequence[str],
    total: int | None,
    there: int,
    folder: Path,
    seed: int | None,
) -> Callable[[], None]:
    """Says at once how many points there are and what they vary; what it gives says where they go, once it is known
    that they begin, before the first one imports anything.

    overrides: all of the sweep. total: None for a search. there: points finished before. seed: as of `drawn`.
    """
    first, *others = heading(cfg, overrides, total, there, folder)
    print(first, flush=True)
    return partial(print, "\n".join([*others, *drawn(seed)]), flush=True)


def heading(
    cfg: Any, overrides: Sequence[str], total: int | None, there: int, folder: Path
) -> list[str]:
    """The lines of `begun`."""
    from harness.pipeline.finish import shown

    trials = search.trials(cfg)
    many = machine.many(total, "point") if total else f"a search of {trials or 'some'} points"
    axes = [told for override in overrides if (told := _axis(override))]
    lines = [f"{many}: {', '.join(axes)}" if axes else many]
    if there:
        lines[0] += f" ({there} {'is' if there == 1 else 'are'} there)"
    lines += _unsaid(overrides)
    if said := tracking.told(cfg.track.name, cfg.track.get("uri"), cfg.track.get("experiment")):
        lines.append(f"note:    {said}")
    lines.append(f"folder:  {shown(folder)}")
    uri = cfg.track.get("uri") or f"{cfg.runs_dir}/mlflow.db"
    lines.append(f"MLflow:  {uri if cfg.track.name != 'none' else 'not used (track=none)'}")
    return lines


def drawn(seed: int | None) -> list[str]:
    """The line of a seed that was drawn for a search; none where it had one."""
    said = f"seed:    {seed}, drawn for the search (hydra.sweeper.sampler.seed={seed})"
    return [] if seed is None else [said]


def resumed(before: int, now: int, sent: int) -> str:
    """What a sweep that went on found, what it added, and how many of the first it uploaded at last."""
    were = "point was" if before == 1 else "points were"
    uploaded = f", {sent} {'was' if sent == 1 else 'were'} uploaded" if sent else ""
    return f"\n{before} {were} there, {now} {'was' if now == 1 else 'were'} run now{uploaded}."


def deleted(many: int) -> str:
    """Of runs that somebody has deleted: nobody writes them again."""
    whose, stay = ("point's run was", "stays") if many == 1 else ("points' runs were", "stay")
    return f"MLflow:  {many} {whose} deleted there, and {stay} so (it lists them under State: Deleted)."


def untold(why: str) -> str:
    """That the tracking server has the points of a sweep and not what it came to. why: a sentence."""
    return f"MLflow:  the sweep's own run is not complete there: {why.removesuffix('.')}; then resume it."


def _unsaid(overrides: Sequence[str]) -> list[str]:
    """What would else happen in silence, a line each."""
    return [f"note:    {told}" for told in notes.of_sweep(overrides)]


def _cut(value: str) -> str:
    """A value in the line of a point: a text of a page is told by how it begins."""
    return value if len(value) <= WIDE else f"{value[:WIDE]}\u2026"


def _axis(override: str) -> str | None:
    """A swept override as a person reads it; None for one that every point shares."""
    values = config.jobs([override])
    if values == 1:
        return None
    text = typed(override, many=True)
    if len(text) <= WIDE:
        return text
    return f"{text.partition('=')[0]} ({values or 'searched'}{' values' * bool(values)})"


def _last(name: str) -> str:
    return name.rpartition(".")[2]


def point(
    outcome: Any, name: str, varied: Sequence[str], seconds: str, told: dict[str, float]
) -> str:
    """What one point came to: the rest of its line, and below it why it failed. name: of its folder.
    seconds: that it took, and that are left. told: what a search is told of it, in place of a verdict."""
    from harness.report import names
    from harness.snapshot.objective import said

    why = outcome.reason if outcome.verdict in ("failed", "refused") else ""
    if outcome.verdict == REFUSED:
        with suppress(OSError, ValueError):  # what does not fit, before the figures that say so
            result = json.loads((Path(outcome.folder) / "result.json").read_text("utf-8"))
            why = "\n".join(sentences(result)) or why
    figures = "" if why else said(told)
    verdict = outcome.verdict
    if not told and not why:
        came = ""
        with suppress(FileNotFoundError):  # of a task that only looks, as task=inspect
            came = words(json.loads((Path(outcome.folder) / "result.json").read_text("utf-8")))
        verdict = came or verdict
        if verdict == UNJUDGED and not came:
            verdict, why = DONE, outcome.reason  # what it came to
    chose = _chose(varied)
    line = (
        f"{figures or f'{verdict:<10}'} {seconds} {names.folder(name)}{': ' * bool(chose)}{chose}"
    )
    return f"{line}\n{_below(names.in_brief(why))}" if why else line


def present(number: int, aim: int | None, varied: Sequence[str]) -> AbstractContextManager[Any]:
    """`passing` of a point that is made inside the block."""
    return passing(f"[{number}{f'/{aim}' if aim else ''}] {_chose(varied)}")


@contextmanager
def passing(label: str) -> Iterator[Any]:
    """The `Passing` called `label` of what is done inside the block, gone at its end; None where stderr is no
    terminal that can take a line away."""
    from rich.console import Console

    from harness.report.terminal.point import Passing

    console = Console(stderr=True, highlight=False)
    if not (console.is_terminal and sys.stderr.isatty()) or console.is_dumb_terminal:
        yield None
        return
    line = Passing(console, label)
    try:
        yield line
    finally:
        line.leave(for_good=True)


def _chose(varied: Sequence[str]) -> str:
    from harness.report.picture import plots

    pairs = (decoded(o).partition("=") for o in varied)
    return " ".join(f"{key}{equals}{_cut(plots.short(value))}" for key, equals, value in pairs)


def _below(said: str) -> str:
    """A sentence below a line, folded on a terminal."""
    from harness.report.terminal.console import Say
    from harness.report.terminal.fold import folded

    out = Say().out
    return folded(f"  {said}", out.width) if out.is_terminal else f"  {said}"


def closing(say: Any, told: Any) -> None:
    """The end of a sweep on the console (`present.sweep.closing`)."""
    from harness.present.table import printed

    say.line()
    for label, text in told.lines:
        say.fact(label, text)
    if told.table:
        say.line()
        printed(say.out, told.table)
        say.line()
    for label, text in told.after:
        say.fact(label, text)
