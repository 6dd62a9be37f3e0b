"""`task=resume`: restore a snapshot, continue it with new text, and judge it against a run that was
never interrupted (rebuilt from the token buffer)."""

from collections.abc import Callable
from pathlib import Path

import torch

from harness.capture import check_length
from harness.config import Config
from harness.pipeline.finish import Outcome
from harness.pipeline.line import Line, Stored
from harness.pipeline.session import Session
from harness.pipeline.yardstick import seconds
from harness.report.console import Say
from harness.snapshot.result import UNJUDGED
from harness.tokenizer.policy import continuation


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Needs `snapshot=DIR`; `text=` is fed first, then `steps` tokens are generated and streamed.
    With `out=DIR` the continued state becomes the next snapshot."""
    source = Stored.asked(cfg)  # a bad snapshot is refused before the model is loaded
    line = Line.open(cfg, folder, say)
    restored = line.restore(source)
    state, loaded, decode = (
        restored.state,
        line.session.loaded,
        line.session.loaded.tokenizer.decode,
    )
    added = continuation(cfg.tokenizer, loaded.tokenizer, cfg.text or "")
    rows = state.branched(cfg.cache.branches)  # one copy of the K/V, whatever the branches
    given = torch.tensor([added.ids] * rows.batch) if added.ids else None
    check_length(loaded, int(state.next_position.max()), len(added.ids) + cfg.steps)

    say.line(f"{cfg.text or ''}", end="")
    decoder, path = line.go_on(restored, given, on_token=_stream(line.session))
    ids = path.said
    say.line()
    line.record["text"] |= {
        "added": cfg.text or "",
        "continuation": decode(ids[0].tolist()),
        "token_ids": ids[0].tolist(),
        "ended": path.ended,
        "branches": [decode(row) for row in ids.tolist()],
        "account": [dict(entry) for entry in added.account],
    }
    if cfg.out:  # before anything is compared: what was generated is safe
        grown = restored.sampler.paused(decoder.commit(), path.rng)
        line.record["next"] = line.write(grown).block()
    needed = seconds(loaded, rows.batch, state.tokens + path.fed.shape[1], cfg.compare.oracle)
    if state.tokens > cfg.compare.limit or needed > cfg.compare.budget_s:
        return line.finish(verdict=UNJUDGED, reason=_unjudged(cfg, state.tokens, needed))
    if needed > 5:
        say.note(f"judging: about {needed:.0f} s; what was generated is shown and saved already")
    reference = line.uninterrupted(rows, given, follow=path.fed)
    return line.finish(line.verdict(rows, reference, path, restored.waived))


def _unjudged(cfg: Config, tokens: int, needed: float) -> str:
    """Why nothing was compared, and the command that does it."""
    if tokens > cfg.compare.limit:
        return f"not compared: more than compare.limit={cfg.compare.limit} tokens"
    asked = (
        f"python -m harness task=resume snapshot={cfg.snapshot} compare.budget_s={needed * 2:.0f}"
    )
    return (
        f"not compared: judging would take about {needed:.0f} s, more than "
        f"compare.budget_s={cfg.compare.budget_s:g}; to judge: {asked}"
    )


def _stream(session: Session) -> Callable[[torch.Tensor], None]:
    """Print tokens as they come, holding back bytes that are not yet a whole character."""
    decode, said, ids = session.loaded.tokenizer.decode, "", []

    def show(token: torch.Tensor) -> None:
        nonlocal said
        ids.append(int(token[0, 0]))
        text = decode(ids)
        if not text.endswith("\ufffd"):
            session.say.line(text[len(said) :], end="")
            said = text

    return show
