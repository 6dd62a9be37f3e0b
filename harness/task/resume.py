"""`task=resume`: restore a snapshot, continue it with new text, and judge it against a run that was
never interrupted (rebuilt from the token buffer)."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import torch

from harness.capture import check_length, check_vocabulary
from harness.config import CompareConfig, Config, launched
from harness.errors import ConfigProblem, InputProblem
from harness.model.oracle import Cost
from harness.pipeline.finish import Outcome
from harness.pipeline.line import Line, Restored
from harness.pipeline.rewind import checkpoints, rewound
from harness.pipeline.snapshot import Stored
from harness.pipeline.yardstick import cost
from harness.report.terminal.console import Say
from harness.results.reason import Code, Reason, reason
from harness.snapshot.history import reduced
from harness.snapshot.result import UNJUDGED
from harness.snapshot.state import State
from harness.tokenizer.policy import continuation
from harness.tokenizer.shown import Shown, record
from harness.variants import signature


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
    insisted = required(cfg, folder, state)
    decode = loaded.tokenizer.decode
    added = continuation(cfg.tokenizer, loaded.tokenizer, cfg.text or "")
    rows = state.branched(cfg.cache.branches)  # one copy of the K/V, whatever the branches
    new_ids = torch.tensor([added.ids] * rows.batch) if added.ids else None
    check_length(loaded, int(state.next_position.max()), len(added.ids) + cfg.steps)
    check_vocabulary(loaded, added.ids)

    fed = rows.batch * len(added.ids)
    loaded.cost(fed).announce(say.note, f"reading {fed} tokens")
    say.line(f"{cfg.text or ''}", end="")
    stream = Shown(loaded.tokenizer)

    def show(token: torch.Tensor) -> None:
        say.line(stream.add(int(token[0, 0])), end="")

    decoder, path = line.go_on(restored, new_ids, on_token=show)
    ids = path.said
    say.line(stream.rest())
    said = {"continuation": ids[0].tolist(), "streamed": path.fed[0].tolist()}
    line.record["text"] |= {
        "added": cfg.text or "",
        **record(loaded.tokenizer, said),
        "token_ids": ids[0].tolist(),
        "steps": path.fed.shape[1] - len(added.ids),
        "read": len(added.ids),
        "ended": path.ended,
        "branches": [decode(row) for row in ids.tolist()],
        "account": [dict(entry) for entry in added.account],
    }
    grown = None
    if cfg.out:  # before anything is compared: what was generated is safe
        grown = restored.sampler.paused(decoder.commit(), path.rng)
        following = line.write(grown)
        size = following.size(grown, grown)
        above = [row["place"] for row in following.manifest["lineage"]]
        line.record["next"] = following.block() | {
            "digest": following.digest,
            "size": size,
            "beside": above,
        }
    end = state.tokens + path.fed.shape[1]
    needed, over = _needed(line, rows, end, path.chunks), state.tokens > cfg.compare.limit
    if over or (needed.seconds > cfg.compare.budget_s and not insisted):
        return line.finish(
            verdict=UNJUDGED, reason=_unjudged(cfg, over * state.tokens, needed, _key(state))
        )
    safe = f"what was generated is in {cfg.out} already" if cfg.out else "without out= what was generated is kept nowhere until that is done"  # fmt: skip
    needed.announce(say.note, f"judging ({safe}; compare.budget_s=0 skips it)")
    if grown is None:  # as whoever audits this runs it: nothing is written then
        grown = decoder.commit()
    path = line.one_more(grown, restored, path)
    reference = line.uninterrupted(rows, new_ids, follow=path.fed)
    judgement = line.verdict(rows, reference, path, restored)
    first = judgement.metrics["first_divergence"]
    if first is not None and len(path.fed) == 1:  # the two texts up to where they part
        both = [int(run.logits[:, first].argmax(-1)) for run in (reference, path)]
        texts = [decode([*path.fed[0, : first + 1].tolist(), choice]) for choice in both]
        line.record["text"] |= {"apart": texts, "apart_ids": both}
    return line.finish(judgement)


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


def required(cfg: Config, folder: Path, state: State) -> bool:
    """Whether a verdict was asked for, by a `compare.require` that was typed or that is not its option's own: then
    it is given however long that takes. Raises InputProblem where `compare.limit` forbids it."""
    key = _key(state)
    usual = signature("compare", cfg.compare.name).get(key)
    typed = [word.lstrip("+") for word in launched.typed(folder) or []]
    asked = any(word.startswith(f"compare.{key}=") for word in typed)
    if not asked and getattr(cfg.compare, key) == (usual or getattr(CompareConfig, key)):
        return False
    if state.tokens > cfg.compare.limit:
        raise InputProblem(
            f"compare.{key}={getattr(cfg.compare, key)} asks for a verdict, and this state has {state.tokens} tokens, "
            f"more than compare.limit={cfg.compare.limit}. Give a larger limit, or leave compare.{key} out."
        )
    return True


def _needed(line: Line, rows: State, end: int, chunks: Sequence[int]) -> Cost:
    """What a verdict takes: where that seems long, by a pass of this model that is timed first."""
    loaded, settings = line.session.loaded, line.session.cfg.compare
    needed = cost(loaded, rows.batch, end, settings.oracle, chunks)
    if needed.seconds <= settings.budget_s:
        return needed
    loaded.probe()
    return cost(loaded, rows.batch, end, settings.oracle, chunks)


def _key(state: State) -> str:
    """The key of `compare` that says what is required of `state`."""
    return "require_pruned" if reduced(state) else "require"


def _unjudged(cfg: Config, over: int, needed: Cost, key: str = "require") -> Reason:
    """Why nothing was compared, and what changes it. key: the one that asks for a verdict."""
    if over:
        return reason(Code.OVER_LIMIT, tokens=over, limit=cfg.compare.limit)
    ask = f"compare.{key}={getattr(cfg.compare, key)}"
    return reason(Code.OVER_BUDGET, takes_s=needed.seconds, budget=cfg.compare.budget_s, ask=ask)
