"""The chat that somebody types: on a real terminal, and line by line in process."""

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from harness.errors import InputProblem
from harness.model.oracle import Cost
from harness.pipeline import dialogue
from harness.pipeline.line import Line
from harness.save import store
from harness.task.audit.difference import leaves
from harness.task.chat import _opened
from harness.task.chat.conversation import Conversation
from harness.task.chat.pauses import Pauses
from harness.task.chat.terminal import Terminal, opened
from harness.tokenizer import shown

ROOT = Path(__file__).resolve().parents[2]


class Typing:
    """A chat on a pseudo-terminal, with a person's hands."""

    def __init__(self, place: Path, *arguments: str):
        self.master, slave = pty.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "harness", "task=chat", "track=none", *arguments],
            cwd=place, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=self._terminal(slave),
            env={**os.environ, "PYTHONPATH": str(ROOT), "TERM": "dumb", "NO_COLOR": "1"},
        )  # fmt: skip
        os.close(slave)
        self.seen, self._from = "", 0

    @staticmethod
    def _terminal(slave: int):
        """Ctrl-C is a signal to whoever the terminal belongs to."""
        import fcntl
        import termios

        return lambda: fcntl.ioctl(slave, termios.TIOCSCTTY, 0)

    def until(self, wanted: str, seconds: float = 120) -> str:
        """What is shown since the last time, up to `wanted`."""
        end = time.monotonic() + seconds
        while not (match := re.compile(wanted).search(self.seen, self._from)):
            assert time.monotonic() < end, self.seen
            if select.select([self.master], [], [], 0.2)[0]:
                try:
                    self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
                except OSError:  # the other end is closed
                    assert re.search(wanted, self.seen[self._from :]), self.seen
        piece = self.seen[self._from : match.end()]
        self._from = match.end()
        return piece

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def interrupt(self, wanted: str) -> str:
        """Ctrl-C, pressed again every second until `wanted` is shown: one that comes between two looks
        at the terminal is heard with the next key."""
        for _ in range(60):
            self.type("\x03")
            try:
                return self.until(wanted, seconds=1)
            except AssertionError:
                assert self.process.poll() is None, self.seen
        raise AssertionError(self.seen)


class Lines(Terminal):
    """Nobody types: the lines are known."""

    def __init__(self, *lines: str):
        super().__init__(typed=False)
        self.lines, self.said, self.told = iter(lines), "", []

    def line(self):
        return next(self.lines, None)

    def tell(self, text):
        self.told.append(text)

    def _out(self, text):
        self.said += text


@pytest.fixture
def talk(session):
    """A conversation over `lines` in `folder`, held to its end."""

    def make(folder, *lines, options=()):
        settings = session("task=chat", "steps=8", *options)
        pauses, terminal = Pauses(folder, settings.cfg.save), Lines(*lines)
        newest = pauses.newest
        settings.cfg.snapshot = str(newest) if newest else None
        line = Line(settings)
        made = Conversation(line, _opened(line)[0], pauses, terminal, settings.cfg.steps)
        made.hold()
        return made

    return make


def ids(made):
    return [row["ids"] for row in made.rows]


