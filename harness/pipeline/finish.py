"""Every task's end: `result.json` and its seal, a page, MLflow, the console, the exit code.

`finish` is the only way out; the three below it say what a judged run, a table of measurements and
a page without a model put into it. What a failed job leaves is in `failure.py`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harness import interrupt
from harness.config import Config, literal, written
from harness.present import messages
from harness.present.conclusion import conclusion
from harness.process import shown
from harness.results import metric
from harness.results import reason as reasons
from harness.snapshot import table
from harness.snapshot.result import (
    METRICS,
    MUTATION,
    SCHEMA,
    TIMES,
    UNJUDGED,
    exit_code,
    finite,
    write_json,
    write_text,
)

if TYPE_CHECKING:
    from harness.report.terminal.console import Say

NOTHING_STORED = {"id": None, "path": None, "format": None, "format_version": None}
NO_SIZE = {"tokens": 0, "kept_tokens": 0, "kv_bytes": 0, "stored_bytes": 0}
GROUPS = (
    "task", "model", "tokenizer", "cache", "prune", "quantize", "save", "prompt", "sampling", "compare",
    "fault", "track",
)  # fmt: skip

Record = dict[str, Any]
Sections = list[dict[str, Any]]


class Job(Protocol):
    """What an ending asks: a Session, or a job whose model is somebody else's."""

    cfg: Config
    folder: Path
    say: "Say"
    times: dict[str, float]

    @property
    def loaded(self) -> Any:
        """Has `source`: where the model came from."""

    def environment(self) -> dict[str, Any]:
        """Where and how it was measured."""
        ...


@dataclass(frozen=True)
class Outcome:
    """exit_code: 0 verdict meets the requirement, 1 it does not. folder: where the record is."""

    exit_code: int
    verdict: str
    folder: str
    reason: str = ""


def finish(
    cfg: Config,
    folder: Path,
    say: "Say",
    result: Record,
    draw: Callable[[Path, Record], object],
    show: Callable[[Record], object] = lambda result: None,
    children: Sequence[Record] = (),
    code: int | None = None,
    tracked: bool = True,
) -> Outcome:
    """Draw `result` as `report.html`, write it, track it, show it. Sets `result["mlflow"]`.

    children: one MLflow run each below this run's own. code: the exit code, by default from the
    verdict and what is required. tracked: False leaves out the seal and MLflow.
    """
    say.stage("record")
    result["reason"] = reasons.of(result["reason"])
    if code and code != exit_code(result):  # another than its verdict says
        result["exit_code"] = code
    draw(folder / "report.html", result)
    problem = write(cfg, folder, result, tracked, children)
    say.done(result["folder"])
    show(result)
    if result["mlflow"] and not say.quiet:
        from harness.report.terminal import tracked as store

        for label, words in store.places(result["mlflow"]):
            say.line(f"{label + ':':<13} {words}")
    if problem:  # last, where it is seen
        say.problem(f"harness: {problem} {remedy(folder, problem, cfg.track.uri is not None)}")
    code = exit_code(result) if code is None else code
    return Outcome(code, result["verdict"], str(folder), messages.worded(result["reason"]))


def finish_run(session: Job, record: Record) -> Outcome:
    """A run that was judged. `record["curves"]` is for the plots."""
    from harness.report.run import page as report
    from harness.report.terminal import console

    result, say = completed(session, record), session.say
    shown_as = session.cfg.report
    show = partial(console.show, say, digests=shown_as.digests, verbose=shown_as.verbose)
    return finish(session.cfg, session.folder, say, result, report.write, show)


