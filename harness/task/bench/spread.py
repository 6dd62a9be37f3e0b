"""How far the times of one cache lie apart."""

from statistics import quantiles

from harness.report.bench import HIGH, LOW


def quartiles(seconds: list[float]) -> dict[str, float | None]:
    """The middle half of what was timed, as a row of `bench.json` has it; nothing of what was timed once."""
    low, high = None, None
    if len(seconds) > 1:
        low, _, high = quantiles(seconds, n=4, method="inclusive")
    return {LOW: low, HIGH: high}
