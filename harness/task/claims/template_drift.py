"""Does re-tokenized history agree with the ids that were sampled?"""

from dataclasses import replace

import torch

from harness.config import SamplingConfig
from harness.errors import UnsupportedModel
from harness.pipeline.dialogue import Dialogue
from harness.report.claims import Layout
from harness.task.claims.bench import DEPENDS, HOLDS, REFUTED, Bench, Settled, claim

CLAIM = (
    "Slicing the re-rendered template at `cp` is safe; re-tokenized history can disagree with the "
    "ids that were sampled."
)
ASK = (
    "let k be 5 .",
    "what is k ?",
    "the bird sang .",
    "what is k ?",
    "let m be 7 .",
    "what is m ?",
)


HEAT = (1.0, 3.0, 9.0)
LAYOUT = Layout(
    {
        "template": "the model has a chat template",
        "turns_each": "turns of each chat",
        "greedy_turns_that_disagree": "turns of a greedy chat that disagree",
        "random_answers_that_do_not_survive_decoding": "random answers that do not survive decoding, share",
        "first_disagreement": "first disagreement",
    },
    "temperature",
    {f"{t:g}": f"{t:g}" for t in HEAT},
    {"turns_that_disagree_at_temperature_{}": "turns that disagree"},
)


@claim(CLAIM, LAYOUT)
def template_drift(bench: Bench) -> Settled:
    try:
        greedy, _ = _mismatches(bench, SamplingConfig("greedy"))
        warm = {t: _mismatches(bench, SamplingConfig("sample", t, seed=3)) for t in HEAT}
    except UnsupportedModel as problem:
        return Settled(DEPENDS, {"template": False}, "On the model: no chat.", str(problem))
    disagree = sum(count for count, _ in warm.values())
    named = next((str(first) for _, first in warm.values() if first), "none")
    verdict = REFUTED if greedy else DEPENDS if disagree else HOLDS
    return Settled(
        verdict,
        {
            "turns_each": len(ASK) * 2,
            "greedy_turns_that_disagree": greedy,
            **{
                f"turns_that_disagree_at_temperature_{t:g}": count for t, (count, _) in warm.items()
            },
            "random_answers_that_do_not_survive_decoding": _unstable(bench),
            "first_disagreement": named,
        },
        {
            REFUTED: "A slice is not safe: even a greedy chat is tokenized otherwise when it is rendered again.",
            DEPENDS: "On the sampling: a greedy chat agreed with its ids, at high temperatures answers do not.",
            HOLDS: "No answer was tokenized otherwise when it was rendered again.",
        }[verdict],
        "The second half holds: ids that were sampled piece by piece can be tokenized otherwise when "
        "the history is rendered again, and then a slice at the cursor sends the wrong ids. The "
        "first half is true only as long as that has not happened, which a greedy chat may never "
        "show: so the prefix is compared before every slice."
        if disagree
        else "",
        "every disagreement was repaired by the true ids; random answers are 8 uniform ids each",
    )


def _unstable(bench: Bench) -> float:
    """Share of 200 random 8-token answers whose text is tokenized into other ids."""
    tokenizer, generator = bench.tokenizer, torch.Generator().manual_seed(0)
    special = set(tokenizer.all_special_ids)
    plain = torch.tensor([i for i in range(len(tokenizer)) if i not in special])
    changed = 0
    for _ in range(200):
        ids = plain[torch.randint(len(plain), (8,), generator=generator)].tolist()
        changed += tokenizer(tokenizer.decode(ids), add_special_tokens=False)["input_ids"] != ids
    return changed / 200


def _mismatches(bench: Bench, sampling: SamplingConfig) -> tuple[int, object]:
    """Turns of a chat whose re-rendered history was not what had been processed, and the first."""
    session = replace(bench.session, cfg=replace(bench.session.cfg, sampling=sampling))
    chat = Dialogue(session, session.sampler())
    turns = [chat.ask(text, 12) for text in ASK * 2]
    mismatches = [t.mismatch for t in turns if t.mismatch is not None]
    return len(mismatches), mismatches[0] if mismatches else None
