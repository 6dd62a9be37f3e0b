"""The healthy session that faults are tried on: a short chat, paused before its next question.

Seven beds: `plain`, `padded` (two rows, left padding), `sampled` (tokens are drawn, not picked),
`quantized` (keys and values are codes), and three on a small seeded model of their own: `windowed` (layers
that slide), `hybrid` (recurrent and convolution layers beside attention) and `indexed` (an indexer picks
the few tokens attended to). Each has its own uninterrupted run, noise and oracle.
"""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch

from harness.cache.registry import decoder as build_decoder
from harness.compare import metrics as measure
from harness.compare.verdict import decide, errors
from harness.config import CacheConfig, ModelConfig, SamplingConfig, option
from harness.errors import UnsupportedModel
from harness.model.loaded import load
from harness.model.sampler import Sampler
from harness.pipeline import drive
from harness.pipeline.plain import alone, rechunked
from harness.pipeline.session import Session
from harness.quantize.registry import quantizer
from harness.snapshot.state import State
from harness.tokenizer.policy import Encoded, continuation, encode, render

SYSTEM = "you are a careful assistant ."
TURNS = (
    "let k be 5 .",
    "ok .",
    "the old man walked to the river .",
    "ok .",
    "let m be 42 .",
    "ok .",
)
QUESTION = "what is k ?"
WINDOW = 12
CHUNK = 7
SEEDED: dict[str, tuple[str, dict[str, Any]]] = {
    "windowed": ("mistral", {
        "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 128, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "sliding_window": WINDOW,
    }),
    "hybrid": ("qwen3_next", {  # as in model=tiny_hybrid
        "num_hidden_layers": 4, "hidden_size": 64, "intermediate_size": 96, "head_dim": 16,
        "num_attention_heads": 4, "num_key_value_heads": 2, "linear_num_key_heads": 2,
        "linear_num_value_heads": 4, "linear_key_head_dim": 16, "linear_value_head_dim": 16,
        "layer_types": ["linear_attention", "full_attention"] * 2, "initializer_range": 0.1,
        "mlp_only_layers": [0, 1, 2, 3],
    }),
    "indexed": ("deepseek_v32", {  # as in model=tiny_sparse
        "num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "q_lora_rank": 16,
        "num_attention_heads": 4, "num_key_value_heads": 4, "kv_lora_rank": 16, "v_head_dim": 8,
        "qk_rope_head_dim": 8, "qk_nope_head_dim": 8, "index_n_heads": 16, "index_head_dim": 16,
        "index_topk": 16, "first_k_dense_replace": 2, "initializer_range": 0.1,
    }),
}  # fmt: skip


@dataclass(frozen=True)
class Run:
    """shown: `[batch, steps + 2, vocab]`, the stored logits, those after the question and after
    each generated token. ids: `[batch, steps + 1]`, the tokens chosen. fed: `[batch, n]`."""

    shown: torch.Tensor
    ids: torch.Tensor
    fed: torch.Tensor


@dataclass(frozen=True)
class Bed:
    """state: healthy, paused. reference: the run that was never interrupted. floor: the noise.
    recomputed: what a diagnosis computed anew from a buffer on this bed's own model, by its ids."""

    name: str
    session: Session
    state: State
    reference: Run
    floor: dict[str, Any]
    oracle: torch.Tensor | None
    steps: int
    recomputed: dict[Any, Any] = field(default_factory=dict, repr=False)

    def verdict(self, run: Run) -> tuple[str, float]:
        """The verdict on `run` (teacher forced along the reference) and its largest shift in units
        of the noise floor (infinite when a logit is not finite)."""
        rows, expected = trimmed(run.shown, self.reference.shown)
        metrics = measure.compare(rows, expected, expected.argmax(-1))
        oracle = None if self.oracle is None else trimmed(self.oracle, expected)[0]
        other = (run.ids != self.reference.ids).any(0).nonzero()
        first = int(other[0, 0]) if len(other) else None
        distances = errors(rows, expected, oracle)
        name, _ = decide(rows, expected, metrics, self.floor, distances, first, ())
        gap = metrics["max_abs_diff"]
        return name, gap / self.unit if gap == gap else float("inf")

    @property
    def unit(self) -> float:
        """One noise floor, in logits; at least one rounding of the largest logit."""
        rounding = (
            float(self.reference.shown.abs().max()) * torch.finfo(self.state.logits.dtype).eps
        )
        return max(self.floor["max_abs_diff"], rounding)


