"""`task=ui`: a local page to step a thought, look into it, pause it and bring it back."""

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

PAUSE = 0.5  # seconds between two looks for a Ctrl-C that woke another thread


def run(cfg: Any, folder: Path, say: Any) -> Any:
    """Serves the page on 127.0.0.1 until Ctrl-C, or for `task.seconds`. Snapshots go to `out=DIR`
    (default: the run directory's `snapshots/`); `snapshot=DIR` is open from the start. Exit 0."""
    prepare()  # before anything heavy
    from harness.pipeline.prompt import prompt_text
    from harness.pipeline.session import Session
    from harness.save import store
    from harness.task.ui import handlers
    from harness.task.ui.continuation import places
    from harness.task.ui.evaluation import SETS
    from harness.task.ui.session import PageSession
    from harness.task.ui.snapshots import SnapshotStore, check_folder
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
    session.say = type(say)(quiet=True)  # the page shows messages from here on
    snapshots = SnapshotStore(place, cfg.save)
    with engine_of(cfg, say) as engine:
        if engine is not None:
            say.done(_versions(engine))

        def opened() -> PageSession:
            made = PageSession(session, snapshots, folder, engine)
            if source:
                made.restore(store.load(source)[0], Path(source))
            return made

        opened()  # a snapshot that is refused ends the task here, not in the browser
        tabs = Tabs(opened, place, cfg.save)
        asked = cfg.prompt.name in SETS  # questions given on the command line
        kind = "recall" if cfg.model.name == "tiny" else "needle"
        kind, file = (cfg.prompt.name, cfg.prompt.path or "") if asked else (kind, "")
        where = places(engine, cfg.engine.name)
        first = (facts(session, engine), prompt, cfg.task.run, kind, file, where)
        with serving(
            lambda: handlers.build(tabs, cfg.task.check, *first), cfg.task.port, folder.parent
        ) as address:
            say.line(f"page: {address} (Ctrl-C ends it)")
            _wait(cfg.task.seconds)
            tabs.end()
    return _finished(cfg, folder, say, snapshots)


def engine_of(cfg: Config, say: "Say") -> "AbstractContextManager[Engine | None]":
    """The engine that a branch can be continued by; None where `engine=` names ours."""
    from harness.engine.registry import OURS, engine

    if cfg.engine.name == OURS:
        return nullcontext()
    say.stage(f"engine {cfg.engine.name}")
    return engine(cfg.engine, lambda: None)


def facts(session: Any, engine: "Engine | None") -> str:
    """One line about model, device, engine and formats."""
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
        interrupt.heard()  # a page ends this way: the rest of the task runs undisturbed


def _finished(cfg: Any, folder: Path, say: Any, snapshots: Any) -> Any:
    from harness.config.literal import whole
    from harness.pipeline.environment import command
    from harness.pipeline.finish import finish_page, shown
    from harness.report import html

    place = shown(snapshots.folder)
    rows = [[name, snapshots.stored_bytes(name)] for name in snapshots.names()]
    reason = f"{machine.many(len(rows), 'snapshot')} in {place}"
    saved = [{"name": name, "stored_bytes": nbytes} for name, nbytes in rows]
    record = {"verdict": UNJUDGED, "reason": reason, "snapshots": saved}
    sections = [html.section("Snapshots", columns=["name", "bytes"], rows=rows)]
    outcome = finish_page(cfg, folder, say, record, sections, 0)
    typed = [word for word in command() if not word.startswith(("out=", "task.seconds="))]
    again = process.retold(whole([*typed, f"out={place}"]))
    say.line(f"{reason}; open them again with: {again}")
    return outcome
