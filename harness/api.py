"""The Python API: the command line's jobs as functions. None of them changes the State it is given.

    import harness
    model = harness.load_model("tiny")
    state = harness.capture_text(model, "let k be 5 . the bird sang .")
    harness.save_state(state, "runs/mine")
    state = harness.load_state("runs/mine", model)
    print("".join(harness.resume(model, state, " what is k ?", steps=8)), harness.judge(model, state).good)

`help(harness)` names them all.
"""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from harness import config
from harness.api_errors import as_api
from harness.cache.base import check_fit
from harness.capture import check_length
from harness.errors import InputProblem
from harness.model.declared import declared
from harness.model.loaded import Loaded
from harness.model.loaded import load as load_weights
from harness.model.sampler import Sampler
from harness.pipeline import argument, drive, interop, reduction
from harness.pipeline.continuation import Resumed
from harness.pipeline.diagnosis import diagnosed
from harness.pipeline.drive import rebuilt
from harness.pipeline.format import reads, settings_of
from harness.pipeline.judge import Judgement
from harness.pipeline.judge import judge as judge_path
from harness.pipeline.lone import known, session_of
from harness.pipeline.own_cache import Cache, cache_of, cache_reading
from harness.pipeline.restore import identity_check
from harness.pipeline.rewind import checkpoints, rewound
from harness.pipeline.rope_switch import decoder
from harness.pipeline.sampling import listed, sampled
from harness.pipeline.self_check import beside
from harness.pipeline.way import Way
from harness.report.terminal.bar import on_terminal
from harness.save import store
from harness.snapshot.result import GOOD
from harness.snapshot.state import State
from harness.tokenizer.policy import encode


@as_api
def load_model(
    source: str = "tiny",
    dtype: str | torch.dtype = "float32",
    device: str | torch.device = "auto",
    revision: str | None = None,
    attention: str = "auto",
) -> Loaded:
    """The shipped model (`tiny`), another option of the group `model` (`tiny_gpt2`, ...), a
    `save_pretrained` directory, or a hub id at `revision`.

    dtype: what it runs in, whatever the weights are stored as: a bfloat16 model runs in float32 unless
    `dtype="bfloat16"` runs it as stored. attention: `sdpa`, `eager`, or `auto`, which leaves the choice
    to the library.

    Raises InputProblem when the weights cannot be had or the device is missing, ConfigProblem for a
    device or a dtype that there is not.
    """
    kind, place = argument.plain(dtype), argument.plain(device)
    argument.check_name("dtype", kind, "float32, bfloat16, ...")
    argument.check_name("device", place, "auto, cpu, cuda")
    config.Config(name="api", dtype=kind, device=place)  # checks both
    if not isinstance(source, str | Path):
        raise InputProblem(
            f"load_model takes a name or a directory, this is a {type(source).__name__}: "
            "harness.wrap(model, tokenizer) takes a model object."
        )
    source = str(source)
    return load_weights(declared(source, revision, attention), kind, place)


@as_api
def capture_text(
    model: Loaded,
    text: str | Sequence[str] = "",
    turns: list[dict[str, str]] | None = None,
    policy: str = "explicit",
    seed: int = 0,
    sampling: str = "greedy",
    **options: Any,
) -> State:
    """Prefill `text` (or chat `turns`, with `policy="chat"`) and collect all 13 elements.

    text: several make a batch, one row each, padded on the left; none with turns. sampling, options: see `resume`;
    they are stored with the state. K/V are `[batch, kv_heads, tokens, head_dim]` per layer; NaN stays, `judge` tells of it.
    Raises InputProblem for an empty or too long prompt, UnsupportedModel for a cache kind or a template the model does not have.
    """
    argument.check_count("seed", seed, 0)
    argument.check_name("policy", policy, "explicit, chat, ...")
    settings = config.option("sampling", sampling, **listed(options))
    session = session_of(model, seed, sampling=settings)
    texts = argument.texts_of(text, turns, policy)
    rows = [encode(policy, model.tokenizer, one, turns or []) for one in texts]
    return session.capture(rows, session.sampler(), finite=False).state


