"""`task=ui`: a small local page to step a thought, look into it, pause it and bring it back."""

import time
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness import interrupt, machine, process
from harness.config import Config, at_least, within
from harness.errors import InputProblem
from harness.snapshot.result import UNJUDGED
from harness.task.ui.server import check_port, prepare, serving

if TYPE_CHECKING:
    from harness.engine import Engine
    from harness.report.terminal.console import Say

PAUSE = 0.5  # seconds; Python looks for a Ctrl-C that another thread was woken for in between


def run(cfg: Any, folder: Path, say: Any) -> Any:
    """Serves the page on 127.0.0.1 until Ctrl-C, or for `task.seconds`. Snapshots go to `out=DIR`
    (default: the run directory's `snapshots/`); `snapshot=DIR` is open from the start. Exit 0."""
    prepare()  # before anything heavy
    from harness.pipeline.prompt import prompt_text
    from harness.pipeline.session import Session
    from harness.save import store
    from harness.task.ui import acts
    from harness.task.ui.continuation import places
    from harness.task.ui.desk import Desk
    from harness.task.ui.evaluation import SETS
    from harness.task.ui.shelf import Shelf, check_folder
    from harness.task.ui.tabs import Tabs

    within("task.port", cfg.task.port, 0, 65535)
    at_least("task.seconds", cfg.task.seconds, 0)
    at_least("task.run", cfg.task.run, 1)
    at_least("task.check", cfg.task.check, 1)
    check_port(cfg.task.port)
    place, source = store.place(cfg.out or folder / "snapshots"), cfg.snapshot
    if isinstance(place, str):
        raise InputProblem(
            "task=ui keeps its snapshots on this machine. Give out=DIR, a local folder."
        )
    if source:
        store.read_manifest(store.place(source))
    check_folder(place)
    prompt, _ = prompt_text(cfg)
    session = Session.open(cfg, folder, say)
    session.say = type(say)(quiet=True)  # from now on the page speaks
    shelf = Shelf(place, cfg.save)
    with engine_of(cfg, say) as engine:
        if engine is not None:
            say.done(_versions(engine))

        def desk() -> Desk:
            made = Desk(session, shelf, folder, engine)
            if source:
                made.restore(store.load(source)[0], Path(source))
            return made

        desk()  # a snapshot that is refused ends the task here, not in somebody's browser
        tabs = Tabs(desk, shelf.folder, cfg.save)
        own = cfg.prompt.name in SETS  # questions that were asked for on the command line
        asked = cfg.prompt.name if own else "recall" if cfg.model.name == "tiny" else "needle"
        file = (cfg.prompt.path or "") if own else ""
        shown = places(engine, cfg.engine.name)
        first = (facts(session, engine), prompt, cfg.task.run, asked, file, shown)
        with serving(
            lambda: acts.build(tabs, cfg.task.check, *first), cfg.task.port, folder.parent
        ) as address:
            say.line(f"page: {address} (Ctrl-C ends it)")
            _wait(cfg.task.seconds)
            tabs.end()
    return _concluded(cfg, folder, say, shelf)


def engine_of(cfg: Config, say: "Say") -> "AbstractContextManager[Engine | None]":
    """The engine beside ours that a branch can be continued by; none where `engine=` names ours."""
    from harness.engine.registry import OURS, engine

    if cfg.engine.name == OURS:
        return nullcontext()
    say.stage(f"engine {cfg.engine.name}")
    return engine(cfg.engine, lambda: None)


def facts(session: Any, engine: "Engine | None") -> str:
    """One line about what thinks here."""
    from importlib import metadata

    cfg = session.cfg
    runs = f"Transformers {metadata.version('transformers')}"
    beside = _versions(engine) if engine else ""
    return " \u00b7 ".join(
        [
            f"model {Path(cfg.model.path).name if cfg.model.path else cfg.model.name}",
            cfg.dtype,
            str(session.loaded.device),
            f"runs on {runs}",
            *([f"beside it {beside}"] if beside else []),
            f"cache {cfg.cache.name}",
            f"save {cfg.save.name}",
        ]
    )


def _versions(engine: "Engine") -> str:
    return ", ".join(f"{name} {version}" for name, version in engine.versions().items())


def _wait(seconds: float) -> None:
    """Until Ctrl-C, or until so many seconds have passed (0: without end)."""
    end = time.monotonic() + seconds if seconds else float("inf")
    try:
        while (left := end - time.monotonic()) > 0:
            time.sleep(min(left, PAUSE))
    except KeyboardInterrupt:
        interrupt.heard()  # it is how a page ends; what is left to do is done in peace


def _again(place: str) -> str:
    """The command that was typed, with `place` as the shelf: the same model in the same precision."""
    from harness.config.literal import whole
    from harness.pipeline.environment import command

    typed = [word for word in command() if not word.startswith(("out=", "task.seconds="))]
    return process.retold(whole([*typed, f"out={place}"]))


def _concluded(cfg: Any, folder: Path, say: Any, shelf: Any) -> Any:
    from harness.pipeline.finish import finish_page, shown
    from harness.report import html

    names = shelf.names()
    reason = f"{machine.many(len(names), 'snapshot')} in {shown(shelf.folder)}"
    rows = [[name, shelf.stored_bytes(name)] for name in names]
    snapshots = [{"name": name, "stored_bytes": nbytes} for name, nbytes in rows]
    record = {"verdict": UNJUDGED, "reason": reason, "snapshots": snapshots}
    sections = [html.section("Snapshots", columns=["name", "bytes"], rows=rows)]
    outcome = finish_page(cfg, folder, say, record, sections, 0)
    say.line(f"{reason}; open them again with: {_again(shown(shelf.folder))}")
    return outcome
