"""Two names, one object."""

from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, HOLDS, REFUTED, Bench, Settled

CLAIM = "`cache2 = cache` shares memory: a later forward through one changes the other."

LAYOUT = Layout(
    {
        "length_of_the_other_before": "length by the other name, before the forward",
        "length_of_the_other_after": "length by the other name, after it",
        "contents_of_the_other_changed": "contents by the other name changed",
        "shift_of_its_next_logits_in_noise_floors": "shift of its next logits, noise floors",
    }
)


def settle(bench: Bench) -> Settled:
    ids = bench.ids(72)
    cache, _ = bench.prefilled(ids[:, :64])
    second = cache
    before = bench.digest(second)
    bench.step(cache, ids[:, 64:68], 64)
    length, changed = second.get_seq_length(), bench.digest(second) != before
    through_alias = bench.step(second, ids[:, 68:], 64)
    alone = bench.step(bench.prefilled(ids[:, :64])[0], ids[:, 68:], 64)
    shift = bench.shift(through_alias, alone)
    figures = {
        "length_of_the_other_before": 64,
        "length_of_the_other_after": length,
        "contents_of_the_other_changed": changed,
        "shift_of_its_next_logits_in_noise_floors": shift,
    }
    holds = length == 68 and changed and shift > BEYOND
    return Settled(
        HOLDS if holds else REFUTED,
        figures,
        f"Four tokens fed by one name {'are' if holds else 'are not'} in the cache by the other name too.",
        "The second name sees four tokens that were never meant for it, and its next logits are "
        "those of another text.",
    )
