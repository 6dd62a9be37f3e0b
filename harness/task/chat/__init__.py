"""`task=chat`: a stateful chat, each turn paused. Somebody types it; or its turns are declared, and
then timed beside naive re-processing, and resumed."""

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness import machine, variants
from harness.cache.registry import served
from harness.config import Config, one_of
from harness.errors import ConfigProblem, InputProblem
from harness.model.ending import end_tokens
from harness.pipeline.dialogue import Dialogue, Exchange, answered_anew
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.line import Line
from harness.pipeline.origin import chosen
from harness.pipeline.questions.question import Question
from harness.pipeline.questions.score import scores
from harness.pipeline.session import Session
from harness.pipeline.snapshot import Stored
from harness.report.terminal.console import Say
from harness.results import reason as reasons
from harness.snapshot.result import GOOD, UNJUDGED
from harness.task.chat.conversation import Conversation, concluded
from harness.task.chat.judged import Turn, judged, verify, worst
from harness.task.chat.pauses import Pauses
from harness.task.chat.terminal import opened

ANSWER = 256  # tokens of an answer at most, where somebody types and no steps= was said
SAID = 7  # characters of `model: `


def run(cfg: Config, folder: Path, say: Say) -> Outcome:
    """Without turns of its own on a terminal, or with lines piped in: a conversation, which goes on
    with the same `out=DIR`. Else the turns of `task.turns`; with `snapshot=DIR` (the pause after a
    turn) those that are left.

    Leaves one snapshot per turn in `out=` (default: `snapshot/` in the run directory), each referring
    to what the one before it holds, and `chat.json`. The verdict: `diverged` when the chat restored
    after some turn answers the next one with other tokens, and no near tie explains them; else the
    worst of those turns and of the last pause, whose logits are judged; `unjudged` for what was typed.
    """
    turns = checked(cfg.task.turns)
    one_of("task.on_mismatch", cfg.task.on_mismatch, ("repair", "refuse"))
    pauses = Pauses(cfg.out or folder / "snapshot", cfg.save, say.note)
    newest = pauses.newest if cfg.out else None
    if newest and cfg.snapshot:
        raise InputProblem(
            f"out={cfg.out} holds a chat, which goes on without snapshot=. Leave that out, or give "
            "another out=DIR."
        )
    line = Line.open(replace(cfg, snapshot=str(newest)) if newest else cfg, folder, say)
    dialogue, earlier = _opened(line)
    dialogue.tell = say.note
    say.stage("warm up")
    dialogue.warm()
    say.done()
    declared = say.quiet or turns != variants.signature("task", "chat")["turns"]
    if not declared and (terminal := opened()):
        steps = cfg.steps if chosen("steps") else ANSWER
        talk = Conversation(line, dialogue, pauses, terminal, steps)
        talk.hold()
        return concluded(talk, folder)
    if cfg.out and not declared and any(pauses.folder.glob("*")):  # it is somebody's
        raise InputProblem(
            f"out={cfg.out} is not empty, and nothing comes from stdin: the demonstration needs a new "
            "place. Give another out=DIR, pipe in what to ask, or type it: task.turns=[{ask: '...'}]."
        )
    return _scripted(line, dialogue, turns[0 if newest else earlier :], pauses, folder)


