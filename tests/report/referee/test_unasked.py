"""A referee's headline counts the cases that could not be asked here, and says what they need."""

from harness.report.referee import page as referee
from harness.report.referee import unasked


def test_cases_that_were_not_judged_are_counted_with_what_they_need() -> None:
    known = {"transformers": "5.1", "not judged: a": "it needs the package hqq",
             "not judged: b": "the library does not make or use it here: needs a CUDA device",
             "not judged: c": "Torch not compiled with cuda"}  # fmt: skip
    said = " 3 more cases were not judged (1 needs hqq, 2 need CUDA)."
    assert unasked.sentence(known) == said and unasked.sentence({"transformers": "5.1"}) == ""
    row = {"case": "hit", "verdict": "exact", "control": False, "reason": ""}
    assert said in str(referee.sections([row], {}, known, dict.fromkeys(("cpu", "cores", "platform", "python"))))  # fmt: skip
