"""Can a batch hide a wrong position?"""

import torch

from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, DEPENDS, HOLDS, REFUTED, Bench, Settled

CLAIM = "Batch > 1 hides position faults by averaging."

LAYOUT = Layout(
    {"faulty_row_alone_shift": "shift of the faulty row alone, noise floors"},
    "rows of the batch",
    {"2": "2", "4": "4", "8": "8"},
    {
        "batch_{}_faulty_row_shift": "shift of the faulty row",
        "batch_{}_healthy_rows_shift": "largest shift of the others",
        "batch_{}_mean_over_rows": "mean over all rows",
    },
)


def settle(bench: Bench) -> Settled:
    ids = bench.ids(80)
    figures, diluted = {}, []
    alone = _shift(bench, ids, rows=1)
    figures["faulty_row_alone_shift"] = alone[0]
    for rows in (2, 4, 8):
        shifts = _shift(bench, ids, rows)
        figures[f"batch_{rows}_faulty_row_shift"] = shifts[0]
        figures[f"batch_{rows}_healthy_rows_shift"] = max(shifts[1:])
        figures[f"batch_{rows}_mean_over_rows"] = sum(shifts) / rows
        diluted.append((sum(shifts) / rows) / alone[0] * rows)
    shown = min(figures[f"batch_{rows}_faulty_row_shift"] for rows in (2, 4, 8))
    visible = shown > BEYOND and abs(shown / alone[0] - 1) < 0.05
    averages = max(abs(d - 1) for d in diluted) < 0.25
    verdict = DEPENDS if visible and averages else REFUTED if visible else HOLDS
    return Settled(
        verdict,
        figures,
        {
            DEPENDS: "On the metric: a mean over the rows hides the fault, the largest difference shows it.",
            REFUTED: "The faulty row moves as far in a batch as alone.",
            HOLDS: "The faulty row moves less in a batch than alone.",
        }[verdict],
        "The model averages nothing: the faulty row moves as far in a batch as alone, and the other "
        "rows do not move. Only a metric that takes the mean over the batch divides the fault by "
        "the number of rows; the largest difference, which this harness judges by, does not.",
        "shifts in noise floors; one row of the batch has its positions one too far",
    )


def _shift(bench: Bench, ids: torch.Tensor, rows: int) -> list[float]:
    batch = ids.expand(rows, -1)
    positions = 64 + torch.arange(16, device=ids.device).expand(rows, -1).clone()
    right = bench.loaded.forward(batch[:, 64:], positions, None, bench.prefilled(batch[:, :64])[0])
    positions[0] += 1
    wrong = bench.loaded.forward(batch[:, 64:], positions, None, bench.prefilled(batch[:, :64])[0])
    return [bench.shift(wrong[i], right[i]) for i in range(rows)]
