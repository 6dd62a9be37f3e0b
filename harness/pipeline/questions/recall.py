"""`prompt=recall`: held-out dialogues of the shipped model's kind, `prompt.distance` words between a
definition and its question."""

import random
from dataclasses import replace
from typing import Any

from harness.config import PromptConfig
from harness.errors import InputProblem
from harness.pipeline.questions.question import Question


def questions(prompt: PromptConfig, tokenizer: Any) -> list[Question]:
    """`prompt.samples` dialogues, each with seeds of its own."""
    rows = []
    for number in range(prompt.samples):
        dialogue = recall_dialogue(replace(prompt, seed=prompt.seed + number), chat=False)
        question = f" what is {dialogue.name} ?"
        context = dialogue.text.removesuffix(question)
        rows.append(Question(context, question, dialogue.answer.strip().removesuffix(" .")))
    return rows


def recall_dialogue(prompt: PromptConfig, chat: bool) -> Any:
    """The held-out dialogue that a PromptConfig declares, in plain or in chat form."""
    from harness.model.assets import corpus

    make = corpus.recall_chat if chat else corpus.recall_dialogue
    try:
        return make(random.Random(prompt.seed), prompt.distance, prompt.definitions)
    except (ValueError, IndexError) as problem:
        raise InputProblem(
            f"prompt=recall has no dialogue with prompt.distance={prompt.distance} and "
            f"prompt.definitions={prompt.definitions}: {problem}. Distances are 0, or 4 and more "
            "(6, or 10 and more with tokenizer=chat)."
        ) from None
