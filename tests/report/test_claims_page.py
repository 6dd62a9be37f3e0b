"""The page of the claims: what its figures are held to."""

from harness.report import claims

ROW = {"claim": "priming", "says": "s", "verdict": "depends", "answer": "a", "because": "b", "model": "",
       "conditions": "", "figures": {"masked_shift_in_noise_floors": 1.69}}  # fmt: skip
LAYOUT = claims.Layout({"masked_shift_in_noise_floors": "shift, noise floors", "bytes": "bytes"})


def test_from_how_many_noise_floors_on_a_shift_is_one_stands_where_shifts_are_told() -> None:
    said = "one of up to 4 noise floors counts as noise."
    (alone,) = claims.sections([ROW], {"priming": LAYOUT})
    assert said in alone["parts"][0]["text"]
    summary, *each = claims.sections([ROW, ROW], {"priming": LAYOUT})
    assert said in summary["text"] and not any(said in one["parts"][0]["text"] for one in each)
    (other,) = claims.sections([ROW | {"figures": {"bytes": 3}}], {"priming": LAYOUT})
    assert said not in other["parts"][0]["text"]
