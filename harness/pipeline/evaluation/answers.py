"""Ask every cell: answers generated freely, the likelihood of the expected one, and what it costs."""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import torch

from harness.cache.registry import decoder as build_decoder
from harness.cache.registry import served as implementation
from harness.capture import capture, check_length
from harness.compare.soundness import Soundness
from harness.config import CacheConfig
from harness.model.ending import end_tokens
from harness.pipeline import drive, yardstick
from harness.pipeline.evaluation.cells import FULL, Cells, Kept, stacked, together
from harness.pipeline.questions.question import Question
from harness.pipeline.questions.score import scores
from harness.pipeline.session import Session
from harness.snapshot.state import State
from harness.tokenizer.policy import decode, encoder
from harness.tokenizer.shown import record

SHOWN = "said_shown"  # of an answer, where some of its ids have no text: what was said with their numbers
TIMED, STEPS = 4, 5  # prompts on which single steps are timed, and how many
Answer = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """ids: of what is prefilled, and pruned. prefix: leading ids before the text. follow: ids that are
    fed after it. expected: ids of the expected answer."""

    ids: tuple[int, ...]
    prefix: int
    follow: tuple[int, ...]
    expected: tuple[int, ...]

    @classmethod
    def of(cls, session: Session, question: Question, when: str) -> "Asked":
        """After: the question follows the pruning. Before: it is pruned with the context, but for its
        last token, which is fed to what was kept. Raises InputProblem when it is too long."""
        cfg, tokenizer = session.cfg, session.loaded.tokenizer
        policy = encoder(cfg.tokenizer)
        texts = question.context, question.asked, question.expected
        context, asks, says = policy.exchange(tokenizer, *texts)
        cut = len(context.ids) if when == "after" else -1
        whole = context.ids + asks.ids
        ids, follow = whole[:cut], whole[cut:]
        check_length(session.loaded, len(ids), len(follow) + max(len(says.ids), cfg.steps))
        return cls(ids, context.prefix, follow, says.ids)


def around(session: Session, question: Question) -> dict[str, str]:
    """What the tokenizer policy writes before the context and after the question."""
    tokenizer, policy = session.loaded.tokenizer, encoder(session.cfg.tokenizer)
    context, asks, _ = policy.exchange(
        tokenizer, question.context, question.asked, question.expected
    )
    before = decode(tokenizer, context.ids[: context.prefix])
    return {"before": before, "after": asks.text.partition(question.asked.strip())[2]}


def soundness(session: Session, question: Question, when: str) -> Soundness:
    """Whether the library's own cached path, which fills every cell, computes what this model computes
    without a cache: on one prompt and `steps` tokens after it. Raises InputProblem when it is too long."""
    place = Asked.of(session, question, when)
    row = torch.tensor([place.ids])
    captured = capture(session.loaded, row, torch.ones_like(row), {"prompt_meta": {}})
    live = drive.Uninterrupted(session.loaded, captured.live, captured.state)
    follow = torch.tensor([place.follow])
    path = drive.drive(live, session.sampler(), session.cfg.steps, follow)
    compare = session.cfg.compare
    return yardstick.measure(session.loaded, captured.state, path, compare).soundness


def answers(
    session: Session,
    cells: Cells,
    question: Question,
    when: str,
    caches: list[CacheConfig],
    timed: bool,
) -> Iterator[Answer]:
    """One flat mapping per cache and cell: where it belongs, and every measure."""
    loaded = session.loaded
    place = Asked.of(session, question, when)
    contents = list(cells.kept(session, cells.prefill(session, place.ids, place.prefix)))
    for cache in caches:
        reference = None
        for group in together(contents):
            state = stacked([one.state for one in group])
            said, margins, forced, coded = _decoded(session, state, cache, place, cells.served)
            if reference is None:  # the full cache is the first cell of the first group
                assert group[0].cell == FULL
                reference = said[0], forced[0].log_softmax(-1)
            for row, one in enumerate(group):
                text = loaded.tokenizer.decode(said[row], skip_special_tokens=True)
                numbered = record(loaded.tokenizer, {"said": said[row]}).get("shown")
                yield {
                    **one.cell.row(),
                    "cache": cache.name,
                    "asked": when,
                    "said": text,
                    "ids": said[row],
                    **({SHOWN: numbered["said"]} if numbered else {}),
                    "margin": margins[row],
                    **scores(text, question),
                    **_likelihood(forced[row].log_softmax(-1), reference[1], place.expected),
                    "divergence_step": differ(said[row], reference[0], session.cfg.steps),
                    **one.errors,
                    "kv_bytes": one.state.kv_bytes if coded else _dense_bytes(one.state),
                    "kept_tokens": one.state.kept_tokens,
                    "per_token_s": _seconds(session, one, cache, place) if timed else None,
                }


