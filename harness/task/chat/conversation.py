"""A chat with whoever types: answers stream, every turn is a snapshot before the next is asked for.

The model is loaded once and its cache lives on between turns; nothing is verified or processed twice.
"""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from harness import interrupt, machine, process
from harness.config.launched import typed
from harness.errors import HarnessError
from harness.pipeline.dialogue import Dialogue, Exchange
from harness.pipeline.finish import (
    NO_SIZE,
    NOTHING_STORED,
    Outcome,
    completed,
    draw_page,
    finish,
    shown,
)
from harness.pipeline.line import Line
from harness.pipeline.snapshot import Stored
from harness.report.terminal.console import Say
from harness.results.reason import Code, reason
from harness.snapshot.result import UNJUDGED, write_json
from harness.task.chat.pauses import Pauses
from harness.task.chat.terminal import Terminal

HELP = """\
/back     undo the last turn
/again    answer the last question again (another answer where sampling=sample)
/save DIR copy the chat, as it stands, into one self-contained snapshot
/help     this
Ctrl-C stops an answer and keeps what was said; Ctrl-D ends the chat, which goes on with the same out=."""


@dataclass
class Conversation:
    """dialogue: grows turn by turn. steps: tokens of an answer at most. rows: the turns of this session,
    as `chat.json` has them."""

    line: Line
    dialogue: Dialogue
    pauses: Pauses
    terminal: Terminal
    steps: int
    rows: list[dict[str, Any]] = field(default_factory=list)
    stored: Stored | None = None
    _arrived: list[int] = field(default_factory=list)  # Ctrl-C, since the line was typed

    def hold(self) -> None:
        """Until nobody says any more."""
        self.dialogue.tell = self.terminal.tell
        self._greet()
        while (text := self.terminal.line()) is not None:
            word, _, rest = text.strip().partition(" ")
            if not word:
                continue
            with interrupt.noted() as self._arrived:
                self._heard(text, word, rest.strip())
        if self.terminal.typed:
            self.terminal.end()

    def _heard(self, text: str, word: str, rest: str) -> None:
        """A line: a command, or something to say. What goes wrong is said, and the chat goes on."""
        tell = self.terminal.tell
        try:
            match word if text.startswith("/") else "":
                case "/help":
                    tell(HELP)
                case "/back":
                    self._back()
                case "/again":
                    self._again()
                case "/save":
                    self._save(rest)
                case unknown if unknown:
                    tell(f"{word} is no command; /help lists them. A space before it says it.")
                case _:
                    ask = self.dialogue.ask
                    self._kept(ask(text, self.steps, self.terminal.hear, self._stopped))
        except HarnessError as problem:
            tell(str(problem))

    def _stopped(self) -> bool:
        return bool(self._arrived)

    def _greet(self) -> None:
        dialogue, terminal = self.dialogue, self.terminal
        name = self.line.session.loaded.source["name"]
        how = (
            "its chat template"
            if dialogue.template
            else "no template: it goes on from what is typed"
        )
        terminal.tell(f"{name}, {how}; answers of at most {self.steps} tokens (steps=N); /help")
        if dialogue.turns:
            terminal.tell(f"going on, {remembered(dialogue)}, every byte verified:")
            for turn in dialogue.messages[-2:]:
                user = turn["role"] == "user"
                said = turn["content"] if user else dialogue.numbered.get("shown", turn["content"])
                terminal.tell(f"{'> ' if user else ''}{' '.join(said.split())[:200]}")

    def _again(self) -> None:
        place = self.pauses.newest
        if place is None or not self.dialogue.asked:
            self.terminal.tell("there is no answer yet to say again")
            return
        if self.dialogue.sampler.greedy:
            self.terminal.tell("greedy says the same again; sampling=sample draws another answer")
        again, stored = self.dialogue.again, self._stored(place)
        said = again(place, self.steps, self.terminal.hear, self._stopped)
        if stored:
            self._undo()
        self._kept(said)

    def _back(self) -> None:
        place = self.pauses.newest
        if place is None or not self.dialogue.ends:
            self.terminal.tell("there is no turn to undo")
            return
        question = next(
            m["content"] for m in reversed(self.dialogue.messages) if m["role"] == "user"
        )
        stored = self._stored(place)
        rewind = self.dialogue.back(place)
        if stored:
            self._undo()
        how = "nothing is left" if rewind is None else rewind.way
        self.terminal.tell(f"[undone: {question!r}; {remembered(self.dialogue)}; {how}]")

    def _stored(self, newest: Path) -> bool:
        """Whether the last turn is the `newest` pause: not where the disk refused it."""
        from harness.save import store

        return bool(store.read_manifest(newest)["tokens"] == len(self.dialogue.buffer))

    def _undo(self) -> None:
        self.pauses.undo()
        del self.rows[-1:]

    def _save(self, where: str) -> None:
        newest = self.pauses.newest
        if not where or newest is None:
            notice = "nothing was said yet"
            if newest:
                notice = f"every turn is saved already, the last one in {shown(newest)}"
            self.terminal.tell(f"{notice}; /save DIR copies the chat into a snapshot of its own")
            return
        from harness.save import store

        cfg = self.line.session.cfg
        manifest = store.save(self.dialogue.state(), where, replace(cfg.save, compact=True))
        self.terminal.tell(f"saved in {shown(store.place(where))} ({manifest['id'][:16]})")

    def _kept(self, said: Exchange) -> None:
        """The turn is over: what was said is stored, and one line says so."""
        self.terminal.end()
        self.stored = self.pauses.save(self.dialogue.state(self.pauses.parent))
        place = self.stored.place
        self.rows.append(
            {
                "turn": self.dialogue.turns,
                "ask": said.ask,
                "answer": said.answer,
                "ids": list(said.ids),
                "sent_tokens": said.sent,
                "total_tokens": said.total,
                "cached_s": said.seconds,
                "apart_s": said.apart or None,
                "stopped": not said.ended and self._stopped(),
                "mismatch": None if said.mismatch is None else str(said.mismatch),
                **said.numbered,
                "snapshot": shown(place),
                "stored_bytes": self.stored.nbytes,
            }
        )
        count = len(said.ids)
        blank = said.numbered.get("without_text")
        silent = f", {blank} without text," if blank else ""
        pace = f"{machine.many(count, 'token')}{silent} in {said.seconds:.2f} s"
        cut = "" if said.ended else "stopped, " if self._stopped() else "cut by steps, "
        name = place.name if isinstance(place, Path) else place
        self.terminal.tell(f"[{cut}{pace}; {said.total} remembered; {name}]")


