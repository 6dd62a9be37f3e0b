"""Whether what was said is right: a freely generated text against the expected answer."""

import re

from harness.pipeline.questions.question import Question

END = r"\s*(?:[.!?](?=\s|$)|\n|$)"
# Neither word nor number goes on: 10 is not in -10, 10.5, 5.10, 10,000; 500 is not in 1,500.
BEFORE = r"(?<!\w)(?:(?!\d)|(?<!\d\.)(?<!\s-)(?!(?<=\d,)\d{3}(?!\d)))"
AFTER = r"(?!\w|\.\d|,\d{3}(?!\d))"


def scores(said: str, question: Question) -> dict[str, float]:
    """0 or 1 by measure. exact: the answer, up to a full stop or line's end, is the expected one, whole;
    contains: what was said has it somewhere; regex: the question's pattern, where it has one, is
    found. White space counts as one space everywhere."""
    heard, wanted = spaced(said), re.escape(spaced(question.expected))
    whole = r"\s+".join(re.escape(word) for word in answer(question.expected).split())
    measures = {
        "exact": float(re.match(rf"\s*{whole}{END}", said) is not None),
        "contains": float(re.search(f"{BEFORE}{wanted}{AFTER}", f" {heard}") is not None),
    }
    if question.pattern is not None:
        measures["regex"] = float(re.search(question.pattern, heard) is not None)
    return measures


def answer(expected: str) -> str:
    """`expected` without the full stop that may close it; whole where it is nothing else."""
    return re.sub(r"\s*[.!?]\s*$", "", expected) or expected


def spaced(text: str) -> str:
    return " ".join(text.split())
