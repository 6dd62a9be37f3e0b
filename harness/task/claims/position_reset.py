"""May a new turn begin at position 0?"""

from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, HOLDS, REFUTED, Bench, Settled, same_top

CLAIM = "Positions may restart per turn."

LAYOUT = Layout(
    {"noise_floor_logits": "noise floor, logits"},
    "turn",
    {f"turn_{turn}": f"turn {turn}" for turn in (2, 3, 4)},
    {
        "{}_shift_in_noise_floors": "shift, noise floors",
        "{}_top1_agreement": "tokens with the same most likely next one, share",
    },
)


def settle(bench: Bench) -> Settled:
    turns, length = 4, 24
    ids = bench.ids(turns * length)
    right, wrong = bench.prefilled(ids[:, :length])[0], bench.prefilled(ids[:, :length])[0]
    shifts, agreement = [], []
    for turn in range(1, turns):
        part = ids[:, turn * length : (turn + 1) * length]
        absolute = bench.step(right, part, turn * length)
        restarted = bench.step(wrong, part, 0)
        shifts.append(bench.shift(restarted, absolute))
        agreement.append(same_top(restarted, absolute))
    wrong_text = min(shifts) > BEYOND
    return Settled(
        REFUTED if wrong_text else HOLDS,
        {
            **{f"turn_{i + 2}_shift_in_noise_floors": s for i, s in enumerate(shifts)},
            **{f"turn_{i + 2}_top1_agreement": a for i, a in enumerate(agreement)},
            "noise_floor_logits": bench.noise,
        },
        "From the second turn on, positions that restart give the logits of another text."
        if wrong_text
        else "Positions that restart give the same logits in some turn.",
        "From the second turn on the logits are those of another text: keys of all turns share the "
        "same few positions.",
        f"{turns} turns of {length} tokens",
    )
