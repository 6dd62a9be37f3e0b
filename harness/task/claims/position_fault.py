"""Wrong absolute positions, and what is heard of them."""

from typing import Any

from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, HOLDS, REFUTED, Bench, Settled, same_top

CLAIM = "Wrong absolute positions corrupt the output without any error."

LAYOUT = Layout(
    {"errors_raised": "errors raised"},
    "positions of the new tokens",
    {
        "one_too_far": "one too far",
        "one_too_near": "one too near",
        "from_zero": "from zero",
        "far": "far beyond",
    },
    {
        "{}_shift_in_noise_floors": "shift, noise floors",
        "{}_top1_agreement": "tokens with the same most likely next one, share",
    },
)


def settle(bench: Bench) -> Settled:
    ids = bench.ids(80)
    right = bench.step(bench.prefilled(ids[:, :64])[0], ids[:, 64:], 64)
    figures: dict[str, Any] = {"errors_raised": 0}
    moved = []
    for name, position in (
        ("one_too_far", 65),
        ("one_too_near", 63),
        ("from_zero", 0),
        ("far", 200),
    ):
        try:
            wrong = bench.step(bench.prefilled(ids[:, :64])[0], ids[:, 64:], position)
        except (RuntimeError, IndexError):
            figures["errors_raised"] += 1
            continue
        moved.append(bench.shift(wrong, right))
        figures[f"{name}_shift_in_noise_floors"] = moved[-1]
        figures[f"{name}_top1_agreement"] = same_top(wrong, right)
    silent = figures["errors_raised"] == 0 and min(moved) > BEYOND
    return Settled(
        HOLDS if silent else REFUTED,
        figures,
        "Every wrong position changes the logits, and none raises an error."
        if silent
        else "A wrong position raises an error, or changes nothing.",
        "Every wrong position gives other logits and none gives an error.",
        "16 tokens fed after 64; a library cache; positions passed explicitly",
    )
