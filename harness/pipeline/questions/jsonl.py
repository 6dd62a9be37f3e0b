"""`prompt=jsonl`: questions of your own, one JSON object a line: `context`, `question`, `expected`, and
`regex` where an answer that matches it is right, in place of one that has the expected text in it."""

import json
import re
from math import prod
from typing import Any

import regex

from harness.config import PromptConfig, utf8
from harness.errors import InputProblem
from harness.pipeline.questions.question import Question

NEEDED, ALLOWED = ("context", "question", "expected"), ("regex",)
LONG, COUNTS = (
    10_000,
    1_000_000,
)  # characters of a regex; all of its counted repeats, one inside another


def questions(prompt: PromptConfig, tokenizer: Any) -> list[Question]:
    """The file's questions, in its order. Raises InputProblem that names the file and every bad line."""
    where = f"prompt.path={prompt.path}"
    if not prompt.path:
        raise InputProblem("prompt=jsonl needs prompt.path=FILE, one JSON object a line.")
    text = utf8.read(prompt.path)
    rows, wrong = [], []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            rows.append(_question(line))
        except ValueError as problem:
            wrong.append(f"line {number}: {problem}")
    if wrong:
        more = f" (and {len(wrong) - 5} more)" if len(wrong) > 5 else ""
        raise InputProblem(f"{where}, {'; '.join(wrong[:5])}{more}. Each line is " + _form())
    if not rows:
        raise InputProblem(f"{where} holds no question. Each line is {_form()}")
    return rows


def line(question: Question) -> str:
    """`question` as a line of such a file."""
    row = {key: getattr(question, key) for key in NEEDED}
    regex = {} if question.pattern is None else {"regex": question.pattern}
    return json.dumps({**row, **regex}) + "\n"


def _question(line: str) -> Question:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise ValueError("is not JSON") from None
    if not isinstance(row, dict):
        raise ValueError("is no object")
    if missing := [key for key in NEEDED if key not in row]:
        raise ValueError(f"has no {' and no '.join(missing)}")
    if odd := sorted(set(row) - {*NEEDED, *ALLOWED}):
        raise ValueError(f"has a key '{odd[0]}' that nothing reads")
    for key in (*NEEDED, *(k for k in ALLOWED if k in row)):
        if not isinstance(row[key], str) or not row[key].strip():
            raise ValueError(f"{key} is no text, or empty")
    pattern = row.get("regex")
    if pattern is not None:
        counts = re.findall(r"\{\s*(?:\d*\s*,\s*)?(\d+)", pattern[:LONG])
        if len(pattern) > LONG or prod(int(n[:9]) or 1 for n in counts) > COUNTS:
            raise ValueError(
                "regex is too long, or repeats too often"
            )  # compiled, it fills the memory
        try:
            regex.compile(pattern)
        except (regex.error, RecursionError) as problem:
            raise ValueError(f"regex: {problem}") from None
    return Question(row["context"], row["question"], row["expected"], pattern)


def _form() -> str:
    return '{"context": "...", "question": "...", "expected": "..."}; "regex" may be there too.'