def _scripted(
    line: Line, dialogue: Dialogue, asked: list[dict[str, str]], pauses: Pauses, folder: Path
) -> Outcome:
    """Say what is `asked`, verify and judge the turns."""
    session, cfg, say = line.session, line.session.cfg, line.session.say
    rows: list[dict[str, Any]] = []
    stored: Stored | None = None
    say.note(f"chat of {machine.many(len(asked), 'turn')}")
    for turn in asked:
        row, seconds = spoken(session, dialogue, turn, dialogue.turns + 1)
        state = dialogue.state(pauses.parent)
        stored = pauses.save(state, dialogue.turns, overwrite=not cfg.out)
        place = Path(stored.place).absolute()
        snapshot = str(place.relative_to(folder) if place.is_relative_to(folder) else place)
        whole = len(rows) > 0 and not stored.manifest["lineage"]
        more = {"snapshot": snapshot, "stored_bytes": stored.nbytes, "stored_whole": whole}
        rows.append(row | more)
        say.fact("user", row["ask"], SAID)
        say.fact("model", f"{row.get('shown', row['answer'])}   ({seconds})", SAID)
    if stored is None:
        raise InputProblem(f"snapshot={cfg.snapshot} is after the last of the turns.")
    turns: list[Turn] = []
    if without := sum(row.get("without_text", 0) for row in rows):
        said = machine.many(sum(len(row["ids"]) for row in rows), "token")
        say.note(f"{without} of {said} that it said have no text in this tokenizer")
    if cfg.task.verify:
        say.stage("restored chat, at every turn after the first")
        others = verify(session, rows, folder)
        count = len(rows) - 1
        say.done(f"{count - len(others)} of {count} equal, asked after the pause before")
        turns = judged(line, rows, dialogue.buffer, others, folder)
    return _conclude(line, dialogue, rows, stored, turns)


def checked(turns: list[dict[str, str]]) -> list[dict[str, str]]:
    """Raise ConfigProblem unless every turn has `ask` and at most `expect` besides."""
    if not turns:
        raise ConfigProblem("task.turns is empty: give at least one turn, [{ask: '...'}].")
    for turn in turns:
        if "ask" not in turn or set(turn) - {"ask", "expect"}:
            raise ConfigProblem(f"task.turns: a turn has `ask` and may have `expect`, got {turn}.")
    return turns


def spoken(
    session: Session, dialogue: Dialogue, turn: dict[str, str], number: int
) -> tuple[dict[str, Any], str]:
    """One turn, cached and naive; its row and its times in words."""
    cfg = session.cfg
    before = len(dialogue.buffer)
    said = dialogue.ask(turn["ask"], cfg.steps)
    row = _row(number, turn, said)
    if cfg.task.naive:
        history = torch.tensor([dialogue.buffer[: before + said.sent]])
        work = f"the same without a cache, {history.numel()} tokens"
        session.loaded.cost(history.numel()).announce(session.say.note, work)
        ids, seconds = answered_anew(session.loaded, history, cfg.steps, end_tokens(session.loaded))
        seconds += said.rendering
        plain = dialogue.sampler.plain and not dialogue.sampler.ending.texts
        row |= {"naive_s": seconds, "naive_equal": ids == list(said.ids) if plain else None}
    words = f"{row['cached_s'] * 1e3:.1f} ms"
    return row, words + (f", naive {row['naive_s'] * 1e3:.1f} ms" if cfg.task.naive else "")