def finish_table(
    session: Job,
    name: str,
    rows: list[Record],
    sections: Sections,
    verdict: str,
    reason: "reasons.Reason | str",
    columns: Sequence[str],
    children: Sequence[Record] = (),
    record: Record | None = None,
    shown_rows: list[Record] | None = None,
    code: int | None = None,
    closing: str = "",
    by: Sequence[str] = (),
    word: str = "",
) -> Outcome:
    """A table of measurements: `rows` as NAME.json beside `result.json`, `sections` as the page.

    record: further fields of `result.json`. shown_rows: for the console instead of `rows`.
    code: the exit code, by default from the verdict and what is required. closing: the console's line
    in place of the verdict, where that is not what the table is about. by: the columns that tell the rows apart, where
    the table is all there is; word: what it came to then, in a few words.
    """
    from harness.report.terminal import command, console
    from harness.report.terminal.fold import filled

    cfg, say = session.cfg, session.say
    blank = {"size": NO_SIZE, "snapshot": NOTHING_STORED, "elements": [], "text": {}}
    judged = {"verdict": verdict, "reason": reason}
    more = {**(record or {}), **({"table": table.block(name, columns, by, word)} if by else {})}
    result = completed(session, {**judged, **blank, **more})
    write_json(session.folder / f"{name}.json", rows)

    def show(result: Record) -> None:
        if not say.quiet:
            cells = [[row.get(c) for c in columns] for row in shown_rows or rows]
            console.concluded(say, result)
            console.tabled(say, name, list(columns), cells)
            say.line()
            why = messages.worded(reason)
            for more in why.splitlines()[1:]:  # than the sentence above the table
                say.line(filled(more, say.out.width))
            if closing:
                if closing.partition(": ")[2].strip().rstrip(".") not in result["conclusion"]:
                    say.line(closing)
            elif verdict != UNJUDGED:
                why = "" if why[1:].rstrip(".") in result["conclusion"] else why
                say.fact("verdict", ": ".join(filter(None, (verdict.upper(), why))))
            kept = (result.get("snapshot") or {}).get("path")
            following = command.command(result) if kept else ""
            named = (
                ("snapshot", kept),
                ("report", f"{result['folder']}/report.html"),
                ("next", following),
            )
            for what, told in named:
                if told:
                    say.line(f"{what + ':':<14}{told}")

    code = exit_code(result) if code is None else code
    page = partial(draw_page, cfg.name, sections)
    return finish(cfg, session.folder, say, result, page, show, children, code)


def finish_page(
    cfg: Config, folder: Path, say: "Say", record: Record, sections: Sections, code: int, tracked: bool = False,
    show: Callable[[Record], object] = lambda result: None,
) -> Outcome:  # fmt: skip
    """A task that loads no model: `record` (with `verdict` and `reason`) and a page of `sections`. tracked, show: as of
    `finish`."""
    from harness.pipeline.environment import environment
    from harness.report.html import section
    from harness.snapshot.words import apart

    record = {**record, "reason": reasons.of(record["reason"])}
    # two files that were laid side by side are no two runs: the reason is all there is to say
    compared = record.get("metrics") or record["verdict"] in ("refused", "failed")
    result = {
        "schema": SCHEMA,
        "task": cfg.task.name,
        **record,
        "conclusion": conclusion(record if compared else {**record, "verdict": UNJUDGED}),
        "environment": environment(cfg, "none", "none"),
        "mlflow": None,
        "options": options(cfg),
        "folder": shown(folder),
    }
    named = [str(place) for place in (cfg.a, cfg.b, cfg.snapshot) if place]
    short = apart([shown(place) for place in named])
    title = f"{cfg.task.name} {short[0] if short else ''}".strip()
    if named[1:]:  # what their columns are called, too
        title = f"{cfg.task.name} {', '.join(f'{key} = {name}' for key, name in zip('ab', short))}"
        short = ["a", "b"]
        where = "\n".join(f"{key}={shown(place)}" for key, place in zip("ab", named))
        sections = [*sections, section("Where they are", pre=where, fold=True)]
    page = partial(draw_page, title, sections, snapshots=dict(zip(named, short)), sealed=tracked)
    return finish(cfg, folder, say, result, page, show, code=code, tracked=tracked)


def draw_page(
    title: str,
    sections: Sections,
    path: Path,
    result: Record,
    snapshots: Mapping[str, str] | None = None,
    sealed: bool = True,
) -> None:
    """Write a page of `sections` under the conclusion of `result`, with the environment and the command
    below them, and with links: to the runs that left `snapshots` (place -> what it is called), where they are here, else to its
    own files. sealed: whether there will be a `record.json` among these."""
    from harness.report import footer as closing
    from harness.report import headline, html
    from harness.report.badge import badge, pills
    from harness.report.run import page as run

    links = run.links(path.parent, result) if snapshots is None else []
    for place, name in (snapshots or {}).items():
        here = path.parent
        links += html.link(f"manifest of {name}", Path(place) / "manifest.json", here)
        links += html.link(f"the run that left {name}", Path(place).parent / "report.html", here)
    files = ["result.json", *["record.json"] * sealed]
    links += [(name, name) for name in files] * (snapshots is not None)
    if snapshots is None:
        title = closing.named(title, result, path.parent)
    words, colour = badge(result)
    blocks = [*sections, *closing.sections(result, path.parent, closing.again(result))]
    said, under = html.headed(sections, headline.said(result)), closing.under(result, path.parent)
    own = pills(result) or ([] if words else html.pills(sections))
    text = html.page(title, blocks, words, said, colour, links, under=under, pills=own)
    write_text(path, text)


