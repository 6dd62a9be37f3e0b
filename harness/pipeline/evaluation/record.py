"""What a run of task=evaluate left: read again, and averaged again."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from harness import foreign
from harness.config import option
from harness.errors import HarnessError
from harness.pipeline.evaluation.rows import Row, averages, called
from harness.pipeline.questions.jsonl import questions
from harness.pipeline.questions.question import Question
from harness.snapshot.result import CELL, ROWS, finite

ANSWERS, ASKED = "answers.jsonl", "questions.jsonl"
FILES = (ANSWERS, ROWS, ASKED)


@dataclass(frozen=True)
class Evaluation:
    """answers: lines of answers.jsonl. rows: of evaluate.json. asking:
    its questions, none in a record from before they were kept."""

    result: Mapping[str, Any]
    answers: list[Row]
    rows: list[Row]
    asking: list[Question]

    @classmethod
    def read(cls, result: Mapping[str, Any], place: Callable[[str], Path]) -> "Evaluation":
        """place: where the file of a name lies. Raises ValueError for what is no such file."""
        answers, rows, asked = map(place, FILES)
        lines = answers.read_text("utf-8").splitlines() if answers.is_file() else []
        budget = foreign.Budget()
        said = [foreign.parsed(line, budget) for line in lines]
        table = foreign.read_json(rows) if rows.is_file() else []
        try:
            prompt = option("prompt", "jsonl", path=str(asked))
            asking = questions(prompt, None) if asked.is_file() else []
        except HarnessError as problem:
            raise ValueError(str(problem)) from None
        return cls(result, said, table, asking)

    @cached_property
    def answered(self) -> dict[str, list[Row]]:
        """Answers by question, as they were averaged."""
        said: dict[str, list[Row]] = {}
        for line in self.answers:
            answer = {key: value for key, value in line.items() if key != "question"}
            said.setdefault(line["question"], []).append(answer)
        return said

    @cached_property
    def averages(self) -> list[Row]:
        """The rows that the answers give."""
        model, prompt = (self.result["options"][group] for group in ("model", "prompt"))
        return averages(called(model, self.result["model"]), prompt, [*self.answered.values()])

    @cached_property
    def places(self) -> dict[tuple[Any, ...], Row]:
        """Answers by question and cell, with no number that JSON has not."""
        keys = ("question", *CELL)
        return {tuple(line[key] for key in keys): finite(line) for line in self.answers}
