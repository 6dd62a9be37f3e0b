"""What the full cache itself answers wrongly: a loss of the model or of the question, and of no cell."""

from collections.abc import Sequence
from typing import Any

from harness import machine
from harness.report.html import cell, section
from harness.snapshot.cells import is_full

MOST = 12  # answers that are shown
COLUMNS = ["asked", "question", "expected", "said"]

Row = dict[str, Any]


def sections(answered: dict[str, list[Row]], asking: Sequence[Any]) -> list[Row]:
    """A block of the page, in a list; none where the full cache is right throughout. answered, asking: as of the
    page's own `sections`. What two caches say alike is there once."""
    wrong: list[list[Any]] = []
    for number, answers in answered.items():
        asked = asking[int(number.partition("/")[0])]
        for answer in answers:
            if is_full(answer) and not answer["contains"]:
                said = cell(str(answer.get("said_shown", answer["said"])), kind="bad long")
                row = [answer["asked"], asked.question, asked.expected, said]
                wrong += [row] * (row not in wrong)
    if not wrong:
        return []
    shown = f" The first {MOST}:" * (len(wrong) > MOST)
    text = (
        f"{machine.many(len(wrong), 'answer')} without the expected one in it, with nothing pruned and nothing "
        f"quantized: no cell is to blame for those.{shown}"
    )
    return [
        section("What the full cache answers wrongly", text=text, columns=COLUMNS, rows=wrong[:MOST],
                fold=len(wrong) > MOST // 2)
    ]  # fmt: skip
