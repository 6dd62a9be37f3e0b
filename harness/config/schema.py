"""The typed schema of every config group. Plain dataclasses: imports no room and nothing heavy.

Types are checked by Hydra while it composes, ranges by `__post_init__` once composition is done.
"""

from dataclasses import dataclass, field, fields
from typing import Any

from harness.config.engine import EngineConfig
from harness.errors import ConfigProblem, suggestion

MISSING = "???"  # omegaconf's marker for a value that must be given

DTYPES = ("float32", "bfloat16", "float16", "float64")
SHORT_DTYPES = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16",
                "fp64": "float64", "double": "float64", "float": "float32"}  # fmt: skip
VERDICTS = ("exact", "equivalent", "drifted", "diverged")


def one_of(key: str, value: Any, known: tuple[str, ...]) -> None:
    """Raise ConfigProblem unless `value` is one of `known`."""
    if value not in known:
        raise ConfigProblem(f"{key}={value} is not possible.{suggestion(str(value), known)}")


def at_least(key: str, value: float | None, low: float) -> None:
    """Raise ConfigProblem when `value` is given and below `low`."""
    if value is not None and value < low:
        raise ConfigProblem(f"{key}={value} is too small: give {low} or more.")


@dataclass
class TaskConfig:
    """Which task, and what only some tasks read."""

    name: str = MISSING
    every: int = 64  # loop: steps between snapshots
    top: int = 5  # loop: most probable tokens in the trace
    prunes: list[str] = field(default_factory=list)  # evaluate
    quantizers: list[str] = field(default_factory=list)  # evaluate
    budgets: list[float] = field(default_factory=list)  # evaluate: shares of the context
    asked: list[str] = field(default_factory=list)  # evaluate: after or before pruning
    tokens: int = 4096  # format_bench: length of the K/V
    repeats: int = 5  # format_bench, referee
    only: list[str] = field(default_factory=list)  # claims: these instead of all
    turns: list[dict[str, str]] = field(default_factory=list)  # chat: `ask` and maybe `expect`
    system: str | None = None  # chat
    on_mismatch: str = "repair"  # chat: repair or refuse
    naive: bool = True  # chat: time naive re-processing as well
    verify: bool = True  # chat: resume after every turn
    caches: list[str] = field(default_factory=list)  # bench, architectures
    contexts: list[int] = field(default_factory=list)  # bench: past tokens
    dtypes: list[str] = field(default_factory=list)  # bench, format_bench
    runs: int = 11  # bench: timed steps per cache
    seconds: float = 15  # bench: per combination; ui: the page's life, 0 without end
    branches: list[int] = field(default_factory=list)  # bench: continuations of one state at once
    branch_contexts: list[int] = field(default_factory=list)  # bench
    branch_dtypes: list[str] = field(default_factory=list)  # bench
    branch_caches: list[str] = field(default_factory=list)  # bench
    families: list[str] = field(default_factory=list)  # architectures: these instead of all
    port: int = 0  # ui: 0 takes the first free one
    run: int = 16  # ui: tokens of a run, at first
    check: int = 16  # ui: tokens that a verdict judges

    def __post_init__(self) -> None:
        at_least("task.every", self.every, 1)
        at_least("task.top", self.top, 0)
        for key in ("run", "check"):
            at_least(f"task.{key}", getattr(self, key), 1)
        at_least("task.tokens", self.tokens, 1)
        at_least("task.repeats", self.repeats, 1)
        one_of("task.on_mismatch", self.on_mismatch, ("repair", "refuse"))
        at_least("task.runs", self.runs, 3)
        at_least("task.seconds", self.seconds, 0)
        if not 0 <= self.port < 65536:
            raise ConfigProblem(f"task.port={self.port} is no port: give 0 (any) to 65535.")
        for dtype in (*self.dtypes, *self.branch_dtypes):
            one_of("task.dtypes", dtype, DTYPES)
        for count in (*self.contexts, *self.branches, *self.branch_contexts):
            at_least("task.contexts and task.branches", count, 1)


@dataclass
class ModelConfig:
    """Weights: `id` (hub id or shipped name), `path` (a save_pretrained directory) or `architecture`."""

    name: str = MISSING
    id: str | None = None
    revision: str | None = None
    path: str | None = None
    architecture: str | None = None  # transformers model_type, built with seeded random weights
    config: dict[str, Any] = field(default_factory=dict)  # values for the architecture's config
    tokenizer: str | None = None  # where the tokenizer comes from, if not beside the weights
    seed: int = 0
    attention: str = "auto"  # auto: what the library would choose

    def __post_init__(self) -> None:
        one_of("model.attention", self.attention, ("auto", "sdpa", "eager"))
        if self.name == "path" and not self.path:
            raise ConfigProblem("model=path needs model.path=DIR, a save_pretrained directory.")
        if not (self.id or self.path or self.architecture):
            raise ConfigProblem(
                f"model={self.name} names no weights: give model.id, model.path or model.architecture."
            )