def build(name: str, session: Session, steps: int) -> Bed:
    """The bed `name` on the session's model, or on the one that it brings."""
    session = on(name, session)
    if name == "sampled":
        drawn = SamplingConfig("sample", 0.9, 20, 0.95, 1.1, seed=session.cfg.seed)
        session = replace(session, cfg=replace(session.cfg, sampling=drawn))
    loaded, sampler = session.loaded, Sampler(session.sampling, session.cfg.seed)
    whole = conversation(loaded.tokenizer)
    rows = [whole]
    if name == "padded":
        rows.append(replace(whole, ids=whole.ids[: len(whole.ids) // 2]))
    captured = session.capture(rows, sampler)
    state = captured.state
    prompt = question(loaded.tokenizer, state.tokens).repeat(state.batch, 1)
    if name == "quantized":
        return _quantized(session, state, sampler, steps, prompt)
    live = drive.Uninterrupted(loaded, captured.live, state)
    path = drive.drive(live, sampler, steps, prompt)
    length = prompt.shape[1]
    reference = shown(state.logits, path, length)
    others = [
        _rows(alone(loaded, state, path.fed, before=1), length),
        _rows(rechunked(loaded, state, path.fed, CHUNK, before=True), length),
    ]
    floor = measure.noise_floor(others, reference.shown, reference.shown.argmax(-1))
    exact = None
    if session.cfg.compare.oracle:
        exact = _rows(alone(loaded.oracle, state, path.fed, before=1), length)
    return Bed(name, session, state, reference, floor, exact, steps)


def _quantized(
    session: Session, state: State, sampler: Sampler, steps: int, prompt: torch.Tensor
) -> Bed:
    """The bed whose reference goes on from the codes themselves, decoded once for the library's own
    cache: what is tried on it is damage, and rounding on purpose is none. Another cache's path over
    the same codes is its noise."""
    small = quantizer(option("quantize", "int8")).quantize(state)

    def run(cache: str, follow: torch.Tensor | None = None) -> drive.Rollout:
        decoder = build_decoder(session.loaded, small, CacheConfig(name=cache))
        return drive.drive(decoder, sampler, steps, prompt, follow=follow)

    path = run("cloned")
    reference = shown(small.logits, path, prompt.shape[1])
    others = [shown(small.logits, run(c, path.fed), prompt.shape[1]) for c in ("dynamic", "view")]
    nexts = reference.shown.argmax(-1)
    floor = measure.noise_floor([o.shown for o in others], reference.shown, nexts)
    return Bed("quantized", session, small, reference, floor, None, steps)


def conversation(tokenizer: Any) -> Encoded:
    """The chat so far, through the template where there is one."""
    if getattr(tokenizer, "chat_template", None):
        return encode("chat", tokenizer, "", _turns(tokenizer))
    return encode("explicit", tokenizer, " ".join(TURNS))


def question(tokenizer: Any, cursor: int) -> torch.Tensor:
    """`[1, n]` ids of the next question: the re-rendered chat from `cursor` on, as a script slices
    it, or the plain text where there is no template."""
    if getattr(tokenizer, "chat_template", None):
        turns = (*_turns(tokenizer), {"role": "user", "content": QUESTION})
        return torch.tensor([encode("chat", tokenizer, "", turns).ids[cursor:]], dtype=torch.int64)
    return torch.tensor([continuation("explicit", tokenizer, " " + QUESTION).ids])


def shown(stored: torch.Tensor, path: drive.Rollout, length: int) -> Run:
    """What a path showed from the pause on: stored logits first."""
    stored, rest = stored[:, None].to(path.logits), path.logits[:, max(length - 1, 0) :]
    vocab = min(stored.shape[-1], rest.shape[-1])
    rows = torch.cat([stored[..., :vocab], rest[..., :vocab]], dim=1)
    return Run(rows, path.ids[:, length:], path.fed[:, length:])


def trimmed(a: torch.Tensor, b: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Both cut to the vocabulary and the steps they share."""
    steps, vocab = min(a.shape[1], b.shape[1]), min(a.shape[2], b.shape[2])
    return a[:, -steps:, :vocab], b[:, -steps:, :vocab]


def _turns(tokenizer: Any) -> tuple[dict[str, str], ...]:
    spoken = tuple(
        {"role": "assistant" if i % 2 else "user", "content": text} for i, text in enumerate(TURNS)
    )
    system = ({"role": "system", "content": SYSTEM},)
    try:
        render(tokenizer, [*system, *spoken], generate=False)
    except UnsupportedModel:  # some templates know no system role and say so in their own way
        return spoken
    return (*system, *spoken)


def on(name: str, session: Session) -> Session:
    """The same session on the small seeded model that the bed `name` stands on, through the model's own
    forward; itself where the bed has none of its own."""
    if name not in SEEDED:
        return session
    architecture, config = SEEDED[name]
    model = session.cfg.model
    place = model.tokenizer or model.path or model.id
    settings = ModelConfig("shape", architecture=architecture, config=config, tokenizer=place)
    cfg = replace(session.cfg, model=settings, cache=replace(session.cfg.cache, name="cloned"))
    return replace(session, cfg=cfg, loaded=load(settings, cfg.dtype, cfg.device))


def _rows(logits: torch.Tensor, length: int) -> torch.Tensor:
    return torch.cat([logits[:, :1], logits[:, length:]], dim=1)


def scratch(folder: Path) -> Path:
    """Where snapshots of single faults are written and removed again."""
    return folder / "scratch"