@as_api
def save_state(
    state: State,
    out: str | Path,
    format: str | type = "safetensors",
    overwrite: bool = False,
    sign: str | Path | None = None,
    encrypt: str | Path | None = None,
    **options: Any,
) -> dict[str, Any]:
    """Write `state` to the directory (or fsspec URL) `out`, atomically; return the manifest.

    format: an option of the group `save`, or a class of yours below `harness.save.Format`; options: its keys (`compact`,
    `sync`). A state that continues a snapshot beside `out` is written as its new segment only. overwrite: a snapshot there
    is replaced; other files never are. sign: a private key (PEM). encrypt: a file of 32 secret bytes, or `env:NAME`. Raises
    InputProblem for an unwritable place, an unreadable key and a model's NaN, ConfigProblem for an unknown format.
    """
    argument.check_state(state)
    argument.check_provable(state)
    argument.check_place("out", out)
    argument.check_flag("overwrite", overwrite)
    keys = argument.place_of("encrypt", encrypt), argument.place_of("sign", sign)
    access = store.Access.of(keys[0], overwrite=overwrite, sign=keys[1])
    settings = settings_of(format, options)
    with reduction.reading(format, settings):
        return store.save(state, out, settings, access=access)


@as_api
def load_state(
    source: str | Path,
    model: Loaded | None = None,
    strict: bool = True,
    verify: str = "proof",
    trusted: Sequence[str | Path] = (),
    decrypt: str | Path | None = None,
    format: type | None = None,
) -> State:
    """The State stored in `source`, every byte verified; with `model`, identity is compared too.

    verify: `proof` (the default) replays the last token, one decode step; `identity` runs nothing;
    `digest` compares no documents either. trusted: public keys, one of which must have signed it.
    decrypt: the key file (or `env:NAME`) of an encrypted one. format: your class that wrote it.

    Raises InputProblem for no snapshot, SnapshotInvalid for damage, Untrusted without signature or key,
    RestoreRefused for another model or tokenizer (waived by `strict=False`: what follows is `drifted`).
    """
    argument.check_place("source", source)
    argument.check_flag("strict", strict)
    if format is not None:
        reads(format)
    keys = argument.place_of("decrypt", decrypt), argument.places_of("trusted", trusted)
    access = store.Access.of(decrypt=keys[0], trusted=keys[1])
    state, _ = store.load(source, access)
    if model is None:
        return state
    state, _ = identity_check(session_of(model, strict=strict, verify=verify), state, source)
    return state.to(model.device)


@as_api
def prune_state(
    model: Loaded, state: State, policy: str | type = "keydiff", **options: Any
) -> State:
    """What `policy` keeps of `state`: an option of the group `prune`, or a class of yours below
    `harness.prune.Policy`.

    options: `ratio` or `tokens`, the other keys of the group (`protect`, `per_head`, `budget`,
    `positions`, ...) and the policy's own. Attention that the policy needs is recomputed.
    Raises ConfigProblem for an unknown policy or key and for a class that does not keep to its base.
    """
    argument.check_model(model)
    argument.check_state(state)
    argument.check_fits(model, state, 0)
    argument.warn_of_codes(state)
    return reduction.pruned_by(model, known(model, state), policy, options)


@as_api
def quantize_state(state: State, quantizer: str | type = "int8", **options: Any) -> State:
    """`state` with its keys and values as codes: by an option of the group `quantize`, or a class of
    yours below `harness.quantize.Quantizer`. options: its keys (`group`, `recent`, ...). Warns where an option
    codes nothing. Raises as `prune_state`."""
    argument.check_state(state)
    return argument.warned(reduction.quantized_by(state, quantizer, options), quantizer)