def growth(seconds: list[float]) -> float:
    """Median of the last quarter over the median of the first, the very first turn left out."""
    rest = seconds[1:]
    quarter = max(len(rest) // 4, 1)
    return median(rest[-quarter:]) / median(rest[:quarter]) if rest else 1.0


def _opened(line: Line) -> tuple[Dialogue, int]:
    """A new chat, or the one that `snapshot=` paused, and how many turns it has behind it."""
    session, cfg = line.session, line.session.cfg
    repair = cfg.task.on_mismatch == "repair"
    if not cfg.snapshot:
        messages = [{"role": "system", "content": cfg.task.system}] if cfg.task.system else []
        return Dialogue(session, session.sampler(), repair, messages), 0
    source = Stored.of(cfg)
    if not source.manifest["documents"]["prompt_meta"].get("turns"):
        raise InputProblem(f"snapshot={cfg.snapshot} holds no chat. Give the pause after a turn.")
    dialogue = Dialogue.resumed(session, line.restore(source).state, repair)
    return dialogue, dialogue.turns


def _recalled(answer: str, expected: str) -> bool:
    """Whether an answer has the expected one somewhere, as it is judged of a prompt that expects one."""
    return bool(scores(answer, Question("", "", expected))["contains"])


def _row(number: int, turn: dict[str, str], said: Exchange) -> dict[str, Any]:
    expect = turn.get("expect")
    return {
        "turn": number,
        "ask": said.ask,
        "answer": said.answer,
        "expect": expect,
        "recalled": None if expect is None else _recalled(said.answer, expect),
        "ids": list(said.ids),
        "sent_tokens": said.sent,
        "total_tokens": said.total,
        "cached_s": said.seconds,
        "cached_s_per_token": said.seconds / (len(said.ids) + 1),
        "apart_s": said.apart or None,
        "naive_s": None,
        "naive_equal": None,
        "restored_equal": None,
        "mismatch": None if said.mismatch is None else str(said.mismatch),
        **said.numbered,
    }


def _conclude(
    line: Line,
    dialogue: Dialogue,
    rows: list[dict[str, Any]],
    stored: Stored,
    turns: list[Turn],
) -> Outcome:
    from harness.report import chat

    session = line.session
    by = worst(turns)
    said: dict[str, Any] = {"verdict": UNJUDGED, "diagnosis": None} if by is None else by.record()
    recalled = [r["recalled"] for r in rows if r["recalled"] is not None]
    figures = {
        "turns": len(rows),
        "cached_growth": growth([r["cached_s"] for r in rows]),
        "naive_growth": growth([r["naive_s"] for r in rows]) if session.cfg.task.naive else None,
        "recalled": sum(recalled),
        "recall_questions": len(recalled),
        "mismatches": sum(r["mismatch"] is not None for r in rows),
    }
    if without := sum(row.get("without_text", 0) for row in rows):
        figures["without_text"] = without
    if by is not None:
        figures["judged_turn"] = by.number
    reason = line.reason(
        reasons.reason(reasons.Code.CHAT, message=_reason(figures, turns, session.cfg.task.verify))
    )
    state = dialogue.decoder.commit()
    record = {**said, "chat": figures, **stored.record(state, state)}
    record |= {"reason": reason, "cache": served(dialogue.decoder)} | line.waiver
    sections = chat.sections(rows, figures, record)
    columns, told = chat.told(rows)
    return finish_table(
        session, "chat", rows, sections, said["verdict"], reason, columns, record=record, shown_rows=told
    )  # fmt: skip


def _reason(figures: dict[str, Any], turns: list[Turn], verified: bool) -> str:
    parts = [machine.many(figures["turns"], "turn")]
    if verified:
        parts.append(_restored(turns, figures["turns"]))
    if figures["recall_questions"]:
        asked = figures["recall_questions"]
        parts.append(f"{figures['recalled']} of {asked} expected answers are right")
    if figures["mismatches"]:
        parts.append(
            f"in {machine.many(figures['mismatches'], 'turn')} the template wrote earlier text in other tokens, and "
            "what followed was processed again"
        )
    return "; ".join(parts)


def _restored(turns: list[Turn], count: int) -> str:
    """How the chat of so many turns answers that was restored before each turn but the first. turns: those that were
    judged, of which the last is the chat's."""
    if not turns:
        return "nothing was restored, which takes a second turn"
    tied, wrong = (
        _turns([t.number for t in turns if t.otherwise and (t.verdict in GOOD) is tie])
        for tie in (True, False)
    )
    if not wrong:
        near = f" but for a near tie in {tied}, which rounding decides" * bool(tied)
        return f"the restored chat answers {_restorable(turns[-1].number, count - 1)} token for token{near}"
    others = f", and {tied} with others at a near tie, which rounding decides" * bool(tied)
    return f"the restored chat answers {wrong} with other tokens{others}"


def _restorable(last: int, count: int) -> str:
    """The turns that were restored, which have a pause before them."""
    return f"turns {last - count + 1} to {last}" if count > 1 else f"turn {last}"


def _turns(numbers: list[int]) -> str:
    """`turn 3`, `turns 3 and 5`; nothing of none."""
    *first, last = [*map(str, numbers)] or [""]
    listed = " and ".join(filter(None, (", ".join(first), last)))
    return f"turn{'s' * bool(first)} {listed}" if numbers else ""
