"""The verdict's rules, each from both sides."""

import torch

from harness.compare import metrics
from harness.compare.verdict import decide, errors

torch.manual_seed(0)
ORACLE = torch.randn(1, 4, 50, dtype=torch.float64)
NOISE = torch.randn(1, 4, 50) * 1e-5
PLAIN = ORACLE.float() + NOISE
IDS = PLAIN.argmax(-1)


def judged(found: torch.Tensor, other: int | None = None, waived=(), oracle=ORACLE):
    got = metrics.compare(found, PLAIN, IDS)
    floor = metrics.worst([metrics.compare(ORACLE.float(), PLAIN, IDS)])
    return decide(found, PLAIN, got, floor, errors(found, PLAIN, oracle), other, waived)[0]


def test_bit_equal_is_exact() -> None:
    assert judged(PLAIN.clone()) == "exact"


def test_within_twice_the_plain_error_is_equivalent() -> None:
    assert judged(ORACLE.float() - NOISE) == "equivalent"
    assert judged(ORACLE.float() + 1.9 * NOISE) == "equivalent"


def test_beyond_twice_is_drifted() -> None:
    assert judged(ORACLE.float() + 2.2 * NOISE) == "drifted"


def test_without_an_oracle_the_noise_floor_is_the_scale() -> None:
    assert judged(PLAIN + NOISE, oracle=None) == "equivalent"
    assert judged(PLAIN + 2.2 * NOISE, oracle=None) == "drifted"


def test_another_token_is_diverged() -> None:
    other = PLAIN.clone()
    other[0, 2] = other[0, 2].flip(-1)
    assert judged(other, other=2) == "diverged"


def test_a_step_that_read_what_was_given_is_told_from_the_first_that_generated_another() -> None:
    """A headline counts the former, too: two numbers of one run need a word that tells them apart."""
    other = PLAIN.clone()
    other[0, 0], other[0, 2] = other[0, 0].flip(-1), other[0, 2].flip(-1)
    got = metrics.compare(other, PLAIN, IDS)
    floor = metrics.worst([metrics.compare(ORACLE.float(), PLAIN, IDS)])
    rest = floor, errors(other, PLAIN, ORACLE)
    assert got["first_divergence"] == 0

    def why(token: int | None, figures=got, **more) -> tuple[str, object, str]:
        made = decide(other, PLAIN, figures, *rest, token, (), **more)[1]
        return made["code"], made["args"].get("step"), made["args"]["how"]

    assert why(3, given=1) == ("other_generated", 3, "chosen")
    assert why(1, given=1) == ("other_token", 1, "chosen")
    assert why(3, drawn=True) == ("other_token", 3, "drawn"), "no text was read"
    assert why(0, drawn=True) == ("other_first_token", None, "drawn")
    assert why(None, drawn=True) == ("same_tokens", None, "drawn")
    assert why(None) == ("same_tokens", None, "chosen")
    assert why(3, {**got, "first_divergence": None}) == ("other_token", 3, "chosen")


def test_a_tie_within_the_noise_is_not_another_thought() -> None:
    tied = PLAIN.clone()
    best, second = tied[0, 1].topk(2).indices
    oracle = ORACLE.clone()
    oracle[0, 1, second] = oracle[0, 1, best]
    plain = oracle.float() + NOISE
    found = oracle.float() - NOISE
    got = metrics.compare(found, plain, IDS)
    floor = metrics.worst([metrics.compare(oracle.float(), plain, IDS)])
    verdict, _ = decide(found, plain, got, floor, errors(found, plain, oracle), 1, ())
    assert verdict == "equivalent"


def test_waived_differences_are_never_equivalent() -> None:
    assert judged(PLAIN.clone(), waived=["tokenizer"]) == "drifted"
    assert judged(PLAIN.clone(), other=0, waived=["tokenizer"]) == "diverged"


def test_not_finite_is_diverged() -> None:
    broken = PLAIN.clone()
    broken[0, 0, 0] = float("nan")
    assert judged(broken) == "diverged"


def test_a_scale_that_is_no_number_allows_nothing() -> None:
    """An uncached run that overflows would bound every error by twice infinity."""
    for scale in (float("inf"), float("nan")):
        plain = PLAIN.clone()
        plain[0, 0, 0] = scale
        far = PLAIN + 3.0
        got = metrics.compare(far, PLAIN, IDS)
        floor = metrics.worst([metrics.compare(plain, PLAIN, IDS)])
        for oracle in (ORACLE, None):
            said = decide(far, PLAIN, got, floor, errors(far, plain, oracle), None, ())[0]
            assert said == "drifted", (scale, oracle is None)


def test_stored_logits_may_be_off_by_twice_their_rounding() -> None:
    got = metrics.compare(PLAIN, PLAIN, IDS)
    rest = {"max_abs_diff": 1e-5}, errors(PLAIN, PLAIN, ORACLE), None, ()
    scale = rest[1]["plain"]
    for off, verdict in ((1.9, "equivalent"), (2.2, "drifted")):
        stored = {"restored": off * scale, "plain": scale}
        assert decide(PLAIN, PLAIN, got, *rest, stored=stored)[0] == verdict


def test_a_lead_of_three_noise_floors_is_no_tie() -> None:
    """The error against float64 alone would allow the other token."""
    floor = 2.0**-10
    oracle = torch.zeros(1, 2, 50, dtype=torch.float64)
    oracle[0, 1, :2] = torch.tensor([10.0, 10.0 - 3 * floor])
    plain = oracle.float()
    plain[0, 0, 7] += floor
    found = oracle.float()
    found[0, 1, :2] += torch.tensor([-1.9, 1.9]) * floor
    got = metrics.compare(found, plain, plain.argmax(-1))
    noise, off = {"max_abs_diff": floor}, errors(found, plain, oracle)
    assert off["restored"] < 2 * off["plain"]
    assert decide(found, plain, got, noise, off, 2, ())[0] == "diverged"
