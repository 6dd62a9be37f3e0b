"""Whether what was said is right: a freely generated text against the expected answer."""

import re

import regex

from harness.errors import InputProblem
from harness.pipeline.questions.question import Question

END = r"\s*(?:[.!?](?=\s|$)|\n|$)"
# Neither word nor number goes on: 10 is not in -10, 10.5, 5.10, 10,000; 500 is not in 1,500.
BEFORE = r"(?<!\w)(?:(?!\d)|(?<!\d\.)(?<!\s-)(?!(?<=\d,)\d{3}(?!\d)))"
AFTER = r"(?!\w|\.\d|,\d{3}(?!\d))"
SECONDS = 1.0  # of a search: a pattern that is not ours, as one of a record, can take for ever


def scores(said: str, question: Question) -> dict[str, float]:
    """0 or 1 by measure. exact: the answer, up to a full stop or line's end, is the expected one, whole;
    contains: the question's pattern is found in what was said; where it has none, the expected answer is,
    in capitals or not. White space counts as one space everywhere. Of nothing expected nothing is right.
    Raises InputProblem for a pattern that takes too long."""
    heard, wanted = spaced(said), re.escape(spaced(question.expected))
    whole = r"\s+".join(re.escape(word) for word in answer(question.expected).split())
    exact = wanted and re.match(rf"\s*{whole}{END}", said)
    if question.pattern is not None:
        right = _found(question.pattern, heard)
    else:
        right = bool(wanted and re.search(f"{BEFORE}{wanted}{AFTER}", f" {heard}", re.IGNORECASE))
    return {"exact": float(bool(exact)), "contains": float(right)}


def _found(pattern: str, text: str) -> bool:
    try:
        return regex.search(pattern, text, timeout=SECONDS) is not None
    except TimeoutError:
        raise InputProblem(
            f"the regex {pattern[:80]!r} of a question takes more than {SECONDS:g} s on one answer. "
            "Give one without nested repeats."
        ) from None


def answer(expected: str) -> str:
    """`expected` without the full stop that may close it; whole where it is nothing else."""
    return re.sub(r"\s*[.!?]\s*$", "", expected) or expected


def spaced(text: str) -> str:
    return " ".join(text.split())
