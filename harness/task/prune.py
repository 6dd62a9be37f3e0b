"""`task=prune`: read a snapshot, prune it, write the smaller one, and measure what that costs."""

from dataclasses import replace
from pathlib import Path

from harness.config import Config
from harness.pipeline.finish import Outcome
from harness.pipeline.line import Line, Restored
from harness.pipeline.snapshot import Stored
from harness.report.terminal.console import Say
from harness.results.reason import Code, reason


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Needs `snapshot=DIR` and a policy or a quantizer; writes `out=DIR` (default: the run directory's `snapshot/`).

    The new snapshot names the old one as its parent. The verdict compares `steps` tokens after it
    with a run that was never pruned, rebuilt from the token buffer.
    """
    source = Stored.of(cfg)
    line = Line.open(cfg, folder, say)
    restored = line.restore(source)
    state = restored.state
    small = replace(line.quantize(line.prune(state)), parent=source.manifest["id"])
    line.save(small)
    line.record["pruned_from"] = source.manifest["id"]
    end, last = state.tokens + cfg.steps, line.session.loaded.max_positions
    if state.tokens > cfg.compare.limit or (last is not None and end > last):
        limit = min(n for n in (cfg.compare.limit, last) if n is not None)
        return line.finish(reason=reason(Code.OVER_LIMIT, tokens=end, limit=limit))
    pruned = Restored(small, line.session, line.session.sampler(small), restored.waived)
    return line.finish(line.judge(pruned, state))
