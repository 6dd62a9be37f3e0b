"""Prompts that ask: a context, a question about it and the answer that is expected. One file per kind."""

from importlib import import_module
from typing import Any

from harness.config import PromptConfig
from harness.errors import ConfigProblem, suggestion
from harness.pipeline.questions.question import Question

KINDS = ("jsonl", "needle", "multi_key", "variable_tracking", "recall")


def check_kind(prompt: PromptConfig) -> None:
    """Raise ConfigProblem for a prompt that asks nothing."""
    if prompt.name not in KINDS:
        raise ConfigProblem(
            f"prompt={prompt.name} asks nothing that could be scored.{suggestion(prompt.name, KINDS)}"
        )


def questions(prompt: PromptConfig, tokenizer: Any) -> list[Question]:
    """Every question of the declared prompt, each once: the same asked again is no second witness.
    Generated kinds fit their length in tokens to `tokenizer`.

    Raises ConfigProblem for a prompt that asks nothing, InputProblem for a file that cannot be read.
    """
    check_kind(prompt)
    made = import_module(f"{__name__}.{prompt.name}").questions(prompt, tokenizer)
    return list(dict.fromkeys(made))
