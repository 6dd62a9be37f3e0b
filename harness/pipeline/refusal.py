"""What a restore had read before it was refused: the tokens of a snapshot, and the model that is loaded."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from harness.config import Config
from harness.errors import NotRestored, RestoreRefused, SnapshotInvalid
from harness.pipeline import origin
from harness.pipeline.diagnosis import diagnose
from harness.pipeline.finish import modelled
from harness.pipeline.session import WRITING
from harness.report.terminal.console import Say
from harness.save import store
from harness.snapshot.digest import digest_document
from harness.snapshot.elements import MODEL
from harness.snapshot.state import State


def foreseen(cfg: Config, manifest: Mapping[str, Any], say: Say) -> None:
    """What is known from the `manifest` of a snapshot before its model is loaded. Raises InputProblem for an `out=`
    that it is built on; notes a `dtype` that the restore will refuse, with all that differs then."""
    if cfg.out and cfg.task.name in WRITING and cfg.at is None:
        store.check_replaced(cfg.out, manifest)
    if cfg.restore.strict and cfg.dtype != (saved := manifest["dtype"]):
        say.note(f"saved in {saved}, and run in {cfg.dtype} it will be refused: dtype={saved} fits")


@contextmanager
def naming(session: Any, manifest: Mapping[str, Any], state: State | None = None) -> Iterator[None]:
    """What refuses a restore in this block has, as `known`, what was read of the snapshot of `manifest` and of the
    model of `session`: keys of a `result.json`, of the elements those alone. state: that which is refused, once it was read, for the cause."""
    try:
        yield
    except (RestoreRefused, SnapshotInvalid) as problem:
        problem.known = {**_known(session, manifest), "environment": session.environment()}
        if state is not None and isinstance(problem, RestoreRefused):
            problem.diagnosis = diagnose(session.loaded, state, problem.differences).document()
        raise


def _known(session: Any, manifest: Mapping[str, Any]) -> dict[str, Any]:
    known, live = origin.read(manifest), session.documents
    digests = {name: digest_document([[], live.get(name)]) for name in MODEL}
    loaded = [{"name": name, "digest": digest} for name, digest in digests.items()]
    return {**known, "elements": [*loaded, *known["elements"]], "model": modelled(session)}


@contextmanager
def purposely(fault: str) -> Iterator[None]:
    """What is refused in this block was damaged by `fault`, and says so; `none`: it was not."""
    try:
        yield
    except NotRestored as problem:
        if fault != "none":
            problem.on_purpose(fault)
        raise
