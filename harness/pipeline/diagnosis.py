"""Diagnose a restored state: recompute what its token buffer gives, and let `compare` explain."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch

from harness.compare import diagnosis
from harness.compare.diagnosis import Diagnosis
from harness.compare.identity import Difference
from harness.compare.likeness import Pair
from harness.compare.picture import MARGIN, Recomputed
from harness.model.experts import experts
from harness.model.loaded import Loaded
from harness.pipeline.answer import over_itself
from harness.pipeline.judge import Judgement
from harness.pipeline.noise import largest, noise
from harness.present.messages import worded
from harness.snapshot.result import GOOD, UNJUDGED
from harness.snapshot.state import LayerState, State


def diagnose(
    loaded: Loaded,
    state: State,
    differences: Sequence[Any] = (),
    faults: Sequence[str] = (),
    unsound: str = "",
    fed: torch.Tensor | None = None,
    right: Recomputed | None = None,
) -> Diagnosis:
    """What is wrong with `state`, which was restored on `loaded`: its cause, where, and the evidence.

    differences: of identity, found or waived. faults: what a reader of the snapshot said. unsound:
    the plain path that left its bound, if one did. fed: `[batch, n]` ids fed afterwards, among which
    a router may have met a tie. right: what `recompute` gave, to be paid once. Mutates nothing.
    """
    if unsound:
        return Diagnosis("library", "kv_cache", unsound)
    said = (
        diagnosis.refusal(differences)
        or diagnosis.documented(state)
        or diagnosis.refusal((), faults)
    )
    if said:
        return said
    history = state.documents["kv_format"].get("pruned") or []
    if any(stage.get("positions") == "reindexed" for stage in history):
        return Diagnosis("block", "kv_cache", diagnosis.dropped(state))
    state = state.to(loaded.device)
    right = right or recompute(loaded, state.token_ids, state.attention_mask)
    explanation = diagnosis.explain(state, right)
    if explanation.cause == "logits" and state.quantized and _from_codes(loaded, state, right):
        explanation = replace(
            explanation, cause="rounding", element="kv_cache", evidence=diagnosis.CODED
        )
    if explanation.layer is not None or explanation.cause != "rounding":
        return explanation
    if history:
        evidence = diagnosis.dropped(state)
        return Diagnosis("block", "kv_cache", evidence, picture=explanation.picture)
    if fed is not None and (tie := _tie_after(loaded, state, fed)):
        where = f"the router of layer {tie[0]} ties at token {tie[1]}"
        evidence = f"{where}; {explanation.evidence} of the state"
        return Diagnosis("routing", "model_config", evidence, picture=explanation.picture)
    return explanation


def _from_codes(loaded: Loaded, state: State, right: Recomputed) -> bool:
    """Whether the stored logits are those that follow what the codes say, as where it was continued since."""
    own = over_itself(loaded, state)
    return (
        own is not None
        and largest(own.double() - state.logits.double()) <= MARGIN * right.logits_floor
    )


def diagnosed(
    judgement: Judgement,
    loaded: Loaded,
    state: State,
    waived: Sequence[Difference],
    fed: torch.Tensor,
    cache: str = "",
) -> Judgement:
    """`judgement` with the diagnosis of a run from `state`, restored on `loaded` and fed `fed` `[rows, n]`.

    cache: the option that it went on with, where that is meant to lose nothing: what leaves the noise
    although the state does not is its doing. Mutates nothing.
    """
    told = _why(judgement, loaded, state, waived, fed, cache)
    return replace(judgement, diagnosis=told.document())


def _parted(judgement: Judgement) -> bool:
    """Whether a cache does not go on with a pruned or a quantized state as another does."""
    return judgement.itself.get("verdict", UNJUDGED) not in (*GOOD, UNJUDGED)


def _why(
    judgement: Judgement,
    loaded: Loaded,
    state: State,
    waived: Sequence[Difference],
    fed: torch.Tensor,
    cache: str,
) -> Diagnosis:
    if judgement.diagnosis:  # the judge saw it already
        return Diagnosis(**judgement.diagnosis)
    unsound = worded(judgement.reason, plain=True) if judgement.verdict == "unsound" else ""
    told = diagnose(
        loaded, state, waived, unsound=unsound, fed=fed if len(fed) == state.batch else None
    )
    meant = (diagnosis.NOTHING, diagnosis.COARSE, diagnosis.CODED, diagnosis.dropped(state))
    itself = judgement.itself  # of a state that came back bit for bit no K/V is to blame
    if _parted(judgement) and (
        told.evidence.startswith(meant) or itself.get("cause") == "identity"
    ):
        cause, element = itself.get("cause", "cache"), itself.get("element", told.element)
        return replace(
            told, cause=cause, element=element, evidence=worded(itself["reason"], plain=True)
        )
    gap, floor = judgement.metrics["max_abs_diff"], judgement.noise["max_abs_diff"]
    if not cache or told.evidence != diagnosis.NOTHING or gap <= floor:
        return told
    if gap <= MARGIN * floor:
        far = f"its logits do, off by {gap:.3g}, the noise is {floor:.3g}"
        evidence = (
            f"nothing leaves the noise of the restored state, but {far}: what cache={cache} makes of it, or a change too "
            "small to be told from rounding"
        )
        return replace(told, evidence=evidence)
    evidence = (
        f"nothing leaves the noise of the restored state; what cache={cache} makes of it, or the model keeps outside of "
        f"its cache, does: its "
        f"logits are off by {gap:.3g}, the noise is {floor:.3g}"
    )
    return replace(told, cause="cache", evidence=evidence)


def recompute(loaded: Loaded, ids: torch.Tensor, mask: torch.Tensor) -> Recomputed:
    """What `ids` `[batch, tokens]` give, each row alone and unpadded (mask 0 is left padding), with
    the noise that other splits of the same prefill make of it."""
    rows = [_row(loaded, ids[i : i + 1, mask[i] != 0]) for i in range(len(ids))]
    return rows[0] if len(rows) == 1 else _joined(rows)


def _row(loaded: Loaded, ids: torch.Tensor) -> Recomputed:
    count = ids.shape[1]
    with routed(loaded) as choices:
        measured = noise(loaded, ids)
    return Recomputed(
        [_whole(la, count) if la.segments else None for la in measured.layers],
        [la.recurrent for la in measured.layers],
        measured.tensors,
        measured.logits,
        measured.last,
        tuple(_ties(loaded, choices, count)),
        measured.spread,
    )


def _whole(layer: LayerState, count: int) -> Pair:
    """Key and value with a row for every position; zeros where a sliding layer let go of it."""
    front = (0, 0, count - layer.kept, 0)
    return torch.nn.functional.pad(layer.key, front), torch.nn.functional.pad(layer.value, front)


def _joined(rows: list[Recomputed]) -> Recomputed:
    """Rows of several lengths side by side, short ones filled up behind their last position."""

    def stacked(tensors: list[torch.Tensor]) -> torch.Tensor:
        longest = max(t.shape[2] for t in tensors)
        return torch.cat(
            [torch.nn.functional.pad(t, (0, 0, 0, longest - t.shape[2])) for t in tensors]
        )

    first, layers = rows[0], range(len(rows[0].kv))

    def beside(layer: int) -> Pair | None:
        pairs = [pair for r in rows if (pair := r.kv[layer]) is not None]
        return (stacked([k for k, _ in pairs]), stacked([v for _, v in pairs])) if pairs else None

    kv = [beside(i) for i in layers]
    return Recomputed(
        kv,
        [
            {n: _beside([r.recurrent[i][n] for r in rows]) for n in first.recurrent[i]}
            for i in layers
        ],
        [{n: max(r.floors[i][n] for r in rows) for n in first.floors[i]} for i in layers],
        torch.cat([r.logits for r in rows]),
        max(r.logits_floor for r in rows),
        [tie for r in rows for tie in r.ties],
        [{n: max(r.spread[i][n] for r in rows) for n in first.spread[i]} for i in layers],
    )


def _beside(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Recurrent tensors of several rows as one; an index over the keys, `[1, tokens, ...]`, is as long as
    its row, and NaN, which is compared with nothing, stands before a short one."""
    if len({t.shape for t in tensors}) == 1:
        return torch.cat(tensors)
    joined = tensors[0].new_full(
        (len(tensors), max(t.shape[1] for t in tensors), *tensors[0].shape[2:]),
        torch.nan,
        dtype=torch.float64,
    )
    for row, tensor in zip(joined, tensors, strict=True):
        row[-tensor.shape[1] :] = tensor[0]
    return joined


