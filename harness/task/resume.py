"""`task=resume`: restore a snapshot, continue it with new text, and judge it against a run that was
never interrupted (rebuilt from the token buffer)."""

from dataclasses import replace
from pathlib import Path

import torch

from harness.capture import check_length
from harness.config import Config
from harness.errors import ConfigProblem
from harness.pipeline.finish import Outcome
from harness.pipeline.line import Line, Restored
from harness.pipeline.rewind import checkpoints, rewound
from harness.pipeline.stored import Stored
from harness.pipeline.yardstick import cost
from harness.report.console import Say
from harness.snapshot.result import UNJUDGED
from harness.tokenizer.policy import continuation
from harness.tokenizer.stream import Stream


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Needs `snapshot=DIR`; `text=` is fed first, then `steps` tokens are generated and streamed.
    With `out=DIR` the continued state becomes the next snapshot. `at=N` goes back first, to where N
    tokens had been processed."""
    if cfg.prune.name != "none" and cfg.prune.at == "prefill":
        raise ConfigProblem(
            f"prune={cfg.prune.name} is read by task=resume only with prune.at=N, which prunes as it goes. "
            "Add that, or prune the snapshot first: task=prune."
        )
    source = Stored.of(cfg)  # a bad snapshot is refused before the model is loaded
    line = Line.open(cfg, folder, say)
    restored = line.restore(source)
    if cfg.at is not None:
        restored = back(line, restored, source)
    state, loaded = restored.state, line.session.loaded
    decode = loaded.tokenizer.decode
    added = continuation(cfg.tokenizer, loaded.tokenizer, cfg.text or "")
    rows = state.branched(cfg.cache.branches)  # one copy of the K/V, whatever the branches
    new_ids = torch.tensor([added.ids] * rows.batch) if added.ids else None
    check_length(loaded, int(state.next_position.max()), len(added.ids) + cfg.steps)

    fed = rows.batch * len(added.ids)
    loaded.cost(fed).announce(say.note, f"reading {fed} tokens")
    say.line(f"{cfg.text or ''}", end="")
    stream = Stream(loaded.tokenizer)

    def show(token: torch.Tensor) -> None:
        say.line(stream.add(int(token[0, 0])), end="")

    decoder, path = line.go_on(restored, new_ids, on_token=show)
    ids = path.said
    say.line(stream.rest())
    line.record["text"] |= {
        "added": cfg.text or "",
        "continuation": decode(ids[0].tolist()),
        "token_ids": ids[0].tolist(),
        "streamed": decode(path.fed[0].tolist()),
        "steps": path.fed.shape[1] - len(added.ids),
        "ended": path.ended,
        "branches": [decode(row) for row in ids.tolist()],
        "account": [dict(entry) for entry in added.account],
    }
    grown = None
    if cfg.out:  # before anything is compared: what was generated is safe
        grown = restored.sampler.paused(decoder.commit(), path.rng)
        following = line.write(grown)
        size = following.size(grown, grown)
        line.record["next"] = following.block() | {"digest": following.digest, "size": size}
    end = state.tokens + path.fed.shape[1]
    needed = cost(loaded, rows.batch, end, cfg.compare.oracle, path.chunks)
    if state.tokens > cfg.compare.limit or needed.seconds > cfg.compare.budget_s:
        return line.finish(verdict=UNJUDGED, reason=_unjudged(cfg, state.tokens, needed.seconds))
    needed.announce(say.note, "judging, what was generated is shown and saved already")
    if grown is None:  # as whoever audits this runs it: nothing is written then
        grown = decoder.commit()
    path = line.one_more(grown, restored, path)
    reference = line.uninterrupted(rows, new_ids, follow=path.fed)
    return line.finish(line.verdict(rows, reference, path, restored))


def back(line: Line, restored: Restored, source: Stored) -> Restored:
    """What was restored, as it was after its first `at` tokens; how it came there is in the record."""
    cfg, session, say = line.session.cfg, line.session, line.session.say
    say.stage(f"back to token {cfg.at}")
    lineage = checkpoints(source.place)
    rewind = rewound(session.loaded, restored.state, cfg.at or 0, cfg.cache, lineage, say.note)
    say.done(str(rewind))
    line.whole, restored = rewind.state, replace(restored, state=rewind.state)
    line.record |= source.record(rewind.state, rewind.state) | {"back": rewind.document()}
    line.record["text"]["prompt"] = session.loaded.tokenizer.decode(
        rewind.state.token_ids[0].tolist()
    )
    return restored


def _unjudged(cfg: Config, tokens: int, needed: float) -> str:
    """Why nothing was compared, and the command that does it."""
    if tokens > cfg.compare.limit:
        return f"not compared: more than compare.limit={cfg.compare.limit} tokens"
    command = (
        f"python -m harness task=resume snapshot={cfg.snapshot} compare.budget_s={needed * 2:.0f}"
    )
    return (
        f"not compared: judging would take about {needed:.0f} s, more than "
        f"compare.budget_s={cfg.compare.budget_s:g}; to judge: {command}"
    )
