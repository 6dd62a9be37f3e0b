"""`task=save`: capture the state after a text and write it as a snapshot, read back and verified."""

import time
from dataclasses import replace
from pathlib import Path

from harness import machine
from harness.config import Config
from harness.engine import saved
from harness.errors import ConfigProblem, InputProblem
from harness.pipeline import foreign, origin
from harness.pipeline.finish import Outcome, finish_page
from harness.pipeline.line import Line
from harness.pipeline.snapshot import Stored, destination
from harness.present.messages import worded
from harness.report import html
from harness.report.terminal.console import Say
from harness.results.reason import Code, reason
from harness.save import store
from harness.snapshot.result import UNJUDGED


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Writes `out=DIR` (default: the run directory's `snapshot/`). The verdict is about storage:
    `exact` means that every byte was read back and matched its digest."""
    if cfg.compact or cfg.save.compact:
        return _compact(cfg, folder, say)
    if cfg.snapshot:
        raise ConfigProblem(
            f"snapshot={cfg.snapshot} is read by task=save only with compact=true, which writes it again. "
            "To go on from it: task=resume snapshot=DIR text=..."
        )
    if cfg.foreign:
        return _foreign(cfg, folder, say)
    line = Line.open(cfg, folder, say)
    stored = line.save(line.quantize(line.prune(line.capture())))
    start = time.perf_counter()
    store.load(stored.place)
    line.session.times["load"] = time.perf_counter() - start
    return line.finish(reason=reason(Code.SAVED))


def _foreign(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Make a snapshot of what another program saved, and judge it like any other: gone on from, against
    a run that the model does itself. Refused where the keys and values are not those of the tokens."""
    line = Line.open(cfg, folder, say)
    say.stage(f"read {cfg.foreign}")
    there = saved.read(Path(cfg.foreign or "").expanduser())
    prompted = cfg.prompt.ids or cfg.text is not None or origin.chosen("prompt")
    ids = line.session.encoded()[0].ids if prompted else there.tokens
    if not ids:
        raise InputProblem(
            f"{there.kind}: its tokens are not in the file. Give prompt.ids=[...] or text=..."
        )
    state, measured = foreign.adopted(line.session, there, ids, str(cfg.foreign))
    far = max(row["off_by"] for row in measured["layers"])
    say.done(
        f"{there.kind}, {machine.many(len(ids), 'token')}, at most {far:.3g} from this model's own"
    )
    restored = line.restore(line.save(state))
    judgement = line.judge(restored, restored.state)
    return line.finish(judgement, foreign=measured)


def _compact(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Write the snapshot again, in its own format, with everything it refers to in others. No model
    is needed; the source is left as it is unless `out=` names it."""
    if not cfg.snapshot:
        raise InputProblem("compact=true needs snapshot=DIR, the snapshot to make self-contained.")
    target = destination(cfg, folder)
    say.stage("load")
    state, before = store.load(cfg.snapshot)
    say.done("verified")
    say.stage("save")
    chosen = replace(cfg.save, name=before["payload_format"], compact=True)
    store.save(replace(state, parent=before["parent"]), target, chosen, say.note)
    back, manifest = store.load(target, store.current().back)
    say.done("written, read back, verified")
    owners = len(before["lineage"])
    record = {
        "verdict": UNJUDGED,
        "reason": f"self-contained; it referred to {machine.many(owners, 'other snapshot')} before",
        **Stored(target, manifest).record(back, back),
    }
    rows = [[k, v] for k, v in record["size"].items()]
    sections = [html.section("Size", columns=["what", "value"], rows=rows)]
    outcome = finish_page(cfg, folder, say, record, sections, 0)
    say.line(f"snapshot: {record['snapshot']['path']} ({worded(record['reason'])})")
    return outcome