@as_api
def wrap(model: Any, tokenizer: Any = None) -> Loaded:
    """`model` and `tokenizer`, objects of the library's in use already, as a Loaded: nothing in them is changed.
    Without a tokenizer a text is its ids, as numbers (`"5 17 300"`). Of what `torch.compile` or `DataParallel` made, the module inside is taken; adapters (PEFT) are weights
    like any other. Raises InputProblem for a model in training mode or without a head and for the tokenizer
    of another model, where its vocabulary shows it; UnsupportedModel for an adapter of virtual tokens."""
    return interop.wrap(model, tokenizer)


@as_api
def from_cache(
    model: Loaded,
    past_key_values: Any,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    position_ids: torch.Tensor | None = None,
    strict: bool = True,
    rng: torch.Tensor | torch.Generator | None = None,
    seed: int = 0,
    sampling: str = "greedy",
    **options: Any,
) -> State:
    """A State of a library cache that `input_ids` `[batch, tokens]` filled; the cache stays as it is. Keys and values
    are shared with it (of a StaticCache, copied): what writes into them in place changes the State too.

    attention_mask: `[batch, tokens]`, 0 for padding, which stands on the left. position_ids: those of the forward;
    a forward without them counts through the padding, which is found out by replaying the last token. After `generate`
    the ids are its `sequences`, whole: the last one, which it chose and never fed, is fed here, to a copy (without it, it
    is chosen again; where every layer is recurrent no cache says how much it has read: give them without).

    A cache knows nothing of how its tokens were chosen. sampling, options: the sampler that goes on, as in `resume` (the
    library's `generate` has `top_k=50` unless told otherwise); rng: its random numbers, `torch.get_rng_state()` right after
    a `generate` on the CPU, or a Generator, copied; without, those of `seed`. `judge` is greedy, and judges neither.

    Raises InputProblem where cache, ids, mask and positions do not belong together: the first 128 tokens
    of every row (with windows or recurrent layers: all) and the last one are computed again, and their keys and
    values may be off by the noise measured here, once for each model. strict=False takes them as they are: `judge` says what is damaged.
    Raises UnsupportedModel for a cache of unknown kind.
    """
    argument.check_flag("strict", strict)
    argument.check_count("seed", seed, 0)
    numbers = argument.rng_of(rng)
    argument.warn_of_draws(rng, sampling, options)
    settings = config.option("sampling", sampling, **listed(options))
    session = session_of(model, seed, sampling=settings)
    given = past_key_values, input_ids, attention_mask, position_ids
    state = interop.of_generate(session, *given, check=strict)
    return state if numbers is None else replace(state, rng=numbers)


@as_api
def to_cache(state: State, model: Any, strict: bool = True) -> Any:
    """A DynamicCache holding `state`, with which `model.generate(past_key_values=...)` goes on, given all ids so far and
    at least one more: without a new one it feeds them all again. It shares keys and values with `state`: `generate`
    never writes into those, and whoever does changes `state` too. model: the library's, or a Loaded, whose tokenizer is compared too. Raises
    RestoreRefused for another model or dtype (waived by `strict=False`, with a warning, where it fits at all),
    UnsupportedModel for a pruned state."""
    argument.check_state(state)
    argument.check_flag("strict", strict)
    session = session_of(interop.lent(model), strict=strict, verify="identity")
    return interop.to_cache(session, state)


