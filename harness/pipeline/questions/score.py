"""Whether what was said is right: a freely generated text against the expected answer."""

import re

from harness.pipeline.questions.question import Question

END = re.compile(r"\s*(?:[.!?](?=\s|$)|\n)")


def scores(said: str, question: Question) -> dict[str, float]:
    """0 or 1 by measure. exact: the answer, up to the first full stop or line's end, is the expected
    one; contains: what was said has it somewhere; regex: the question's pattern, where it has one, is
    found. White space counts as one space everywhere."""
    wanted, heard = spaced(question.expected), spaced(said)
    measures = {
        "exact": float(first(said.lstrip()) == first(question.expected.lstrip())),
        "contains": float(re.search(rf"(?<!\w){re.escape(wanted)}(?!\w)", heard) is not None),
    }
    if question.pattern is not None:
        measures["regex"] = float(re.search(question.pattern, heard) is not None)
    return measures


def first(text: str) -> str:
    """Up to the first full stop or line's end."""
    return spaced(END.split(text, maxsplit=1)[0])


def spaced(text: str) -> str:
    return " ".join(text.split())