def write(
    cfg: Config, folder: Path, result: Record, tracked: bool = True, children: Sequence[Record] = ()
) -> str:
    """Write `result.json`, with its seal and MLflow where `tracked`; what went wrong, or nothing.

    Sets `result["mlflow"]`. A tracking server that is away costs no result: what waits for it, runs
    below this one too, lies in `pending.json`.
    """
    from harness import track
    from harness.pipeline.environment import packages
    from harness.snapshot.record import PENDING, seal

    interrupt.in_time()
    result.setdefault("mlflow", None)
    if not tracked:
        write_json(folder / "result.json", result)
        return ""
    if cfg.track.name != "none" and not (folder / PENDING).exists():
        waiting = {"reason": "upload not begun", "children": list(children)}
        write_json(folder / PENDING, waiting)  # a kill here loses nothing
    written(folder, asdict(cfg))
    seal(folder, result, asdict(cfg), packages())
    result["mlflow"], problem = track.log(cfg.track, cfg.runs_dir, folder, result, cfg.name)
    return problem


def remedy(folder: Path, problem: str, moves: bool, typed: Sequence[str] = ()) -> str:
    """What to do about a result that the tracking server did not get. problem: why. moves: whether that may have
    another address by now. typed: what was said of the store when it was tried once more."""
    from harness.track.store import DELETED

    mine = f"resume={shown(folder)}"
    told = f"once that is mended, `{literal.command([mine, *typed])}` uploads it"
    if DELETED in problem:
        told += f", or now, into another: `{literal.command([mine, 'track.experiment=OTHER'])}`"
    if moves:
        kept = [word for word in typed if not word.startswith("track.uri=")]
        elsewhere = literal.command([mine, *kept, "track.uri=ADDRESS"])
        told += f"; where the server has another address by now, `{elsewhere}` does"
    return f"The result is safe in {shown(folder)}; {told}."


def completed(session: Job, record: Record) -> Record:
    """The fixed fields of `result.json`, in their fixed order, with what the session knows."""
    cfg = session.cfg
    figures = (*METRICS, *(own.name for own in metric.measured()))
    fixed = {
        "schema": SCHEMA,
        "task": cfg.task.name,
        "verdict": record["verdict"],
        "reason": reasons.of(record["reason"]),
        "required": cfg.compare.require_pruned if record.get("pruned") else cfg.compare.require,
        "metrics": {key: record.get("metrics", {}).get(key) for key in figures},
        "noise_floor": {key: record.get("noise_floor", {}).get(key) for key in figures},
        "oracle": record.get("oracle", {}),
        "soundness": record.get("soundness", {}),
        "against": record.get("against"),
        "diagnosis": record.get("diagnosis"),
        "mutation": {key: record.get("mutation", {}).get(key) for key in MUTATION},
        "size": record["size"],
        "time_s": {key: session.times.get(key) for key in TIMES},
        "snapshot": record["snapshot"],
        "elements": record["elements"],
        "environment": session.environment(),
        "mlflow": None,
        "model": modelled(session),
        "options": options(cfg),
        "folder": shown(session.folder),
    }
    result = {**fixed, **{k: v for k, v in record.items() if k not in fixed}}
    return {**result, "conclusion": conclusion(finite(result))}


def modelled(session: Job) -> Record:
    """Where the model came from, and what is known of its size: nothing of one that is somebody else's."""
    loaded = session.loaded
    return {**loaded.source, "option": session.cfg.model.name, **getattr(loaded, "shape", {})}


def options(cfg: Config) -> dict[str, str]:
    """Which option of each group this run used."""
    more = ("engine",) if cfg.task.name == "referee" else ()
    return {group: getattr(cfg, group).name for group in (*GROUPS, *more)} | cfg.called