@dataclass
class TokenizerConfig:
    name: str = MISSING
    bos: bool = True  # explicit only: one BOS, placed once, on purpose


@dataclass
class CacheConfig:
    name: str = MISSING
    branches: int = 1
    audit: str = "digest"
    pad_prime: int = 0
    capture: bool = True  # manual: a step of one token in one go (a program, a recording)

    def __post_init__(self) -> None:
        at_least("cache.branches", self.branches, 1)
        at_least("cache.pad_prime", self.pad_prime, 0)
        one_of("cache.audit", self.audit, ("digest", "fast"))


@dataclass
class PruneConfig:
    """Which tokens a layer keeps. The budget is `tokens` where given, else `ratio` of what is held."""

    name: str = MISSING
    tokens: int | None = None
    ratio: float | None = None
    positions: str = "original"
    protect: int | str = 0  # leading tokens never dropped; "prefix": BOS, template, system text
    shared: bool = False  # one choice for all layers instead of one per layer
    per_head: bool | None = None  # each KV head chooses; null: where the policy scores heads
    budget: str = "uniform"  # over layers and heads: uniform, pyramid or adaptive
    sinks: int = 4  # sink_window: leading tokens kept
    window: int = 32  # snapkv: queries at the end that vote
    pool: int = 5  # snapkv: width of the smoothing
    recent: float = 0.5  # heavy_hitter: share of the budget for the most recent tokens
    seed: int = 0  # random
    stages: list[dict[str, Any]] = field(default_factory=list)  # chain

    def __post_init__(self) -> None:
        one_of("prune.positions", self.positions, ("original", "reindexed"))
        at_least("prune.tokens", self.tokens, 1)
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise ConfigProblem(f"prune.ratio={self.ratio} is not possible: give 0 < ratio <= 1.")
        if isinstance(self.protect, str):
            one_of("prune.protect", self.protect, ("prefix",))
        else:
            at_least("prune.protect", self.protect, 0)
        one_of("prune.budget", self.budget, ("uniform", "pyramid", "adaptive"))
        if self.budget == "adaptive" and self.per_head is False:
            raise ConfigProblem(
                "prune.budget=adaptive shares among heads: drop prune.per_head=false."
            )
        at_least("prune.sinks", self.sinks, 0)
        at_least("prune.window", self.window, 1)
        at_least("prune.pool", self.pool, 1)
        if not 0 <= self.recent <= 1:
            raise ConfigProblem(
                f"prune.recent={self.recent} is not possible: give 0 <= recent <= 1."
            )


@dataclass
class QuantizeConfig:
    name: str = MISSING
    bits: int = 4  # kivi, library
    axis: str = "token"  # int8, int4, fp8: what shares a scale
    group: int = 64  # numbers (per token) or tokens (per channel) that share a scale
    recent: int = 0  # most recent tokens kept in full precision
    backend: str = "quanto"  # library

    def __post_init__(self) -> None:
        one_of("quantize.axis", self.axis, ("token", "channel"))
        at_least("quantize.group", self.group, 1)
        at_least("quantize.recent", self.recent, 0)
        one_of("quantize.bits", str(self.bits), ("2", "4", "8"))


@dataclass
class SaveConfig:
    name: str = MISSING
    level: int | None = None
    codec: str | None = None
    shuffle: str | None = None
    compact: bool = False
    sync: bool = True

    def __post_init__(self) -> None:
        at_least("save.level", self.level, 0)
        if self.level is not None and self.level > 9:
            raise ConfigProblem(f"save.level={self.level} is too large: give 0 to 9.")


@dataclass
class PromptConfig:
    name: str = MISSING
    turns: list[dict[str, str]] = field(default_factory=list)
    text: str | None = None
    path: str | None = None
    ids: list[int] = field(default_factory=list)  # token ids in place of any text
    definitions: int = 4
    length: int = 256  # needle, multi_key, variable_tracking: tokens of the context
    samples: int = 24  # task=evaluate: how many are generated
    distance: int = 128  # recall only: tokens between the definition and the question
    seed: int = 0
    batch: int = 1
    chunk: int | None = None  # prefill in chunks of so many tokens

    def __post_init__(self) -> None:
        at_least("prompt.batch", self.batch, 1)
        at_least("prompt.ids", min(self.ids, default=None), 0)
        at_least("prompt.chunk", self.chunk, 1)
        at_least("prompt.samples", self.samples, 1)
        at_least("prompt.length", self.length, 16)
        at_least("prompt.definitions", self.definitions, 1)
        if self.path and self.name not in ("file", "jsonl"):
            raise ConfigProblem(
                f"prompt.path={self.path} is read with prompt=file and prompt=jsonl only; add that."
            )
        for turn in self.turns:
            if set(turn) != {"role", "content"}:
                raise ConfigProblem(
                    f"prompt.turns: each turn has `role` and `content`, got {turn}."
                )


