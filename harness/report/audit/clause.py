"""What an audit found again, in a clause: of the runs that were judged, of those that were refused and that failed."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness import machine
from harness.report.audit.figures import CAME, exact, listed
from harness.snapshot.result import ORDER, UNJUDGED


def reproduced(document: Mapping[str, Any], runs: bool = False) -> str:
    """What was compared and found again, in a clause for the runs that were judged, one for those that were refused,
    one for those that failed. runs: says of how many."""
    entries = list((document.get("evidence") or {}).values())
    count = {word: sum(e.get("came") == word for e in entries) for word in CAME}
    judged = int(document.get("points", 1)) - sum(count.values())
    left_out = document.get("uncompared")

    def of(number: int) -> str:
        return f" of {machine.many(number, 'run')}" * runs

    said = []
    if judged:
        ended = [e for e in entries if not e.get("came")]
        each = "answer" if ended and all(e.get("answers") for e in ended) else "token"
        whole = "what was compared" if left_out else f"every figure and {each}"
        how = document["compared"]
        if exact(document):
            said.append(f"{whole}{of(judged)} is reproduced, {how}{answers(ended)}")
        else:
            said.append(f"what was compared{of(judged)} is reproduced: {within(entries)}")
        said[-1] += verdicts(entries)
    rounded = ", numbers within their stated bounds" * (not exact(document))
    if refused := [e for e in entries if e.get("came") == "refused"]:
        named = [what for what in refused[0]["named"] if all(what in e["named"] for e in refused)]
        said.append(
            f"the refusal{of(len(refused))} is reproduced: the same {listed(named)}{rounded}"
        )
    if count["failed"]:
        said.append(f"the failure{of(count['failed'])} is reproduced: it fails again")
    if left_out:
        said.append(f"not compared: {', '.join(left_out)}")
    return "; ".join(said)


def answers(entries: Sequence[Mapping[str, Any]]) -> str:
    """How many answers and figures evaluations have; nothing of other runs."""
    asked = [e for e in entries if e.get("answers")]
    counts = [(sum(e[key] for e in asked), key[:-1]) for key in ("answers", "figures")]
    return f" ({', '.join(machine.many(*count) for count in counts)})" if asked else ""


def verdicts(entries: Sequence[Mapping[str, Any]]) -> str:
    """Which verdicts were found again, of the runs that have one; nothing of reports that do not say."""
    ended = [e for e in entries if not e.get("came")]
    words, alone = [[e.get(key) for e in ended] for key in ("verdict", "restore")]
    tally, back = (
        {word: some.count(word) for word in ORDER if word in some and word != UNJUDGED}
        for some in (words, alone)
    )
    if not tally:
        return ""
    if len(words) == 1:
        apart = f"s: restore {alone[0]}, against the full cache {words[0]}"
        return f" (the verdict{apart if back else f': {words[0]}'})"
    said, restores = (
        ", ".join(f"{n} {word}" for word, n in some.items()) for some in (tally, back)
    )
    return f" (the verdicts: {said}{f'; of the restores alone: {restores}' * bool(back)})"


def within(entries: Sequence[Mapping[str, Any]]) -> str:
    """How many figures and tokens of runs that were judged elsewhere are the same, and what the others are."""
    judged = [e for e in entries if not e.get("came")]
    every, same, tokens = (sum(e.get(key) or 0 for e in judged) for key in ("figures", "same", "tokens"))  # fmt: skip
    if not every:
        return "figures within their stated bounds"
    count = f"all {every:,}" if same == every else f"{same:,} of {every:,}"
    said, alike = (sum(e.get(key) or 0 for e in judged) for key in ("answers", "same_answers"))
    share = f"all {said:,}" if alike == said else f"{alike:,} of {said:,}"
    told = (
        f"all {tokens:,} tokens and " * bool(tokens)
        + f"{share} answers and " * bool(said)
        + f"{count} figures are the same to the last digit"
    )
    return (
        told if (same, alike) == (every, said) else f"{told}, the others within their stated bounds"
    )
