"""Prompts that ask: a context, a question about it and the answer that is expected. One file per kind."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

from harness.config import PromptConfig
from harness.errors import ConfigProblem, suggestion

KINDS = ("jsonl", "needle", "multi_key", "variable_tracking", "recall")


@dataclass(frozen=True)
class Question:
    """context: what is read, and pruned. question: text that follows it. expected: what a right answer
    says. pattern: a regular expression that a right answer matches, or None."""

    context: str
    question: str
    expected: str
    pattern: str | None = None

    @property
    def asked(self) -> str:
        """The question as it follows the context: a space lies between the two."""
        apart = self.context[-1:].isspace() or self.question[:1].isspace()
        return self.question if apart else " " + self.question


def questions(prompt: PromptConfig, tokenizer: Any) -> list[Question]:
    """Every question of the declared prompt; generated kinds fit their length in tokens to `tokenizer`.

    Raises ConfigProblem for a prompt that asks nothing, InputProblem for a file that cannot be read.
    """
    if prompt.name not in KINDS:
        raise ConfigProblem(
            f"prompt={prompt.name} asks nothing that could be scored.{suggestion(prompt.name, KINDS)}"
        )
    return import_module(f"{__name__}.{prompt.name}").questions(prompt, tokenizer)