@dataclass
class SamplingConfig:
    name: str = MISSING
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    repetition_penalty: float = 1.0
    seed: int | None = None  # None: the run's seed, or the restored generator state

    def __post_init__(self) -> None:
        if self.temperature <= 0:
            raise ConfigProblem("sampling.temperature must be above 0; use sampling=greedy for 0.")
        at_least("sampling.top_k", self.top_k, 0)
        if not 0 < self.top_p <= 1:
            raise ConfigProblem(
                f"sampling.top_p={self.top_p} is not possible: give 0 < top_p <= 1."
            )
        if self.repetition_penalty <= 0:
            raise ConfigProblem("sampling.repetition_penalty must be above 0 (1 switches it off).")


@dataclass
class CompareConfig:
    name: str = MISSING
    require: str = "equivalent"
    require_pruned: str = "diverged"
    oracle: bool = True
    noise_chunk: int = 16
    limit: int = 8192  # resume recomputes the uninterrupted run up to this many tokens

    def __post_init__(self) -> None:
        one_of("compare.require", self.require, VERDICTS)
        one_of("compare.require_pruned", self.require_pruned, VERDICTS)
        at_least("compare.noise_chunk", self.noise_chunk, 1)


@dataclass
class FaultConfig:
    name: str = MISSING
    seed: int = 0  # of what the damage draws at random
    bit: int = 14  # bit_flip: which bit of the upper half of the value

    def __post_init__(self) -> None:
        if not 0 <= self.bit < 16:
            raise ConfigProblem(f"fault.bit={self.bit} is no bit: give 0 to 15.")


@dataclass
class TrackConfig:
    name: str = MISSING
    uri: str | None = None
    experiment: str = "harness"
    artifact_limit_mb: float = 16.0


@dataclass
class RestoreConfig:
    strict: bool = True


@dataclass
class Config:
    """The whole job. Common keys first, then one block per group."""

    name: str = MISSING
    seed: int = 0
    device: str = "auto"
    dtype: str = "float32"
    threads: int | None = None
    steps: int = 32
    snapshot: str | None = None
    out: str | None = None
    text: str | None = None
    run: str | None = None
    a: str | None = None  # task=diff: the two snapshots
    b: str | None = None
    compact: bool = False  # task=save snapshot=DIR: write it again without references to others
    runs_dir: str = "runs"
    restore: RestoreConfig = field(default_factory=RestoreConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = field(default_factory=lambda: _unset(ModelConfig))
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)
    quantize: QuantizeConfig = field(default_factory=lambda: QuantizeConfig(name="none"))
    save: SaveConfig = field(default_factory=SaveConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    compare: CompareConfig = field(default_factory=CompareConfig)
    fault: FaultConfig = field(default_factory=FaultConfig)
    engine: EngineConfig = field(default_factory=EngineConfig)
    track: TrackConfig = field(default_factory=TrackConfig)

    def __post_init__(self) -> None:
        if meant := SHORT_DTYPES.get(self.dtype.lower()):
            raise ConfigProblem(f"dtype={self.dtype} is not possible. Did you mean '{meant}'?")
        one_of("dtype", self.dtype, DTYPES)
        if not self.name or self.name.startswith(("/", "~")) or ".." in self.name.split("/"):
            raise ConfigProblem(
                f"name={self.name} is not a folder below runs_dir={self.runs_dir}. For records "
                "elsewhere give runs_dir=DIR."
            )
        if not -(2**63) <= self.seed < 2**63:
            raise ConfigProblem(f"seed={self.seed} does not fit: give a whole number below 2**63.")
        if self.device not in ("auto", "cpu", "cuda") and not self.device.startswith("cuda:"):
            one_of("device", self.device, ("auto", "cpu", "cuda"))
        at_least("steps", self.steps, 1)
        at_least("threads", self.threads, 1)


def _unset(cls: type) -> Any:
    """An instance without running range checks, for use as a schema node only."""
    blank = cls.__new__(cls)
    for f in fields(cls):
        value = f.default_factory() if callable(f.default_factory) else f.default  # type: ignore[misc]
        setattr(blank, f.name, value)
    return blank
