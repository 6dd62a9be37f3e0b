"""Claims about positions: cursors, restarts, pads, prefixes, batches, tokens that nobody asked for."""

from typing import Any

import torch

from harness.capture import static_cache
from harness.pipeline.testbed import QUESTION, SYSTEM, conversation
from harness.report.claims import Layout
from harness.task.claims.bench import (
    BEYOND,
    DEPENDS,
    HOLDS,
    REFUTED,
    TEXT,
    Bench,
    Settled,
    claim,
    same_top,
)
from harness.tokenizer.policy import encode

SHIFTS = {
    "{}_shift_in_noise_floors": "shift, noise floors",
    "{}_top1_agreement": "tokens with the same most likely next one, share",
}


@claim(
    "Token count, not turn count, is the position.",
    Layout(
        {
            "tokens_so_far": "tokens so far",
            "turns_so_far": "turns so far",
            "token_count_shift_in_noise_floors": "shift when resumed at the token count, noise floors",
            "turn_count_shift_in_noise_floors": "shift when resumed at the turn count, noise floors",
        }
    ),
    {
        HOLDS: "Only resumed at the token count are the logits those of one uninterrupted pass.",
        REFUTED: "The token count does not give the logits of one uninterrupted pass, or the turn count does too.",
    },
    "Resumed at the number of tokens, the logits are those of one uninterrupted pass; at the number of turns "
    "they are not.",
)
def cursor(bench: Bench) -> Settled:
    lengths, ids = (24, 17, 30), bench.ids(88)
    end, whole = sum(lengths), bench.prefilled(ids)[1]

    def resumed(position: int) -> float:
        cache, _ = bench.prefilled(ids[:, :end])
        return bench.shift(bench.step(cache, ids[:, end:], position)[:, -1], whole)

    by_tokens, by_turns = resumed(end), resumed(len(lengths))
    figures = {
        "tokens_so_far": end,
        "turns_so_far": len(lengths),
        "token_count_shift_in_noise_floors": by_tokens,
        "turn_count_shift_in_noise_floors": by_turns,
    }
    return Settled(HOLDS if by_tokens <= BEYOND < by_turns else REFUTED, figures)


@claim(
    "Wrong absolute positions corrupt the output without any error.",
    Layout(
        {"errors_raised": "errors raised"},
        "positions of the new tokens",
        {"one_too_far": "one too far", "one_too_near": "one too near", "from_zero": "from zero", "far": "far beyond"},
        SHIFTS,
    ),
    {
        HOLDS: "Every wrong position changes the logits, and none raises an error.",
        REFUTED: "A wrong position raises an error, or changes nothing.",
    },
    "Every wrong position gives other logits and none gives an error.",
    "16 tokens fed after 64; a library cache; positions passed explicitly",
)  # fmt: skip
def position_fault(bench: Bench) -> Settled:
    ids = bench.ids(80)
    right = bench.step(bench.prefilled(ids[:, :64])[0], ids[:, 64:], 64)
    figures: dict[str, Any] = {"errors_raised": 0}
    moved = []
    ways = {"one_too_far": 65, "one_too_near": 63, "from_zero": 0, "far": 200}
    for name, position in ways.items():
        try:
            wrong = bench.step(bench.prefilled(ids[:, :64])[0], ids[:, 64:], position)
        except (RuntimeError, IndexError):
            figures["errors_raised"] += 1
            continue
        moved.append(bench.shift(wrong, right))
        figures[f"{name}_shift_in_noise_floors"] = moved[-1]
        figures[f"{name}_top1_agreement"] = same_top(wrong, right)
    silent = figures["errors_raised"] == 0 and min(moved) > BEYOND
    return Settled(HOLDS if silent else REFUTED, figures)


@claim(
    "Positions may restart per turn.",
    Layout(
        {"noise_floor_logits": "noise floor, logits"},
        "turn",
        {f"turn_{turn}": f"turn {turn}" for turn in (2, 3, 4)},
        SHIFTS,
    ),
    {
        REFUTED: "From the second turn on, positions that restart give the logits of another text.",
        HOLDS: "Positions that restart give the same logits in some turn.",
    },
    "From the second turn on the logits are those of another text: keys of all turns share the same few positions.",
    "4 turns of 24 tokens",
)
def position_reset(bench: Bench) -> Settled:
    turns, length = 4, 24
    ids = bench.ids(turns * length)
    right, wrong = bench.prefilled(ids[:, :length])[0], bench.prefilled(ids[:, :length])[0]
    figures, shifts = {"noise_floor_logits": bench.noise}, []
    for turn in range(1, turns):
        part = ids[:, turn * length : (turn + 1) * length]
        absolute = bench.step(right, part, turn * length)
        restarted = bench.step(wrong, part, 0)
        shifts.append(bench.shift(restarted, absolute))
        figures[f"turn_{turn + 1}_shift_in_noise_floors"] = shifts[-1]
        figures[f"turn_{turn + 1}_top1_agreement"] = same_top(restarted, absolute)
    return Settled(REFUTED if min(shifts) > BEYOND else HOLDS, figures)


