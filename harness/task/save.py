"""`task=save`: capture the state after a text and write it as a snapshot, read back and verified."""

import time
from pathlib import Path
from typing import Any

from harness.model.sampler import Sampler
from harness.save import store
from harness.task.experiment import sizes
from harness.task.outcome import Outcome, conclude, snapshot_record
from harness.task.pruning import pruned
from harness.task.session import Session


def run(cfg: Any, folder: Path, say: Any) -> Outcome:
    """Writes `out=DIR` (default: the run directory's `snapshot/`). The verdict is about storage:
    `exact` means that every byte was read back and matched its digest."""
    session = Session.open(cfg, folder, say)
    rows = session.encoded()
    say.stage("capture")
    captured = session.capture(rows, Sampler(cfg.sampling, cfg.seed))
    say.done(f"{captured.state.tokens} tokens")
    state = pruned(session, captured.state)
    target = Path(cfg.out).expanduser() if cfg.out else folder / "snapshot"
    say.stage(f"save {cfg.save.name}")
    start = time.perf_counter()
    manifest = store.save(state, target, cfg.save)
    session.times["save"] = time.perf_counter() - start
    start = time.perf_counter()
    store.load(target)
    session.times["load"] = time.perf_counter() - start
    say.done("written, read back, verified")
    record = {
        "verdict": "exact",
        "reason": "every byte was read back and matches its digest",
        "size": sizes(captured.state, state, store.stored_bytes(target)),
        "snapshot": snapshot_record(manifest, target),
        "elements": manifest["elements"],
        "text": {"prompt": rows[0].text, "account": [dict(a) for a in rows[0].account]},
    }
    return conclude(session, record)
