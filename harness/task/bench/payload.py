"""K/V to measure storage with: a real prefill, cut into sequences and rounded to a dtype."""

from dataclasses import replace

import torch

from harness.capture import capture
from harness.pipeline.session import Session, tokenizer_files
from harness.snapshot.state import Segment, State

SEQUENCES = 2  # halved they are four: so many bytes that the fixed cost of a commit hides nothing


def prefilled(session: Session, tokens: int) -> State:
    """A state of two sequences of `tokens` random token ids, from a real prefill in float32."""
    generator = torch.Generator().manual_seed(session.cfg.seed)
    size = int(session.loaded.text_config.vocab_size)
    ids = torch.randint(0, size, (SEQUENCES, tokens), generator=generator)
    documents = {**session.documents, "generation": {"sampler": None, "steps": 0}}
    files = tokenizer_files(session.loaded)
    return capture(session.loaded, ids, torch.ones_like(ids), documents, files).state


def halves(whole: State, dtype: torch.dtype) -> State:
    """Both halves of every sequence as sequences of their own, K/V rounded to `dtype`: a payload, not
    a state to continue from (the second halves keep the rotation of where they stood)."""
    tokens = whole.tokens // 2

    def cut(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat(tensor.split(tokens, dim=2)).to(dtype).contiguous()

    ids = torch.cat(whole.token_ids.split(tokens, dim=1))
    positions = torch.arange(tokens).expand(len(ids), -1).contiguous()
    layers = tuple(
        replace(la, seen=tokens, segments=(Segment(cut(la.key), cut(la.value), positions),))
        for la in whole.layers
    )
    half = replace(
        whole,
        layers=layers,
        token_ids=ids,
        attention_mask=torch.ones_like(ids),
        next_position=torch.full((len(ids),), tokens),
        logits=whole.logits.repeat(2, 1),
    )
    return _described(half, dtype)


def first(state: State, dtype: torch.dtype, tokens: int | None = None) -> State:
    """The first sequence of `state` alone, cut to `tokens`; a payload too when it is cut."""
    tokens = tokens or state.tokens
    layers = tuple(
        replace(
            la,
            seen=tokens,
            segments=(
                Segment(
                    la.key[:1, :, :tokens].to(dtype).contiguous(),
                    la.value[:1, :, :tokens].to(dtype).contiguous(),
                    la.positions[:1, ..., :tokens].contiguous(),
                ),
            ),
        )
        for la in state.layers
    )
    one = replace(
        state,
        layers=layers,
        token_ids=state.token_ids[:1, :tokens].contiguous(),
        attention_mask=state.attention_mask[:1, :tokens].contiguous(),
        next_position=torch.tensor([tokens]),
        logits=state.logits[:1],
    )
    return _described(one, dtype)


def _described(state: State, dtype: torch.dtype) -> State:
    entries = [
        {**d, "seen": la.seen, "segments": [s.tokens for s in la.segments]}
        for d, la in zip(state.documents["kv_format"]["layers"], state.layers, strict=True)
    ]
    return state.document("kv_format", layers=entries, dtype=str(dtype).removeprefix("torch."))
