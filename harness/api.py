"""The Python API: the command line's jobs in six functions.

    import harness

    model = harness.load_model("tiny")
    state = harness.capture_text(model, "let k be 5 . the bird sang .")
    harness.save_state(state, "runs/mine")
    state = harness.load_state("runs/mine", model)
    for piece in harness.resume(model, state, " what is k ?", steps=8):
        print(piece, end="")
    print(harness.judge(model, state).verdict)

A State is immutable: none of these functions changes the one it is given.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness import config
from harness.cache.base import Decoder
from harness.cache.registry import decoder as build_decoder
from harness.capture import check_length
from harness.model.build import SHIPPED
from harness.model.loaded import Loaded
from harness.model.loaded import load as load_weights
from harness.model.sampler import Sampler
from harness.pipeline import drive, interop
from harness.pipeline.dialogue import end_tokens
from harness.pipeline.judge import Judgement
from harness.pipeline.judge import judge as judge_path
from harness.pipeline.line import rebuilt
from harness.pipeline.restore import identity_check
from harness.pipeline.session import Session
from harness.report.console import Say
from harness.save import store
from harness.snapshot.state import State
from harness.tokenizer.policy import continuation, encode
from harness.tokenizer.stream import Stream


def load_model(
    source: str = "tiny",
    dtype: str = "float32",
    device: str = "auto",
    revision: str | None = None,
    attention: str = "auto",
) -> Loaded:
    """The shipped model (`tiny`), a `save_pretrained` directory, or a hub id at `revision`.

    attention: `sdpa`, `eager`, or `auto`, which leaves the choice to the library.

    Raises InputProblem when the weights cannot be had or the device is missing.
    """
    local = source not in SHIPPED and Path(source).expanduser().is_dir()
    settings = config.ModelConfig(
        name="path" if local else source,
        id=None if local else source,
        path=source if local else None,
        revision=revision,
        attention=attention,
    )
    return load_weights(settings, dtype, device)


def capture_text(
    model: Loaded,
    text: str = "",
    turns: list[dict[str, str]] | None = None,
    policy: str = "explicit",
    seed: int = 0,
) -> State:
    """Prefill `text` (or chat `turns`, with `policy="chat"`) and collect all 13 elements, batch 1.

    K/V are `[batch, kv_heads, tokens, head_dim]` per layer. Raises InputProblem for an empty or too
    long prompt, UnsupportedModel for a cache kind or a template the model does not have.
    """
    session = _session(model, seed=seed)
    row = encode(policy, model.tokenizer, text, turns or [])
    return session.capture([row], Sampler(session.cfg.sampling, seed)).state


def save_state(
    state: State, out: str | Path, format: str = "safetensors", **options: Any
) -> dict[str, Any]:
    """Write `state` to the directory `out`, atomically; return the manifest.

    A state that continues a snapshot beside `out` is written as its new segment only. Raises
    InputProblem when the place cannot be written, ConfigProblem for an unknown format.
    """
    return store.save(state, Path(out).expanduser(), config.option("save", format, **options))


def load_state(
    source: str | Path, model: Loaded | None = None, strict: bool = True, verify: str = "proof"
) -> State:
    """The State stored in `source`, every byte verified; with `model`, identity is compared too.

    verify: `proof` (the default) replays the last token, one decode step; `identity` runs nothing;
    `digest` compares no documents either.

    Raises InputProblem when there is no snapshot, SnapshotInvalid for any damage, RestoreRefused
    when it belongs to another model or tokenizer (`strict=False` waives that, never damage).
    """
    state, _ = store.load(Path(source).expanduser())
    if model is None:
        return state
    identity_check(_session(model, strict=strict, verify=verify), state, Path(source))
    return state.to(model.device)


def wrap(model: Any, tokenizer: Any) -> Loaded:
    """A library model object that is in use already, with its tokenizer; see `interop.wrap`."""
    return interop.wrap(model, tokenizer)


def from_cache(
    model: Loaded,
    past_key_values: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
) -> State:
    """A State of a library cache that `input_ids` `[batch, tokens]` filled; the cache stays as it is.

    Raises InputProblem when their lengths differ, UnsupportedModel for a cache of unknown kind.
    """
    return interop.from_cache(_session(model), past_key_values, input_ids, attention_mask)


def to_cache(state: State, model: Any) -> Any:
    """A DynamicCache holding `state`, with which `model.generate(past_key_values=...)` goes on.

    model: the library's, or a Loaded. Raises UnsupportedModel for a pruned state.
    """
    return interop.to_cache(state, model)


class Resumed(Iterator[str]):
    """Iterate to generate: yields text as it grows. `ids` and `state` hold the outcome so far.

    ids: list of the generated token ids. state: a new State with everything fed so far; the State
    it started from is untouched. Like an open file it has one place: a loop that was left early
    goes on, in the next loop, with the token after the last one.
    """

    def __init__(
        self,
        model: Loaded,
        decoder: Decoder,
        sampler: Sampler,
        prompt: torch.Tensor | None,
        steps: int,
    ):
        self._model, self._decoder, self._sampler = model, decoder, sampler
        self._prompt, self._steps = (
            prompt,
            steps,
        )  # prompt: `[batch, n]`, fed before the first token
        self._seen, self._logits = decoder.state.token_ids.cpu(), decoder.state.logits
        self._text = Stream(model.tokenizer)
        self._ends = end_tokens(model)
        self.ids: list[int] = []

    def __next__(self) -> str:
        if self._prompt is not None:
            self._feed(self._prompt)
            self._prompt = None
        while len(self.ids) < self._steps and not self._ends.intersection(self.ids[-1:]):
            token = self._sampler.choose(self._logits, self._seen)
            self._feed(token)
            self.ids.append(int(token[0, 0]))
            if piece := self._text.add(self.ids[-1]):  # else it is no whole character yet
                return piece
        if piece := self._text.rest():
            return piece
        raise StopIteration

    def _feed(self, ids: torch.Tensor) -> None:
        self._logits = self._decoder.step(ids)[:, -1]
        self._seen = torch.cat([self._seen, ids], dim=1)

    @property
    def state(self) -> State:
        """Old segments plus one new; its generator continues where this one stands."""
        state = replace(self._decoder.commit(), rng=self._sampler.rng)
        return state.document("generation", sampler=self._sampler.document())


def resume(
    model: Loaded,
    state: State,
    text: str = "",
    steps: int = 32,
    cache: str = "auto",
    sampling: str = "greedy",
    seed: int | None = None,
    **options: Any,
) -> Resumed:
    """Continue `state` with `text`, then generate at most `steps` tokens, streaming, up to the end of the
    sequence. `state` is only read.

    cache: an implementation's name, or `auto`: the fastest that never touches the past. sampling:
    `greedy` or `sample` with `temperature`, `top_k`, `top_p`, `repetition_penalty`; the saved
    generator goes on unless `seed` is given. Raises UnsupportedModel when the cache cannot serve
    the model, InputProblem beyond the model's positions, ConfigProblem for bad settings.
    """
    settings = config.option("sampling", sampling, seed=seed, **options)
    sampler = Sampler(settings, seed or 0, None if seed is not None else state.rng)
    added = continuation("explicit", model.tokenizer, text).ids
    check_length(model, int(state.next_position.max()), len(added) + steps)
    prompt = torch.tensor([added] * state.batch) if added else None
    return Resumed(model, _decoder(model, state, cache), sampler, prompt, steps)


def judge(model: Loaded, state: State, steps: int = 16, cache: str = "auto") -> Judgement:
    """Continue `state` greedily and judge it against a run recomputed from its token buffer.

    Returns `verdict` (`exact`, `equivalent`, `drifted`, `diverged`), `reason`, `metrics`, `noise`,
    `oracle`. Measures a noise floor and a float64 run beside it. Mutates nothing.
    """
    greedy = config.SamplingConfig(name="greedy")
    run, _ = rebuilt(model, state)
    reference = drive.drive(run, Sampler(greedy), steps)
    decoder = _decoder(model, state, cache)
    path = drive.drive(decoder, Sampler(greedy), steps, follow=reference.fed)
    return judge_path(model, state, reference, path, config.CompareConfig(name="lossless"))


def _decoder(model: Loaded, state: State, cache: str) -> Decoder:
    return build_decoder(model, state, config.CacheConfig(name=cache))


def _session(model: Loaded, seed: int = 0, strict: bool = True, verify: str = "proof") -> Session:
    cfg = config.Config(
        name="api", seed=seed, restore=config.RestoreConfig(strict=strict, verify=verify)
    )
    cfg.sampling, cfg.prune = config.SamplingConfig(name="greedy"), config.PruneConfig(name="none")
    cfg.cache, cfg.prompt = config.CacheConfig(name="cloned"), config.PromptConfig(name="text")
    return Session(cfg, Path(), model, Say(quiet=True))
