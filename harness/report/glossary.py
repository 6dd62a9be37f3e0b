"""What the words of a verdict mean, for whoever is handed a page: the README's table, and what a task says in its own
words."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from harness.report.badge import KIND, SETTLED
from harness.snapshot.result import ALONE, MISSED, PASSED

VERDICTS = {  # the README has the same rows
    "exact": "logits bit-equal to the uninterrupted run (or to what it was compared with, `against` in `result.json`)",
    "equivalent": "within rounding: error against the same weights in float64 at most twice that of the model run "
    "without a cache, and no token changed beyond what the noise floor explains",
    "drifted": "beyond rounding, same tokens; or a key or value, of the past or of what is stored next, that is not "
    "what its ids give, attended to or not",
    "diverged": "other tokens: where the most likely one is taken, another is that at some step; where tokens are drawn, another "
    "was drawn",
    "unsound": "the uninterrupted run is itself wrong: the path, its error and the bound are named",
    "refused": "to restore, or to save, was not allowed; every reason is listed",
    "unjudged": "nothing was compared, and why",
}  # fmt: skip
CAUGHT = (
    "a fault is damage done on purpose, and caught where a check that is meant for it notices it"
)
OWN = {
    "failed": "it came to no end: what went wrong, and how to mend it, is below",
    PASSED["save"]: "written to disk, read back, and every byte matches its digest; what was computed is not judged",
    PASSED["verify"]: "every byte matches the digest that was recorded when it was written",
    PASSED["audit"]: "run again from its own configuration, the record gives what it claims; what could not be "
    "compared is named",
    PASSED["diff"]: "both hold the same tokens, keys, values and documents, bit for bit",
    MISSED["diff"]: "not everything that was compared is the same: each difference has its row",
    **dict.fromkeys((*ALONE["faults"], PASSED["faults"], MISSED["faults"]), CAUGHT),
    "holds": "the claim is true of what was measured",
    "depends": "the claim is true under some conditions, which are named",
    "refuted": "the claim is not true of what was measured",
}  # fmt: skip
MEANING = VERDICTS | OWN
BY_NOISE = (
    "no logit differs by more than twice the noise floor, which is how far plain runs of the same thing differ from each "
    "other, and no token changed beyond what that explains; no run in float64 was asked for (compare.oracle=false)"
)
NOTHING_ELSE: Mapping[str, str] = MappingProxyType({})
WORDS = re.compile(rf"\b({'|'.join([*KIND, *SETTLED])})\b")


def of_result(result: Mapping[str, Any]) -> dict[str, str]:
    """What words mean otherwise on the page of a run, by what it was judged by: without a float64 run by the noise
    floor alone."""
    asked = (result.get("oracle") or {}).get("restored") is not None
    return {} if asked or not result.get("curves") else {"equivalent": BY_NOISE}


def of_page(
    verdict: str,
    pills: Iterable[Mapping[str, Any]],
    blocks: Iterable[Mapping[str, Any]],
    meant: Mapping[str, str] = NOTHING_ELSE,
) -> list[tuple[str, str]]:
    """`(word, meaning)` of each verdict on a page: of its badge and of its pills first, then of the cells, the pills
    and the tables of its blocks. meant: as `of_result`."""
    told = [verdict] * (verdict in MEANING)
    for text in (verdict, *(str(pill["text"]) for pill in pills), *_inside(blocks)):
        told += WORDS.findall(text) if text not in MEANING else [text]
    return [(word, meant.get(word, MEANING[word])) for word in dict.fromkeys(told)]


def _inside(blocks: Iterable[Mapping[str, Any]]) -> list[str]:
    """The coloured cells and the pills of blocks and of their parts: an answer in colour is a sentence of a model."""
    said = []
    for block in blocks:
        said += [str(block["pill"]["text"])] if block.get("pill") else []
        cells = [cell for row in block.get("rows") or () for cell in row if isinstance(cell, dict)]
        said += [str(c["text"]) for c in cells if c.get("sign") and "long" not in c["kind"]]
        said += _inside(block.get("parts") or ())
    return said