@claim(
    "Batch > 1 hides position faults by averaging.",
    Layout(
        {"faulty_row_alone_shift": "shift of the faulty row alone, noise floors"},
        "rows of the batch",
        {"2": "2", "4": "4", "8": "8"},
        {
            "batch_{}_faulty_row_shift": "shift of the faulty row",
            "batch_{}_healthy_rows_shift": "largest shift of the others",
            "batch_{}_mean_over_rows": "mean over all rows",
        },
    ),
    {
        DEPENDS: "On the metric: a mean over the rows hides the fault, the largest difference shows it.",
        REFUTED: "The faulty row moves as far in a batch as alone.",
        HOLDS: "The faulty row moves less in a batch than alone.",
    },
    "The model averages nothing: the faulty row moves as far in a batch as alone, and the other rows do not move. "
    "Only a metric that takes the mean over the batch divides the fault by the number of rows; the largest "
    "difference, which this harness judges by, does not.",
    "shifts in noise floors; one row of the batch has its positions one too far",
)
def batch_masking(bench: Bench) -> Settled:
    ids = bench.ids(80)

    def shifts_of(rows: int) -> list[float]:
        batch = ids.expand(rows, -1)
        positions = 64 + torch.arange(16, device=ids.device).expand(rows, -1).clone()

        def logits() -> torch.Tensor:
            cache, _ = bench.prefilled(batch[:, :64])
            return bench.loaded.forward(batch[:, 64:], positions, None, cache)

        right = logits()
        positions[0] += 1
        wrong = logits()
        return [bench.shift(wrong[i], right[i]) for i in range(rows)]

    alone = shifts_of(1)[0]
    figures, diluted, faulty = {"faulty_row_alone_shift": alone}, [], []
    for rows in (2, 4, 8):
        shifts = shifts_of(rows)
        faulty.append(shifts[0])
        figures[f"batch_{rows}_faulty_row_shift"] = shifts[0]
        figures[f"batch_{rows}_healthy_rows_shift"] = max(shifts[1:])
        figures[f"batch_{rows}_mean_over_rows"] = sum(shifts) / rows
        diluted.append(sum(shifts) / alone)
    visible = min(faulty) > BEYOND and abs(min(faulty) / alone - 1) < 0.05
    averages = max(abs(d - 1) for d in diluted) < 0.25
    return Settled(DEPENDS if visible and averages else REFUTED if visible else HOLDS, figures)