@contextmanager
def routed(loaded: Loaded) -> Iterator[dict[int, list[torch.Tensor]]]:
    """Scores `[tokens, experts]` that every router gives while this lasts, by layer; none where the
    model has no routers. Hooks are removed again."""
    count, _ = experts(loaded.text_config)
    heard: dict[int, list[torch.Tensor]] = {}
    hooks = []
    for path, module in loaded.model.named_modules() if count else ():
        if path.rpartition(".")[2] not in ("gate", "router"):
            continue
        layer = next((int(part) for part in path.split(".") if part.isdigit()), 0)

        def hear(_: Any, __: Any, out: Any, layer: int = layer) -> None:
            outs = out if isinstance(out, tuple) else (out,)
            scores = [t for t in outs if torch.is_tensor(t) and t.shape[-1:] == (count,)]
            if scores and scores[0].is_floating_point():
                heard.setdefault(layer, []).append(scores[0].reshape(-1, count))

        hooks.append(module.register_forward_hook(hear))
    try:
        yield heard
    finally:
        for hook in hooks:
            hook.remove()


def _ties(
    loaded: Loaded, choices: dict[int, list[torch.Tensor]], count: int
) -> Iterator[tuple[int, int]]:
    """`(layer, token)` where the last expert chosen leads the next one by no more than the noise."""
    k = experts(loaded.text_config)[1] or 1
    for layer, parts in sorted(choices.items()):
        every = torch.cat(parts)
        if len(every) % count or len(every) == count or k >= every.shape[-1]:
            continue
        runs = every.view(-1, count, every.shape[-1]).double()
        noise = MARGIN * float((runs - runs[:1]).abs().max())
        ranked = runs[0].sort(-1, descending=True).values
        close = ranked[:, k - 1] - ranked[:, k] <= noise
        yield from ((layer, int(token)) for token in close.nonzero().flatten())


def _tie_after(loaded: Loaded, state: State, fed: torch.Tensor) -> tuple[int, int] | None:
    """The first tie that a router meets among `fed`, row by row."""
    for row in range(len(fed)):
        past = state.token_ids[row : row + 1, state.attention_mask[row] != 0]
        ids = torch.cat([past, fed[row : row + 1].to(past)], dim=1)
        for tie in recompute(loaded, ids, torch.ones_like(ids)).ties:
            if tie[1] >= past.shape[1]:
                return tie
    return None
