"""Why a case has its verdict: a code and its arguments, and the one sentence that is shown of each code."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.engine import Answer
from harness.engine.base import Prompt, most

FLUSH = "engine.flush=COMMAND gives one, or a server that honours cache_salt"
SENTENCES = {
    "exact": "every log-probability is bit-equal to the cold run's",
    "within": "{rule}",
    "beyond": "{rule}; every token is the same",
    "other_token": "token {token} after the cache is another one; {rule}",
    "ended_early": "it ended after {steps} tokens, the cold run went on for {missing} more",
    "apart_from_hit": "{gap:.3g} nats from the hit, which its own repeats allow {floor:.3g} of twice; {rule}",
    # nothing can be said
    "no_token": "no run said a single token",
    "ended_at_once": "the cold run ended before its first token, so there is nothing to compare: take another prompt",
    "reuse_unsaid": "the engine does not say how many tokens it reused",
    "cold_unsaid": "the engine does not say how many tokens it reused, and time cannot tell, for want of a cold request "
    f"that can be repeated: {FLUSH}",
    "nothing_reused": "nothing was reused: the engine evaluated every token again, so this says nothing about its cache",
    "reused_less": "{reused} tokens were reused, {hit} in the hit: it was not brought back whole, so this says nothing "
    "about what was",
    "impossible_count": "of a prompt of at most {most} tokens the engine says that it reused {reused}: what counts wrong "
    "does not tell what was reused",
    "not_cold": "runs that should be cold reused tokens: {runs}",
    "never_cold": "no cold run can be had, which is itself suspicious: of a prompt whose first {head} tokens were never "
    "sent before the server says that it reused {counts} tokens. It counts wrong, or it answers from the state of "
    "another prompt",
    "control_passed": "the control {control}, a wrong state, passed as {verdict}: {gap:.3g} nats from the right one, noise "
    "floor {floor:.3g}. What does not tell them apart tells nothing, so no case of this report counts. The engine "
    "answers every prompt alike, or with the batch, or the prompt is too short or too uniform",
    # float64 beside the engine
    "float64_absent": "{why}",
    "float64_text": "{where}: not used, since {what} as text. prompt.ids=[...] sends ids, where the server takes them",
    "float64_near": "{where}: cold runs are within {plain:.3g} nats of it",
    "float64_coarse": "{where}: {plain:.3g} nats from the engine's own cold runs, which are within {floor:.3g} of each "
    "other: it computes in coarser numbers than float64 opens its weights to{kept}. The noise floor decides",
    "float64_elsewhere": "{where}: {plain:.3g} nats from the engine's own cold runs, as far as a wrong state: other "
    "weights than it runs, or numbers as coarse{kept}. The noise floor decides",
}  # fmt: skip
NARROW = (
    " (no prompt was cold twice, so the floor has not seen how a call of few tokens rounds: if the difference "
    "may be that, engine.flush=COMMAND tells)"
)


@dataclass(frozen=True)
class Reason:
    """code: a key of SENTENCES. args: its figures, plain values. narrow: see `Yardstick.narrow`."""

    code: str
    args: dict[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        text = SENTENCES[self.code].format(rule=_rule(self.args), **self.args)
        return text + NARROW * bool(self.args.get("narrow"))

    @property
    def fields(self) -> dict[str, Any]:
        """As a row holds it."""
        return {"code": self.code, "args": self.args, "reason": str(self)}


def impossible(answers: Sequence[Answer], prompt: Prompt) -> Reason | None:
    """Of the first answer whose engine says that it reused fewer than no tokens, or more than it read."""
    for count in (a.reused for a in answers):
        if count is not None and not 0 <= count <= most(prompt):
            return Reason("impossible_count", {"reused": count, "most": most(prompt)})
    return None


def _rule(args: dict[str, Any]) -> str:
    """What the difference was held to."""
    if "difference" not in args:
        return ""
    rule = (
        f"largest difference {args['difference']:.3g} nats, noise floor {args['noise_floor']:.3g}"
    )
    if args.get("error") is None:
        return rule
    return f"{rule}; error {args['error']:.3g} nats against float64, without the cache {args['plain']:.3g}"
