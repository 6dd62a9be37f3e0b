"""`task=save`: capture the state after a text and write it as a snapshot, read back and verified."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from harness.errors import InputProblem
from harness.model.sampler import Sampler
from harness.pipeline.finish import Outcome, conclude, snapshot_record
from harness.pipeline.plain import finish
from harness.pipeline.prune import pruned
from harness.pipeline.session import Session
from harness.report import html
from harness.save import store
from harness.snapshot.result import UNJUDGED
from harness.task.experiment import sizes


def run(cfg: Any, folder: Path, say: Any) -> Outcome:
    """Writes `out=DIR` (default: the run directory's `snapshot/`). Every byte is read
    back and matched with its digest; thoughts are not compared."""
    if cfg.compact or cfg.save.compact:
        return _compact(cfg, folder, say)
    session = Session.open(cfg, folder, say)
    rows = session.encoded()
    say.stage("capture")
    captured = session.capture(rows, Sampler(cfg.sampling, cfg.seed))
    say.done(f"{captured.state.tokens} tokens")
    state = pruned(session, captured.state)
    target = store.place(cfg.out) if cfg.out else folder / "snapshot"
    say.stage(f"save {cfg.save.name}")
    start = time.perf_counter()
    manifest = store.save(state, target, cfg.save, say.note)
    session.times["save"] = time.perf_counter() - start
    start = time.perf_counter()
    store.load(target)
    session.times["load"] = time.perf_counter() - start
    say.done("written, read back, verified")
    record = {
        "verdict": UNJUDGED,
        "reason": "saved: every byte was read back and matches its digest",
        "size": sizes(captured.state, state, store.stored_bytes(target)),
        "snapshot": snapshot_record(manifest, target),
        "elements": manifest["elements"],
        "text": {"prompt": rows[0].text, "account": [dict(a) for a in rows[0].account]},
    }
    return conclude(session, record)


def _compact(cfg: Any, folder: Path, say: Any) -> Outcome:
    """Write the snapshot again, in its own format, with everything it refers to in others. No model
    is needed; the source is left as it is unless `out=` names it."""
    if not cfg.snapshot:
        raise InputProblem("compact=true needs snapshot=DIR, the snapshot to make self-contained.")
    target = store.place(cfg.out) if cfg.out else folder / "snapshot"
    say.stage("load")
    state, before = store.load(cfg.snapshot)
    say.done("verified")
    say.stage("save")
    chosen = replace(cfg.save, name=before["payload_format"], compact=True)
    store.save(replace(state, parent=before["parent"]), target, chosen, say.note)
    back, manifest = store.load(target)
    say.done("written, read back, verified")
    owners = len(before["lineage"])
    record = {
        "verdict": UNJUDGED,
        "reason": f"saved, self-contained; it referred to {owners} other snapshots before",
        "size": sizes(back, back, store.stored_bytes(target)),
        "snapshot": snapshot_record(manifest, target),
        "elements": manifest["elements"],
    }
    rows = [[k, v] for k, v in record["size"].items()]
    sections = [html.section("Size", columns=["what", "value"], rows=rows)]
    say.line(f"snapshot: {record['snapshot']['path']} ({record['reason']})")
    return finish(cfg, folder, record, sections, 0)