def _decoded(
    session: Session, state: State, cache: CacheConfig, place: Asked, served: set[str]
) -> tuple[list[list[int]], list[float], torch.Tensor, bool]:
    """What each row of `state` says on its own, `[rows][<= steps]`; by how much of a logit the second
    best token missed it at the nearest, `[rows]`; logits `[rows, expected, vocab]` float64 along the
    expected answer; whether the cache reads codes as they are. Which implementation served is added
    to `served`."""
    loaded = session.loaded
    rows = state.batch
    ask = torch.tensor([place.follow]).expand(rows, -1)
    runner = build_decoder(loaded, state, cache)
    held, decoded = runner.kv_bytes, _dense_bytes(state)  # codes may be larger than what they code
    coded = abs(held - state.kv_bytes) < abs(held - decoded)  # nothing is decoded for good
    last = runner.step(ask)[:, -1]
    tokens, gaps, ends = [], [], torch.tensor(sorted(end_tokens(loaded)), dtype=torch.int64)
    over = torch.zeros(rows, dtype=torch.bool)
    for step in range(session.cfg.steps):
        token = last.argmax(-1).cpu()
        tokens.append(token)
        gaps.append(last.double().topk(2).values.diff().neg()[:, 0].cpu())
        over |= torch.isin(token, ends)
        if bool(over.all()) or step + 1 == session.cfg.steps:
            break
        last = runner.step(token[:, None])[:, -1]
    served.add(implementation(runner)["served"])
    said = [_until(row, set(ends.tolist())) for row in torch.stack(tokens, 1).tolist()]
    each = torch.stack(gaps, 1).tolist()
    margins = [min(gap[: len(row) + 1]) for gap, row in zip(each, said, strict=True)]
    whole = torch.tensor([(*place.follow, *place.expected[:-1])]).expand(rows, -1)
    logits = build_decoder(loaded, state, cache).step(whole)
    forced = logits[:, -len(place.expected) :].double().cpu()
    return said, margins, forced, coded


def _until(ids: list[int], ends: set[int]) -> list[int]:
    stop = next((i for i, token in enumerate(ids) if token in ends), len(ids))
    return ids[:stop]


def _likelihood(
    cell: torch.Tensor, full: torch.Tensor, expected: tuple[int, ...]
) -> dict[str, float]:
    """nll: nats per token of the expected answer; kl: mean KL(full || cell) in nats along it. Both
    `[expected, vocab]` logarithms of probabilities."""
    wanted = torch.tensor(expected)[:, None]
    kl = (full.exp() * (full - cell)).sum(-1).clamp(min=0)
    return {"nll": float(-cell.gather(-1, wanted).mean()), "kl": float(kl.mean())}


def differ(said: list[int], full: list[int], steps: int) -> int:
    """The first step at which another token is said than by the full cache; `steps` where none is."""
    pairs = zip(said, full, strict=False)
    first = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if first is None:
        return steps if len(said) == len(full) else min(len(said), len(full))
    return first


def _dense_bytes(state: State) -> int:
    """Bytes where the cache holds decoded numbers in place of codes."""
    numbers = (t for layer in state.layers for s in layer.segments for t in (s.key, s.value))
    recurrent = sum(t.nbytes for layer in state.layers for t in layer.recurrent.values())
    return sum(t.numel() * t.dtype.itemsize for t in numbers) + recurrent


def _seconds(session: Session, one: Kept, cache: CacheConfig, place: Asked) -> float:
    """Median seconds of single steps of this cell alone."""
    runner, seconds = build_decoder(session.loaded, one.state, cache), []
    for token in (place.follow + place.expected + place.follow)[:STEPS]:
        start = time.perf_counter()
        runner.step(torch.tensor([[token]])).cpu()  # waits for the device
        seconds.append(time.perf_counter() - start)
    return median(seconds[1:] or seconds)
