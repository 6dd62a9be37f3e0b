"""Of tokens that are drawn, which the restored run draws otherwise."""

import pytest

from harness.config import draws
from harness.report.run.page import figures
from harness.results.points import row_of
from harness.snapshot.record import read

SAMPLED = {"name": "sample", "temperature": 0.8, "do_sample": True}


@pytest.mark.parametrize(
    "restored, share, first", [([5, 6, 7, 8], 1, None), ([5, 9, 7, 9], 0.5, 1)]
)
def test_share_and_first_are_of_the_ids_that_both_drew(restored, share, first) -> None:
    result = {
        "sampler": SAMPLED,
        "text": {"token_ids": [5, 6, 7, 8], "restored_ids": restored},
    }
    assert draws.figures(result) == {draws.SHARE: share, draws.FIRST: first}
    for other in ({"sampler": {"name": "greedy"}}, {"task": "chat"}, {"text": None}):
        assert draws.figures(result | other) == {} and draws.others(result | other) == []


def test_a_sampled_run_tells_them_on_its_page_and_in_a_sweeps_table(recorded) -> None:
    row = row_of(recorded)
    assert (row[draws.SHARE], row[draws.FIRST]) == (1, None)
    (table, *_) = figures(read(recorded / "result.json"))
    assert ["share of draws that are the same token", 1, ""] in table["rows"]
