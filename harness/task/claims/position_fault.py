"""Wrong absolute positions, and what is heard of them."""

from typing import Any

from harness.task.claims.bench import BEYOND, HOLDS, REFUTED, Bench, Settled, same_top

CLAIM = "Wrong absolute positions corrupt the output without any error."


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
        "Every wrong position gives other logits and none gives an error.",
        "16 tokens fed after 64; a library cache; positions passed explicitly",
    )
