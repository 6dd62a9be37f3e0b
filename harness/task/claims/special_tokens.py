"""What a default tokenizer call adds."""

from harness.report.claims import Layout
from harness.task.claims.bench import BEYOND, DEPENDS, HOLDS, REFUTED, TEXT, Bench, Settled

CLAIM = (
    "Default tokenizer calls add BOS/EOS behind your back; adding BOS again doubles it and shifts "
    "every position."
)

LAYOUT = Layout(
    {
        "ids_of_the_text": "ids of the text",
        "ids_of_the_default_call": "ids of the default call",
        "added_behind_your_back": "ids added behind your back",
        "bos_written_once_more_gives": "BOS tokens when one is written too",
        "shift_of_a_doubled_bos_in_noise_floors": "shift of a doubled BOS, noise floors",
        "positions_shifted_by": "positions move by",
    }
)


def settle(bench: Bench) -> Settled:
    tokenizer = bench.tokenizer
    plain = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    default = tokenizer(TEXT)["input_ids"]
    added = len(default) - len(plain)
    bos = tokenizer.bos_token_id
    twice = tokenizer((tokenizer.bos_token or "") + TEXT)["input_ids"]
    figures = {
        "ids_of_the_text": len(plain),
        "ids_of_the_default_call": len(default),
        "added_behind_your_back": added,
        "bos_written_once_more_gives": twice.count(bos) if bos is not None else None,
    }
    if bos is None:
        return Settled(DEPENDS, figures, "On the tokenizer: this one has no BOS at all.")
    once, doubled = [bos, *plain], [bos, bos, *plain]
    as_ids = [bench.ids(1).new_tensor([ids]) for ids in (once, doubled)]
    shift = bench.shift(bench.prefilled(as_ids[1])[1], bench.prefilled(as_ids[0])[1])
    figures |= {"shift_of_a_doubled_bos_in_noise_floors": shift, "positions_shifted_by": 1}
    if not added:
        short = "On the tokenizer: the default call of this one adds nothing; others do."
        return Settled(DEPENDS, figures, short)
    doubles = twice.count(bos) == 2 and shift > BEYOND
    return Settled(
        HOLDS if doubles else REFUTED,
        figures,
        "The default call adds a BOS; one written too is a second, and the logits move."
        if doubles
        else "A BOS written too is no second one, or it changes nothing.",
        "The default call is longer than the text, and writing BOS yourself gives two of them, "
        "without a word; the logits move.",
    )