@as_api
def resume(
    model: Loaded,
    state: State | str | Path,
    text: str | Sequence[str] = "",
    steps: int = 32,
    cache: Cache = "auto",
    sampling: str | None = None,
    seed: int | None = None,
    trusted: Sequence[str | Path] = (),
    decrypt: str | Path | None = None,
    at: int | None = None,
    source: str | Path | None = None,
    **options: Any,
) -> Resumed:
    """Continue `state` with `text`, then generate at most `steps` tokens, streaming, up to the end of the
    sequence or a `stop` text. `state` is only read; for the place of a snapshot it is `load_state`
    with `trusted` and `decrypt`.

    text: the same for every row of a batch, or one per row, of as many tokens each. cache: an option of the group
    `cache`, `auto` for the fastest that never touches the past, or a class of yours below `harness.cache.Decoder` (with keys: `functools.partial(MyCache, bits=4)`). sampling: `greedy`,
    `sample` or `generation_config`, with `options` by the library's own names (`top_p`, `stop`,
    `no_repeat_ngram_size`, ...); None goes on with the sampler that `state` was saved with, `options`
    in place of its values. The saved generator goes on unless `seed` is given. at: go back first, to
    where so many tokens had been processed; `source`, the snapshot that `state` was loaded from, is
    where windows and recurrent layers find a nearer start than the first token. Raises
    UnsupportedModel when the cache cannot serve the model, InputProblem beyond the model's positions,
    for an `at` that `state` does not have and texts of unequal length, ConfigProblem for bad settings.
    """
    argument.check_model(model)
    argument.place_of("decrypt", decrypt)
    argument.places_of("trusted", trusted)
    if source is not None:
        argument.check_place("source", source)
    if isinstance(state, str | Path):
        source = source or state
        state = load_state(state, model, trusted=trusted, decrypt=decrypt)
    argument.check_state(state)
    argument.check_count("steps", steps, 0)
    option = cache_of(cache)
    check_fit(model, state)
    argument.check_shapes(model, state)
    if seed is not None:
        argument.check_count("seed", seed, 0)
    if at is not None:
        argument.check_count("at", at, 1)
        lineage = () if source is None else checkpoints(Path(source).expanduser())
        state = rewound(model, state, at, option, lineage).state
    state = known(model, state)
    told, line = sampled(state.documents, sampling, seed, options)
    session = session_of(model, seed or 0, sampling=told)
    prompt = argument.prompt_of(model, state, text)
    added = 0 if prompt is None else prompt.shape[1]
    check_length(model, int(state.next_position.max()), added + steps)
    with cache_reading(cache, option):
        runner = decoder(model, state, option)
    return Resumed(model, runner, session.sampler(state), prompt, steps, line)


@as_api
@on_terminal()
def judge(
    model: Loaded, state: State | str | Path, steps: int = 16, cache: Cache = "auto"
) -> Judgement:
    """Continue `state` (or that of a snapshot at this place) greedily and judge it against a run recomputed from its token
    buffer, and in float64: a prefill and `steps` steps, about five times over; the first of a process compiles kernels.

    Returns `good` (a pruned or a quantized state is, where its cache goes on with what was kept), `verdict` (`exact`, `equivalent`,
    `drifted`, `diverged`, `unsound`: beside the full cache), `reason`, `metrics`, `noise`, `oracle`, and where it is worse than
    `equivalent` a `diagnosis` (`cause`, `layer`, `head`, `token`, `evidence`); printed, all of it in sentences. cache: as in `resume`.
    Mutates nothing; `if judge(...)` raises, as `.good` is what was meant. Raises InputProblem for an argument out of range, ConfigProblem for no such cache, UnsupportedModel
    for a state of another model. Steps: from 1, in numbers from 0 (`metrics["first_divergence"]`).
    """
    argument.check_model(model)
    if isinstance(state, str | Path):
        state = load_state(state, model)
    argument.check_state(state)
    argument.check_count("steps", steps, 1)
    option = cache_of(cache)
    argument.check_fits(model, state, steps)
    state, waived = identity_check(session_of(model, strict=False, verify="identity"), state, "")
    greedy = config.SamplingConfig(name="greedy")
    run, _ = rebuilt(model, state)
    reference = drive.drive(run, Sampler(greedy), steps)
    drive.aside(model, state)
    with cache_reading(cache, option):
        runner = decoder(model, state, option)
    path = drive.drive(runner, Sampler(greedy), steps, follow=reference.fed)
    settings = config.CompareConfig(name="lossless")
    way = Way.of(runner, option)
    judgement = judge_path(model, state, reference, path, settings, waived, held=state, way=way)
    judgement = beside(judgement, model, state, way, path, settings)
    if judgement.verdict in GOOD and not judgement.broken:
        return judgement
    lossless = "" if state.pruned or state.quantized else option.name
    return diagnosed(judgement, model, state, waived, reference.fed, lossless)