def test_a_terminal_end_to_end(place, session, harness) -> None:
    """Ctrl-C ends an answer, which is kept; Ctrl-D ends the chat; tomorrow it goes on, and says what
    it would have said; `kill -9` loses nothing that was answered."""
    arguments = ("model=tiny_gpt2", "out=mine", "steps=900", "threads=1")
    first = Typing(place, *arguments)
    assert "its chat template" in first.until("> $")
    first.type("hello there\n")
    first.until(r"hello there\r\n\S+ \S+ \S+")  # the answer is on its way
    first.type("\x03")
    stopped = first.until(r"stopped, (\d+) tokens in [\s\S]*> $")
    first.type("half a line")
    first.until("half a line")
    first.interrupt("Ctrl-D ends the chat[\\s\\S]*> $")
    first.type("\x04")
    first.until("it goes on with")
    assert first.process.wait(60) == 0
    count = int(re.search(r"stopped, (\d+) tokens", stopped)[1])
    (record,) = place.glob("runs/chat/*/result.json")
    assert json.loads(record.read_text())["verdict"] == "unjudged"
    audited = harness("task=audit", f"run={record.parent}")
    assert audited.code == 2 and "a chat that was typed" in audited.out, audited.out

    second = Typing(place, "model=tiny_gpt2", "out=mine", "steps=6", "threads=1")
    assert "1 turn and" in second.until("> $")
    second.type("go on\n")
    second.until("turn-002]")
    os.kill(second.process.pid, signal.SIGKILL)
    second.process.wait(60)

    state, _ = store.load(place / "mine" / "turn-002")
    whole = session("task=chat", "model=tiny_gpt2", "threads=1")
    dialogue = _opened(Line(whole))[0]
    dialogue.ask("hello there", count)
    dialogue.ask("go on", 6)
    assert state.token_ids[0].tolist() == dialogue.buffer
    told = state.documents["prompt_meta"]["turns"]
    assert told == dialogue.messages and len(told) == 4


@pytest.mark.parametrize("model", ["tiny", "tiny_gemma3", "tiny_hybrid"])
def test_a_turn_that_was_undone_was_never_said(talk, tmp_path, model) -> None:
    options = (f"model={model}", "steps=6")
    said = ("let k be 5 .", "what is k ?", "let m be 7 .")
    other = talk(tmp_path / "a", said[0], said[1], "what is m ?", "/back", said[2], options=options)
    plain = talk(tmp_path / "b", *said, options=options)
    assert ids(other) == ids(plain)
    assert other.dialogue.buffer == plain.dialogue.buffer
    assert other.dialogue.messages == plain.dialogue.messages
    logits = [made.dialogue.state().logits for made in (other, plain)]
    allowed = 8 * torch.finfo(logits[1].dtype).eps * float(logits[1].abs().max())
    assert float((logits[0] - logits[1]).abs().max()) <= allowed
    assert any("undone: 'what is m ?'" in told for told in other.terminal.told)
    assert [p.name for p in other.pauses.places] == ["turn-001", "turn-002", "turn-003"]
    assert (tmp_path / "a" / "undone-001").is_dir()  # nothing that was said is deleted


def test_a_turn_that_the_disk_refused_is_undone_alone(talk, tmp_path, monkeypatch) -> None:
    """The pause that stays is the one before it, which nobody undid."""

    def full(*_: object) -> None:
        raise InputProblem("cannot write a snapshot: No space left on device.")

    made = talk(tmp_path / "a", "let k be 5 .")
    with monkeypatch.context() as patch:
        patch.setattr(store, "save", full)
        made.terminal.lines = iter(["what is k ?"])
        made.hold()
    assert "No space left" in made.terminal.told[-1] and made.dialogue.turns == 2
    made.terminal.lines = iter(["/back", "what is k ?", "/back"])
    made.hold()
    assert [p.name for p in made.pauses.places] == ["turn-001"] and len(made.rows) == 1
    assert made.dialogue.turns == 1
    assert len(list((tmp_path / "a").glob("undone-*"))) == 1


@pytest.mark.parametrize("model", ["tiny", "tiny_hybrid"])
def test_long_work_is_announced_to_whoever_types(talk, tmp_path, monkeypatch, model) -> None:
    """Reading a question; and going back where a recurrent state has to be replayed."""
    options = (f"model={model}", "steps=2")
    said = ("let k be 5 .", "what is k ?", "/again")
    plain = talk(tmp_path / "a", *said, options=options)
    assert not any("about" in told for told in plain.terminal.told)
    monkeypatch.setattr(Cost, "worth_saying", property(lambda cost: True))
    made = talk(tmp_path / "b", *said, options=options)
    told = [t for t in made.terminal.told if re.search(r": about \d+ s", t)]
    assert [t.split()[0] for t in told[:2]] == ["reading"] * 2, made.terminal.told
    assert told[0].split()[1] == str(made.rows[0]["sent_tokens"])
    assert len(told) == (3 if model == "tiny_hybrid" else 2), told  # full attention is only cut
    assert ids(made) == ids(plain)


