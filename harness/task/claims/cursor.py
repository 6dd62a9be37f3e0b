"""Which number is the position of the next token?"""

from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, HOLDS, REFUTED, Bench, Settled

CLAIM = "Token count, not turn count, is the position."

LAYOUT = Layout(
    {
        "tokens_so_far": "tokens so far",
        "turns_so_far": "turns so far",
        "token_count_shift_in_noise_floors": "shift when resumed at the token count, noise floors",
        "turn_count_shift_in_noise_floors": "shift when resumed at the turn count, noise floors",
    }
)


def settle(bench: Bench) -> Settled:
    lengths, ids = (24, 17, 30), bench.ids(88)
    ends = [sum(lengths[: i + 1]) for i in range(len(lengths))]
    whole = bench.prefilled(ids)[1]

    def resumed(position: int) -> float:
        cache, _ = bench.prefilled(ids[:, : ends[-1]])
        return bench.shift(bench.step(cache, ids[:, ends[-1] :], position)[:, -1], whole)

    by_tokens, by_turns = resumed(ends[-1]), resumed(len(lengths))
    holds = by_tokens <= BEYOND < by_turns
    return Settled(
        HOLDS if holds else REFUTED,
        {
            "tokens_so_far": ends[-1],
            "turns_so_far": len(lengths),
            "token_count_shift_in_noise_floors": by_tokens,
            "turn_count_shift_in_noise_floors": by_turns,
        },
        "Only resumed at the token count are the logits those of one uninterrupted pass."
        if holds
        else "The token count does not give the logits of one uninterrupted pass, or the turn count does too.",
        "Resumed at the number of tokens, the logits are those of one uninterrupted pass; at the "
        "number of turns they are not.",
    )
