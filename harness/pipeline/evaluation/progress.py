"""What was answered before an interruption: kept beside the runs until the evaluation is complete, under
a name that says what was asked of which model, so that the same command goes on where it was."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.pipeline.questions.jsonl import line as written
from harness.pipeline.questions.question import Question
from harness.process import shown
from harness.snapshot.digest import digest_document

Answer = dict[str, Any]


class Progress:
    """Answers by question, one JSON line each. identity: everything that the answers depend on."""

    def __init__(self, runs: Path | str, identity: Any):
        self.key = digest_document(identity)
        self.path = Path(runs) / ".evaluate" / f"{self.key[:32]}.jsonl"
        self.answered: dict[str, list[Answer]] = {}
        self._read()

    def add(self, question: str, answers: list[Answer]) -> None:
        """Keep the answers to `question`, on disk as well."""
        self.answered[question] = answers
        self.path.parent.mkdir(parents=True, exist_ok=True)
        with self.path.open(
            "a", encoding="utf-8"
        ) as file:  # what a kill cut short stays a line apart
            file.write(f"\n{json.dumps([self.key, question, answers])}\n")

    def kept(self, questions: int, asked: Sequence[str]) -> str:
        """What is there to go on from, as the rest of a sentence; empty where nothing is. questions: how many there
        are. asked: when each is asked."""
        if not self.answered:
            return ""
        done = sum(all(f"{i}/{when}" in self.answered for when in asked) for i in range(questions))
        return f"the answers to {done} of {questions} prompts; the same command goes on from there ({shown(self.path)})"

    def write(self, folder: Path, asking: Sequence[Question]) -> None:
        """All of them as `answers.jsonl` in `folder`, and what was asked as `questions.jsonl`, which
        `prompt=jsonl` reads."""
        (folder / "questions.jsonl").write_text("".join(map(written, asking)), "utf-8")
        with (folder / "answers.jsonl").open("w", encoding="utf-8") as file:
            for question, answers in self.answered.items():
                file.writelines(
                    json.dumps({"question": question, **answer}) + "\n" for answer in answers
                )

    def end(self) -> None:
        """The record is complete: nothing is left to go on from."""
        self.path.unlink(missing_ok=True)

    def _read(self) -> None:
        """A line that was cut short by a kill is not there."""
        try:
            lines = self.path.read_text("utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return
        for line in lines:
            try:
                key, question, answers = json.loads(line)
            except ValueError:
                continue
            if key == self.key:
                self.answered[question] = answers