def test_undone_stays_undone_tomorrow_and_all_of_it_can_be_undone(talk, tmp_path) -> None:
    talk(tmp_path / "a", "let k be 5 .", "what is k ?", "/back")
    again = talk(tmp_path / "a", "let m be 7 .")
    assert again.dialogue.turns == 2 and "1 turn and" in again.terminal.told[1]
    empty = talk(tmp_path / "a", "/back", "/back", "/back", "let k be 6 .")
    assert "there is no turn to undo" in empty.terminal.told
    assert empty.dialogue.turns == 1
    assert ids(empty) == ids(talk(tmp_path / "b", "let k be 6 ."))


def test_another_answer_is_drawn_and_takes_the_place_of_the_first(talk, tmp_path) -> None:
    hot = ("sampling=sample", "sampling.temperature=2.5", "steps=12")
    made = talk(tmp_path / "a", "let k be 5 .", "tell me a story .", options=hot)
    first = ids(made)[-1]
    made.terminal.lines = iter(["/again"])
    made.hold()
    assert ids(made)[-1] != first and made.dialogue.turns == 2
    state, _ = store.load(tmp_path / "a" / "turn-002")
    assert state.token_ids[0].tolist() == made.dialogue.buffer
    tomorrow = talk(tmp_path / "a", "/again", options=hot)
    assert tomorrow.dialogue.turns == 2 and ids(tomorrow)[-1] != ids(made)[-1]


def test_tomorrow_says_what_today_would_have_said(talk, tmp_path) -> None:
    hot = ("sampling=sample", "sampling.temperature=1.4")
    said = ("let k be 5 .", "tell me a story .", "what is k ?")
    whole = talk(tmp_path / "a", *said, options=hot)
    parts = [talk(tmp_path / "b", one, options=hot) for one in said]
    assert [ids(part)[0] for part in parts] == ids(whole)


def test_a_turn_stores_what_it_added(talk, tmp_path) -> None:
    talk(tmp_path / "a", "let k be 5 .", "what is k ?")
    manifest = store.read_manifest(tmp_path / "a" / "turn-002")
    assert [row["place"] for row in manifest["lineage"]] == ["turn-001"]
    assert store.faults(tmp_path / "a" / "turn-002") == []


def test_without_a_template_it_goes_on_from_what_is_typed(talk, tmp_path, session) -> None:
    tokenizer = session("task=chat").loaded.tokenizer
    template, tokenizer.chat_template = tokenizer.chat_template, None
    try:
        made = talk(tmp_path / "a", "let k be 5 .", " what is k ?", options=("steps=4",))
        assert "no template" in made.terminal.told[0]
        text = tokenizer.decode(made.dialogue.buffer)
        assert text.startswith("<bos>let k be 5 .") and " what is k ?" in text
        again = talk(tmp_path / "a", " and k ?", options=("steps=4",))
        assert again.dialogue.buffer[: len(made.dialogue.buffer)] == made.dialogue.buffer
    finally:
        tokenizer.chat_template = template


def test_a_template_that_leaves_out_part_of_an_answer_is_followed(talk, tmp_path, session) -> None:
    """As Qwen 3 leaves out earlier thinking: the ids that were processed stay as they are."""
    tokenizer = session("task=chat").loaded.tokenizer
    template = tokenizer.chat_template
    shorter = template.replace("message['content'] | trim", "message['content'].split(' ')[-1]")
    assert shorter != template
    plain = talk(tmp_path / "a", "let k be 5 .", "what is k ?", "what is k ?")
    tokenizer.chat_template = shorter.replace("split(' ')[-1]", "replace('ok', '') | trim")
    try:
        made = talk(tmp_path / "b", "let k be 5 .", "what is k ?", "what is k ?")
    finally:
        tokenizer.chat_template = template
    assert made.rows[1]["mismatch"] and ids(made) == ids(plain)