@claim(
    "Priming a cache with pad tokens is neutral, or poisons it: the notes say both.",
    Layout(
        {"pads": "pad tokens", "prompt_tokens": "tokens of the prompt"},
        "pads before the prompt",
        {
            "attended": "attended to, positions go on",
            "attended_positions_from_zero": "attended to, positions from zero",
            "masked_positions_go_on": "masked out, positions go on",
            "masked_positions_from_zero": "masked out, positions from zero",
            "reset_after_priming": "wiped by reset()",
        },
        SHIFTS,
    ),
    {
        DEPENDS: "On the mask: pads that are attended to poison it; masked out or wiped they change nothing.",
        REFUTED: "In every way tried here the pads change the logits.",
        HOLDS: "In no way tried here do the pads change the logits.",
    },
    "Both notes are right about their own case. Pads that stay in the cache and may be attended to poison it, "
    "wherever the positions start. Pads that are masked out, with the prompt at its own positions, or that are wiped "
    "by reset() before the prompt, change nothing beyond the noise: then priming only allocates memory.",
    "a static cache, primed as the script in those notes does it",
)
def priming(bench: Bench) -> Settled:
    limit, tokens = bench.loaded.max_positions or 4096, 48
    pads = min(getattr(bench.session.cfg.cache, "pad_prime", 0) or 1024, limit // 2 - 64)
    ids = bench.ids(tokens)
    pad = bench.tokenizer.pad_token_id or bench.tokenizer.eos_token_id or 0
    prime = torch.full((1, pads), pad, dtype=ids.dtype, device=ids.device)

    def primed(offset: int, masked: bool) -> torch.Tensor:
        cache = static_cache(bench.loaded, pads + tokens)
        bench.step(cache, prime, 0)
        mask = torch.ones(1, pads + tokens, dtype=torch.int64, device=ids.device)
        mask[:, :pads] = int(not masked)
        return bench.step(cache, ids, offset, mask)

    def reset() -> torch.Tensor:
        cache = static_cache(bench.loaded, pads + tokens)
        bench.step(cache, prime, 0)
        cache.reset()
        return bench.step(cache, ids, 0)

    clean = bench.step(static_cache(bench.loaded, tokens), ids, 0)
    ways = {
        "attended": primed(pads, False),
        "attended_positions_from_zero": primed(0, False),
        "masked_positions_go_on": primed(pads, True),
        "masked_positions_from_zero": primed(0, True),
        "reset_after_priming": reset(),
    }
    figures: dict[str, Any] = {"pads": pads, "prompt_tokens": tokens}
    shifts = []
    for name, logits in ways.items():
        shifts.append(bench.shift(logits[:, -1], clean[:, -1]))
        figures[f"{name}_shift_in_noise_floors"] = shifts[-1]
        figures[f"{name}_top1_agreement"] = same_top(logits, clean)
    poisons, neutral = max(shifts) > BEYOND, min(shifts) <= BEYOND
    return Settled(DEPENDS if poisons and neutral else REFUTED if poisons else HOLDS, figures)


@claim(
    "Losing or doubling the system prefix shifts intent and positions.",
    Layout(
        {"prefix_tokens": "tokens of the prefix", "tokens": "tokens in all"},
        "the prefix is",
        {"lost": "lost", "doubled": "doubled"},
        {
            **SHIFTS,
            "{}_positions_shifted_by": "positions move by",
            "{}_kl_of_the_answer": "KL of the answer's first token, nats",
        },
    ),
    {
        HOLDS: "Lost or doubled, it moves every later position and what is said next.",
        REFUTED: "Lost or doubled, it leaves the logits where they were.",
    },
    "Every later position moves by the length of the prefix, and the distribution of the answer moves with it.",
    f"the chat begins with {SYSTEM!r} where the template takes a system turn",
)
def prefix_fault(bench: Bench) -> Settled:
    chat = conversation(bench.tokenizer)
    prefix, question = max(chat.prefix, 1), encode("raw", bench.tokenizer, " " + QUESTION).ids
    whole = torch.tensor([[*chat.ids, *question]]).to(bench.loaded.device)
    ways = {"lost": whole[:, prefix:], "doubled": torch.cat([whole[:, :prefix], whole], dim=1)}

    def forward(ids: torch.Tensor) -> torch.Tensor:
        return bench.loaded.forward(ids, torch.arange(ids.shape[1])[None].to(ids.device))

    expected, tail = forward(whole), whole.shape[1] - prefix
    figures: dict[str, Any] = {"prefix_tokens": prefix, "tokens": whole.shape[1]}
    shifts = []
    for name, ids in ways.items():
        logits = forward(ids)
        shifts.append(bench.shift(logits[:, -tail:], expected[:, -tail:]))
        figures[f"{name}_shift_in_noise_floors"] = shifts[-1]
        figures[f"{name}_top1_agreement"] = same_top(logits[:, -tail:], expected[:, -tail:])
        figures[f"{name}_positions_shifted_by"] = ids.shape[1] - whole.shape[1]
        gap = (logits[:, -1].log_softmax(-1) - expected[:, -1].log_softmax(-1))[0]
        figures[f"{name}_kl_of_the_answer"] = float(-(expected[:, -1].softmax(-1)[0] * gap).sum())
    return Settled(HOLDS if min(shifts) > BEYOND else REFUTED, figures)


@claim(
    "Default tokenizer calls add BOS/EOS behind your back; adding BOS again doubles it and shifts every position.",
    Layout(
        {
            "ids_of_the_text": "ids of the text",
            "ids_of_the_default_call": "ids of the default call",
            "added_behind_your_back": "ids added behind your back",
            "bos_written_once_more_gives": "BOS tokens when one is written too",
            "shift_of_a_doubled_bos_in_noise_floors": "shift of a doubled BOS, noise floors",
            "positions_shifted_by": "positions move by",
        }
    ),
    {
        HOLDS: "The default call adds a BOS; one written too is a second, and the logits move.",
        REFUTED: "A BOS written too is no second one, or it changes nothing.",
    },
    "The default call is longer than the text, and writing BOS yourself gives two of them, without a word; the "
    "logits move.",
)
def special_tokens(bench: Bench) -> Settled:
    tokenizer, bos = bench.tokenizer, bench.tokenizer.bos_token_id
    plain = tokenizer(TEXT, add_special_tokens=False)["input_ids"]
    default = tokenizer(TEXT)["input_ids"]
    twice = tokenizer((tokenizer.bos_token or "") + TEXT)["input_ids"]
    figures = {
        "ids_of_the_text": len(plain),
        "ids_of_the_default_call": len(default),
        "added_behind_your_back": len(default) - len(plain),
        "bos_written_once_more_gives": twice.count(bos) if bos is not None else None,
    }
    if bos is None:
        return Settled(DEPENDS, figures, "On the tokenizer: this one has no BOS at all.")
    one, two = (bench.ids(1).new_tensor([[*[bos] * count, *plain]]) for count in (1, 2))
    shift = bench.shift(bench.prefilled(two)[1], bench.prefilled(one)[1])
    figures |= {"shift_of_a_doubled_bos_in_noise_floors": shift, "positions_shifted_by": 1}
    if len(default) == len(plain):
        short = "On the tokenizer: the default call of this one adds nothing; others do."
        return Settled(DEPENDS, figures, short)
    return Settled(HOLDS if twice.count(bos) == 2 and shift > BEYOND else REFUTED, figures)
