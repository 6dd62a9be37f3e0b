"""Does re-tokenized history agree with the ids that were sampled?"""

from dataclasses import replace

from harness.config import SamplingConfig
from harness.errors import UnsupportedModel
from harness.model.sampler import Sampler
from harness.task.claim.bench import DEPENDS, HOLDS, REFUTED, Bench, Settled
from harness.task.talk.dialogue import Dialogue

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


def settle(bench: Bench) -> Settled:
    try:
        greedy, first = _mismatches(bench, SamplingConfig("greedy"))
        warm, named = _mismatches(bench, SamplingConfig("sample", 1.6, seed=3))
    except UnsupportedModel as problem:
        return Settled(DEPENDS, {"template": False}, str(problem))
    turns = len(ASK) * 2
    drifts = greedy + warm > 0
    return Settled(
        DEPENDS if drifts and greedy == 0 else REFUTED if greedy else HOLDS,
        {
            "turns": turns,
            "greedy_turns_that_disagree": greedy,
            "sampled_turns_that_disagree": warm,
            "first_disagreement": str(named or first),
        },
        "The second half holds: an answer that was sampled piece by piece, or that lost a space in "
        "the template, is tokenized differently when it is rendered again, and then a slice at the "
        "cursor sends the wrong ids. The first half is true only as long as that has not happened, "
        "so the prefix must be compared before every slice."
        if drifts
        else "No answer was tokenized differently when it was rendered again.",
        f"{turns} turns greedy, {turns} at temperature 1.6; repaired each time by the true ids",
    )


def _mismatches(bench: Bench, sampling: SamplingConfig) -> tuple[int, object]:
    session = replace(bench.session, cfg=replace(bench.session.cfg, sampling=sampling))
    chat = Dialogue(session, Sampler(sampling, 3))
    turns = [chat.ask(text, 12) for text in ASK * 2]
    found = [t.mismatch for t in turns if t.mismatch is not None]
    return len(found), found[0] if found else None