def test_an_answer_without_text_is_kept_by_its_numbers(talk, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(dialogue, "wordless", lambda tokenizer, token: token >= 0)
    monkeypatch.setattr(shown, "wordless", lambda tokenizer, token: token >= 0)
    (row,) = talk(tmp_path / "a", "let k be 5 .").rows
    said = [token for token in row["ids"] if f"<{token}>" in row["shown"]]
    assert row["without_text"] == len(said) >= len(row["ids"]) - 1  # all but the end
    greeted = talk(tmp_path / "a").terminal.told[-1]
    assert greeted == " ".join(row["shown"].split()) != row["answer"]
    other, older = row | {"shown": "?"}, {k: v for k, v in row.items() if k != "shown"}
    assert list(leaves([row], [row], "turns")) == [] != list(leaves([row], [other], "turns"))
    assert list(leaves([older], [row], "turns")) == []


def test_commands_that_cannot_be_done_say_so(talk, tmp_path) -> None:
    made = talk(tmp_path / "a", "/again", "/back", "/save", "/foo", "", "/help")
    told = " ".join(made.terminal.told)
    for said in ("no answer yet", "no turn to undo", "nothing was said yet", "/foo is no command"):
        assert said in told
    assert made.rows == [] and "/back" in told


def test_a_copy_is_whole_by_itself(talk, tmp_path) -> None:
    made = talk(tmp_path / "a", "let k be 5 .", "what is k ?", f"/save {tmp_path / 'copy' / 'c'}")
    assert not store.read_manifest(tmp_path / "copy" / "c")["lineage"]
    state, _ = store.load(tmp_path / "copy" / "c")
    assert torch.equal(state.logits, made.dialogue.state().logits)


def test_a_chat_that_is_full_says_so_and_goes_on(talk, tmp_path) -> None:
    made = talk(tmp_path / "a", "let k be 5 .", "word " * 9000, "what is k ?")
    assert len(made.rows) == 2
    assert any("positions" in told for told in made.terminal.told)


def test_an_answer_cannot_play_tricks_on_the_terminal() -> None:
    terminal = Lines()
    terminal.hear("  red \x1b[31m\x07 naïve\n")
    assert terminal.said == "red \\x1b[31m\\x07 naïve\n"


def test_who_types(tmp_path) -> None:
    with Path(os.devnull).open() as nothing:
        assert opened(nothing) is None
    (tmp_path / "lines").write_text("one\ntwo\n")
    with (tmp_path / "lines").open() as lines:
        terminal = opened(lines)
        assert terminal is not None and not terminal.typed
    read, write = os.pipe()
    with os.fdopen(read) as silent:
        assert opened(silent) is None  # left open, and nothing is said there
    os.close(write)


def test_a_folder_that_is_a_snapshot_is_no_chat(harness, place) -> None:
    assert harness("task=save", "text=let k be 5 .", "out=a").code == 0
    done = harness("task=chat", "out=a")
    assert done.code == 2 and "one snapshot" in done.out
    with pytest.raises(InputProblem, match="this machine"):
        Pauses("memory://chat", None)


def test_declared_turns_go_on_in_the_same_place(harness, place) -> None:
    options = ("task=chat", "out=mine", "steps=8", "task.naive=false")
    first = harness(*options, "task.turns=[{ask: 'let k be 5 .'}]")
    again = harness(*options, "task.turns=[{ask: 'what is k ?', expect: '5'}]")
    assert (first.code, again.code) == (0, 0), again.out
    rows = json.loads((again.folders[0] / "chat.json").read_text())
    assert rows[0]["recalled"] and rows[0]["turn"] == 2
    assert (place / "mine" / "turn-002").is_dir()