def remembered(dialogue: Dialogue) -> str:
    """`3 turns, 64 tokens`."""
    turns = dialogue.turns
    return f"{machine.many(turns, 'turn')} and {len(dialogue.buffer)} tokens remembered"


def concluded(talk: Conversation, folder: Path) -> Outcome:
    """`result.json`, `chat.json` and the page of a chat that somebody had; how it goes on."""
    from harness.report import chat

    session, dialogue, rows = talk.line.session, talk.dialogue, talk.rows
    summary = f"{remembered(dialogue)}, in {shown(talk.pauses.folder)}"
    record: dict[str, Any] = {
        "size": NO_SIZE,
        "snapshot": NOTHING_STORED,
        "elements": [],
        "text": {},
    }
    if talk.stored and dialogue.decoder is not None:
        state = dialogue.state()
        record |= talk.stored.record(state, state)
    why = reason(Code.CHAT_TYPED, message=summary)
    figures = {"turns": len(rows), "total_turns": dialogue.turns, "tokens": len(dialogue.buffer)}
    if without := sum(row.get("without_text", 0) for row in rows):
        figures["without_text"] = without
    record |= {"verdict": UNJUDGED, "reason": talk.line.reason(why), "chat": figures}
    record |= talk.line.waiver
    write_json(folder / "chat.json", rows)
    sections = chat.sections(rows, figures) if rows else []
    page = partial(draw_page, session.cfg.name, sections)
    quiet, result = Say(quiet=True), completed(session, record)
    outcome = finish(session.cfg, folder, quiet, result, page, code=0, tracked=False)
    out = shown(talk.pauses.folder)
    again = " ".join([f"out={out}", *(w for w in typed(folder) or [] if w.startswith("steps="))])
    talk.terminal.tell(f"{summary}; it goes on with: {process.spelled()} task=chat {again}")
    return outcome
