"""`task=chat`: a stateful chat, each turn paused. Somebody types it; or its turns are declared, and
then timed beside naive re-processing, and resumed."""

from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch

from harness import machine, variants
from harness.config import Config, one_of
from harness.errors import ConfigProblem, InputProblem
from harness.model.ending import end_tokens
from harness.pipeline.dialogue import Dialogue, Exchange, answered_anew
from harness.pipeline.finish import Outcome, finish_table
from harness.pipeline.judge import Judgement
from harness.pipeline.line import Line
from harness.pipeline.origin import chosen
from harness.pipeline.restore import identity_check
from harness.pipeline.session import Session
from harness.pipeline.snapshot import Stored
from harness.progress import over
from harness.report.terminal.console import Say
from harness.save import store
from harness.snapshot.result import UNJUDGED
from harness.task.chat.conversation import Conversation, concluded
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
    after some turn answers the next one with other tokens, else that of the last pause, whose logits
    are judged; `unjudged` for what was typed.
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
    return _scripted(line, dialogue, turns[0 if newest else earlier :], pauses, folder)


def _scripted(
    line: Line, dialogue: Dialogue, turns: list[dict[str, str]], pauses: Pauses, folder: Path
) -> Outcome:
    """Say `turns`, verify and judge them."""
    session, cfg, say = line.session, line.session.cfg, line.session.say
    rows: list[dict[str, Any]] = []
    stored: Stored | None = None
    say.note(f"chat of {machine.many(len(turns), 'turn')}")
    for turn in turns:
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
    judgement, diagnosis = None, None
    if without := sum(row.get("without_text", 0) for row in rows):
        said = machine.many(sum(len(row["ids"]) for row in rows), "token")
        say.note(f"{without} of {said} that it said have no text in this tokenizer")
    if cfg.task.verify:
        say.stage("restored chat, at every turn")
        verify(session, rows, folder)
        asked = [r["restored_equal"] for r in rows if r["restored_equal"] is not None]
        say.done(f"{sum(asked)} of {len(asked)} equal, asked after the pause before")
        judgement, diagnosis = judged(line, rows, dialogue.buffer, folder)
    return _conclude(line, dialogue, rows, stored, folder, judgement, diagnosis)


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


def verify(session: Session, rows: list[dict[str, Any]], folder: Path) -> None:
    """Restore each pause but the last and ask the next question: the ids must be the same."""
    pairs = zip(rows, [*rows[1:], None], strict=True)
    for row, following in over(pairs, "restored turns", len(rows)):
        if following is None:
            row["restored_equal"] = None
            continue
        state, _ = store.load(folder / row["snapshot"])
        state = state.to(session.loaded.device)
        again = Dialogue.resumed(session, state, session.cfg.task.on_mismatch == "repair")
        identity_check(session, state, folder / row["snapshot"], again.sampler)
        answer = again.ask(following["ask"], session.cfg.steps)
        row["restored_equal"] = list(answer.ids) == following["ids"]


def judged(
    line: Line, rows: list[dict[str, Any]], ids: list[int], folder: Path
) -> tuple[Judgement | None, dict[str, Any] | None]:
    """The judgement on the chat restored at its last pause but one, which is then told what was said
    next: logits beside an uninterrupted run over the same `ids`, the whole chat; and its diagnosis,
    where it is worse than equivalent. None for one turn."""
    if len(rows) < 2:
        return None, None
    pause, last = rows[-2:]
    place = folder / pause["snapshot"]
    again = Line(line.session)
    restored = again.restore(Stored(place, store.read_manifest(place)))
    begin = pause["total_tokens"]
    sent = torch.tensor([ids[begin : begin + last["sent_tokens"]]])
    reference = again.uninterrupted(restored.state, sent)
    _, path = again.go_on(restored, sent, follow=reference.fed)
    judgement = again.verdict(restored.state, reference, path, restored)
    return judgement, again.record.get("diagnosis")


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


def _row(number: int, turn: dict[str, str], said: Exchange) -> dict[str, Any]:
    expect = turn.get("expect")
    return {
        "turn": number,
        "ask": said.ask,
        "answer": said.answer,
        "expect": expect,
        "recalled": None if expect is None else expect in said.answer.split(),
        "ids": list(said.ids),
        "sent_tokens": said.sent,
        "total_tokens": said.total,
        "cached_s": said.seconds,
        "cached_s_per_token": said.seconds / (len(said.ids) + 1),
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
    folder: Path,
    judgement: Judgement | None,
    diagnosis: dict[str, Any] | None,
) -> Outcome:
    from harness.report import chat

    session = line.session
    wrong = [r["turn"] + 1 for r in rows if r["restored_equal"] is False]
    said = {"verdict": UNJUDGED} if judgement is None else judgement.record()
    verdict = "diverged" if wrong else said["verdict"]
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
    reason = line.reason(_reason(figures, wrong, session.cfg.task.verify))
    state = dialogue.decoder.commit()
    record = {**said, "chat": figures, **stored.record(state, state)}
    record |= {"verdict": verdict, "reason": reason, "diagnosis": diagnosis} | line.waiver
    sections = chat.sections(rows, figures, record)
    columns, told = chat.told(rows)
    return finish_table(
        session, "chat", rows, sections, verdict, reason, columns, record=record, shown_rows=told
    )


def _reason(figures: dict[str, Any], wrong: list[int], verified: bool) -> str:
    parts = [machine.many(figures["turns"], "turn")]
    if verified:
        parts.append(
            f"the restored chat differs at turns {wrong}"
            if wrong
            else "the restored chat answers every turn token for token"
        )
    if figures["recall_questions"]:
        parts.append(f"recalled {figures['recalled']} of {figures['recall_questions']}")
    parts.append(f"time per turn x{figures['cached_growth']:.2f} cached")
    if figures["naive_growth"] is not None:
        parts.append(f"x{figures['naive_growth']:.2f} naive (last quarter over first)")
    if figures["mismatches"]:
        parts.append(
            f"in {machine.many(figures['mismatches'], 'turn')} the template wrote earlier text in other tokens, and "
            "what followed was processed again"
        )
    return "; ".join(parts)
