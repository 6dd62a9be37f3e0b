"""How often the diagnosis is right: the cause it names for every fault, and clean runs left alone."""

import random
from collections.abc import Sequence
from typing import Any

from harness import machine
from harness.capture import capture, pad_left
from harness.compare.diagnosis import Diagnosis
from harness.pipeline import testbed as beds
from harness.pipeline.diagnosis import diagnose
from harness.pipeline.session import Session
from harness.snapshot.state import State

CLEAN = 200  # healthy runs that must be called healthy
SHARES = ((164, "plain"), (24, "windowed"), (6, "hybrid"), (6, "indexed"))


def top1(rows: list[dict[str, Any]]) -> tuple[int, list[str]]:
    """How many of the faults in `rows` were given their own cause, and what was said of the others."""
    wrong = [
        f"{r['fault']} ({r['cause'] or 'nothing'} for {r['expected']})"
        for r in rows
        if r["cause"] != r["expected"]
    ]
    return len(rows) - len(wrong), wrong


def alarms(session: Session, runs: int = CLEAN) -> list[str]:
    """What is said of `runs` healthy states that is not "nothing leaves the noise".

    Random ids, lengths, batches with left padding and splits of the prefill, on the session's model
    and on the beds that bring one of their own.
    """
    said, draw = [], random.Random(session.cfg.seed)
    for share, bed in SHARES:
        inner = beds.on(bed, session)
        for _ in range(max(share * runs // CLEAN, 1)):
            diagnosis = diagnose(inner.loaded, healthy(inner, draw))
            if not sound(diagnosis):
                said.append(f"{diagnosis.cause}: {diagnosis.evidence}")
    return said


def sound(diagnosis: Diagnosis) -> bool:
    """Whether nothing was found wrong."""
    return diagnosis.cause == "rounding" and diagnosis.layer is None


def healthy(session: Session, draw: random.Random) -> State:
    """The State after random ids, prefilled in random chunks; half of the batches are padded."""
    vocabulary = min(session.loaded.text_config.vocab_size, len(session.loaded.tokenizer))
    longest = draw.randint(8, 40)
    lengths = [longest, draw.randint(4, longest)][: draw.randint(1, 2)]
    if "linear_attention" in (getattr(session.loaded.text_config, "layer_types", None) or ()):
        lengths = lengths[:1]  # the library runs its recurrence over padding as well
    ids, mask = pad_left([draw.choices(range(vocabulary), k=n) for n in lengths], 0)
    documents = {**session.documents, "prompt_meta": {}, "generation": {}}
    chunk = draw.choice((None, 1, 3, 8, 16))
    return capture(session.loaded, ids, mask, documents, chunk=chunk).state


def line(rows: list[dict[str, Any]], runs: int = 0, said: Sequence[str] = ()) -> str:
    """One line for the summary. said: the false alarms of `runs` clean runs."""
    right, wrong = top1(rows)
    if len(rows) == 1 and not runs:
        (row,) = rows
        said = f"{row['cause'] or 'nothing'}" + f" for {row['expected']}" * (not right)
        return f"Diagnosis: the {'right' if right else 'wrong'} cause, {said}"
    text = f"Diagnosis: cause right in {right} of {len(rows)}"
    if runs:  # all faults were tried: of a few a share says no more
        text += f" ({right / max(len(rows), 1):.1%})"
    text += f", not {', '.join(wrong)}" if wrong else ""
    text += f"; {machine.many(len(said), 'false alarm')} in {runs} clean runs" if runs else ""
    return text + (f" ({said[0]})" if said else "")
