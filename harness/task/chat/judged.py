"""Whether the chat that was restored after a turn answers the next one as the chat that went on did: token
for token, or with other tokens where two were as likely as rounding can tell."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.pipeline.dialogue import Dialogue
from harness.pipeline.judge import Judgement, tied
from harness.pipeline.line import Line
from harness.pipeline.restore import identity_check
from harness.pipeline.session import Session
from harness.pipeline.snapshot import Stored
from harness.progress import over
from harness.save import store
from harness.snapshot.result import GOOD, ORDER

Row = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """The judgement on one turn of a chat restored after the turn before. verdict: `diverged` where it says
    other tokens that no tie explains, else that of its logits. otherwise: whether it says other tokens."""

    number: int
    verdict: str
    otherwise: bool
    judgement: Judgement
    diagnosis: dict[str, Any] | None

    def record(self) -> dict[str, Any]:
        """The figures of `result.json`, under the turn's own verdict."""
        return self.judgement.record() | {"verdict": self.verdict, "diagnosis": self.diagnosis}


def worst(turns: Sequence[Turn]) -> Turn | None:
    """The turn that a chat is judged by: the worst, of several the last; None where none was judged."""
    return max(turns, key=lambda t: (ORDER.index(t.verdict), t.number), default=None)


def verify(session: Session, rows: list[Row], folder: Path) -> dict[int, list[int]]:
    """Restore each pause but the last and ask the next question: the ids must be the same. Says so in
    `rows`; of answers that are not, by their place in `rows`, the ids fed and chosen from that pause on."""
    others: dict[int, list[int]] = {}
    for place, row in enumerate(over(rows, "restored turns", len(rows))):
        if place + 1 == len(rows):
            row["restored_equal"] = None
            continue
        following = rows[place + 1]
        state, _ = store.load(folder / row["snapshot"])
        state = state.to(session.loaded.device)
        again = Dialogue.resumed(session, state, session.cfg.task.on_mismatch == "repair")
        identity_check(session, state, folder / row["snapshot"], again.sampler)
        answer = again.ask(following["ask"], session.cfg.steps)
        row["restored_equal"] = list(answer.ids) == following["ids"]
        if not row["restored_equal"]:
            others[place + 1] = again.buffer[state.tokens :]
    return others


def judged(
    line: Line, rows: list[Row], ids: list[int], others: Mapping[int, list[int]], folder: Path
) -> list[Turn]:
    """Each turn that is said otherwise (`others`), and the last: the chat restored at the pause before, told
    what was said next, beside an uninterrupted run over the same `ids`, the whole chat. Empty for one turn."""
    places = [*others, *([len(rows) - 1] if rows[1:] and len(rows) - 1 not in others else [])]
    turns = []
    for place in places:
        if place in others and place + 1 != len(rows):
            line.session.say.note(f"turn {rows[place]['turn']} is answered otherwise")
        turn = _turn(line, rows[place - 1], rows[place], ids, others.get(place), folder)
        if turn.otherwise:
            rows[place - 1]["restored_verdict"] = turn.verdict
        turns.append(turn)
    return turns


def _turn(
    line: Line, pause: Row, row: Row, ids: list[int], other: list[int] | None, folder: Path
) -> Turn:
    """other: what the restored chat was fed and chose from `pause` on, where that is something else."""
    place, again = folder / pause["snapshot"], Line(line.session)
    restored = again.restore(Stored(place, store.read_manifest(place)))
    begin, count = pause["total_tokens"], row["sent_tokens"]
    whole = torch.tensor([ids[begin : row["total_tokens"]]])
    sent = whole[:, :count]
    follow = None if other is None else whole
    reference = again.uninterrupted(restored.state, sent, follow)
    _, path = again.go_on(restored, sent, follow=reference.fed)
    judgement = again.verdict(restored.state, reference, path, restored)
    verdict = judgement.verdict
    if other is not None and verdict != "unsound":
        both = (whole[0].tolist(), other)
        parted = next((i for i, (a, b) in enumerate(zip(*both, strict=False)) if a != b), 0)
        runs = (both[0][count:], other[count : parted + 1])  # of another text nothing is a tie
        alike = parted >= count and judgement.verdict in GOOD and not judgement.broken
        tie = alike and all(
            tied(judgement, reference, line.session.sampler(restored.state), restored.state, said, count)
            for said in runs
        )  # fmt: skip
        verdict = "equivalent" if tie else "diverged"
    return Turn(row["turn"], verdict, other is not None, judgement, again.record.get("diagnosis"))
