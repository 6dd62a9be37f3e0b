"""The typed schema of every config group. Plain dataclasses: imports no room and nothing heavy.

Types are checked by Hydra while it composes, ranges by `__post_init__` once composition is done.
"""

from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from harness import machine
from harness.config.engine import EngineConfig
from harness.config.key import CHOICES, ONLY, Open, at_least, number, one_of, only
from harness.config.sampling import SamplingConfig
from harness.config.tracking import TrackConfig
from harness.errors import ConfigProblem, suggestion

MISSING = "???"  # omegaconf's marker for a value that must be given
DTYPES = CHOICES["dtype"]
SHORT_DTYPES = {"fp32": "float32", "fp16": "float16", "half": "float16", "bf16": "bfloat16",
                "fp64": "float64", "double": "float64", "float": "float32"}  # fmt: skip
GPUS = ("gpu", "nvidia", "rocm", "hip")
VERDICTS = CHOICES["compare.require"]


@dataclass
class TaskConfig(Open):
    """Which task, and which of the keys in `Config.ASKED` it reads. The rest is in its YAML."""

    name: str = MISSING
    reads: list[str] = field(default_factory=list)


@dataclass
class ModelConfig:
    """Weights: `id` (hub id or shipped name), `path` (a save_pretrained directory) or `architecture`."""

    name: str = MISSING
    id: str | None = only(None)
    revision: str | None = only(None)
    path: str | None = only(None)
    architecture: str | None = only(None)  # transformers model_type, seeded random weights
    config: dict[str, Any] = field(default_factory=dict, metadata=ONLY)  # of the architecture
    tokenizer: str | None = None  # a directory, if not beside the weights; ids: a text is its ids
    seed: int = only(0)
    on_device: bool = only(False)  # random weights drawn on the device itself: other weights
    attention: str = "auto"  # auto: what the library would choose

    def __post_init__(self) -> None:
        one_of("model.attention", self.attention)
        if self.name == "path" and not self.path:
            raise ConfigProblem("model=path needs model.path=DIR, a save_pretrained directory.")
        if not (self.id or self.path or self.architecture):
            raise ConfigProblem(
                f"model={self.name} names no weights: give model.id, model.path or model.architecture."
            )


@dataclass
class TokenizerConfig(Open):
    name: str = MISSING
    bos: bool = only(True)  # one BOS, placed once, on purpose


@dataclass
class CacheConfig(Open):
    name: str = MISSING
    branches: int = 1  # copies of the state that go on beside one another
    audit: str = "digest"  # of the caller's cache: digest, or fast (versions of its tensors)

    def __post_init__(self) -> None:
        at_least("cache.branches", self.branches, 1)
        at_least("cache.pad_prime", getattr(self, "pad_prime", 0), 0)  # cache=static reads it
        one_of("cache.audit", self.audit)


@dataclass
class PruneConfig(Open):
    """Which tokens a layer keeps. The budget is `tokens` where given, else `ratio` of what is held."""

    name: str = MISSING
    tokens: int | None = None  # how many are kept; in place of ratio
    ratio: float | None = None
    positions: str = "original"  # of what is kept: original or reindexed
    protect: int | str = 0  # leading tokens never dropped; "prefix": BOS, template, system text
    shared: bool = False  # one choice for all layers instead of one per layer
    per_head: bool | None = None  # each KV head chooses; null: where the policy scores heads
    budget: str = "uniform"  # over layers and heads: uniform, pyramid or adaptive
    at: int | str = "prefill"  # when: once, or N: every N tokens that are decoded, too

    def __post_init__(self) -> None:
        one_of("prune.positions", self.positions)
        at_least("prune.tokens", self.tokens, 1)
        number("prune.ratio", self.ratio)
        if self.ratio is not None and not 0 < self.ratio <= 1:
            raise ConfigProblem(f"prune.ratio={self.ratio} is not possible: give 0 < ratio <= 1.")
        if isinstance(self.protect, str):
            one_of("prune.protect", self.protect, ("prefix",))
        else:
            at_least("prune.protect", self.protect, 0)
        one_of("prune.budget", self.budget)
        if isinstance(self.at, str):
            one_of("prune.at", self.at, ("prefill",))
        else:
            at_least("prune.at", self.at, 1)
        if self.budget == "adaptive" and self.per_head is False:
            raise ConfigProblem(
                "prune.budget=adaptive shares among heads: drop prune.per_head=false."
            )


@dataclass
class QuantizeConfig(Open):
    """What keys and values are kept as."""

    name: str = MISSING


@dataclass
class SaveConfig(Open):
    name: str = MISSING
    compact: bool = False  # refer to no other snapshot
    sync: bool = True  # flush to the disk before the directory is renamed


@dataclass
class PromptConfig:
    name: str = MISSING
    turns: list[dict[str, str]] = field(default_factory=list, metadata=ONLY)
    text: str | None = only(None)
    path: str | None = only(None)
    ids: list[int] = field(default_factory=list)  # token ids in place of any text
    definitions: int = only(4)
    distance: int = only(128)  # words between the definition and the question
    length: int = only(256)  # tokens of a generated context
    samples: int = only(24)  # task=evaluate: how many are generated
    seed: int = only(0)
    batch: int = 1  # rows of the same prompt
    chunk: int | None = None  # prefill in chunks of so many tokens

    def __post_init__(self) -> None:
        at_least("prompt.batch", self.batch, 1)
        at_least("prompt.ids", min(self.ids, default=None), 0)
        at_least("prompt.chunk", self.chunk, 1)
        at_least("prompt.samples", self.samples, 1)
        at_least("prompt.length", self.length, 16)
        at_least("prompt.definitions", self.definitions, 1)
        for turn in self.turns:
            if set(turn) != {"role", "content"}:
                raise ConfigProblem(
                    f"prompt.turns: each turn has `role` and `content`, got {turn}."
                )


@dataclass
class CompareConfig:
    name: str = MISSING
    require: str = "equivalent"  # a worse verdict is exit code 1
    require_pruned: str = "diverged"  # the same, where tokens were dropped
    oracle: bool = True  # run in float64 as well, as the scale of rounding
    metrics: list[str] = field(default_factory=list)  # of one's own: [my_module.function]
    noise_chunk: int = 16  # tokens a chunk, of the run that measures the noise
    limit: int = 8192  # resume recomputes the uninterrupted run up to this many tokens
    budget_s: float = 60  # resume: and where judging is reckoned to take no longer

    def __post_init__(self) -> None:
        one_of("compare.require", self.require)
        one_of("compare.require_pruned", self.require_pruned)
        at_least("compare.noise_chunk", self.noise_chunk, 1)
        at_least("compare.budget_s", self.budget_s, 0)


@dataclass
class FaultConfig(Open):
    name: str = MISSING
    seed: int = 0  # of what the damage draws at random


@dataclass
class RestoreConfig:
    strict: bool = True
    device: str | None = None  # where it goes on: cpu, cuda; null: where it was captured
    verify: str = "proof"  # digest: the bytes; identity: and the documents; proof: and one token
    map: bool | None = None  # restored tensors mapped from their files; null: where that is safe
    trusted: list[str] = field(default_factory=list)  # public keys, one of which must have signed

    def __post_init__(self) -> None:
        if self.device is not None:
            one_of("restore.device", self.device)
        one_of("restore.verify", self.verify)


@dataclass
class ReportConfig:
    """What is shown and told beside the conclusion."""

    digests: bool = False  # on the console, of the 13 elements
    verbose: bool = False  # the console says everything that the page says in lines
    objectives: list[str] = field(default_factory=list)  # figures that a search (Optuna) is told


@dataclass
class PluginsConfig:
    """Code from outside: the folder it is importable from, and what a record may name."""

    path: str | None = None
    trust: list[str] = field(default_factory=list)


@dataclass
class Config:
    """The whole job. Common keys first, then one block per group.

    ASKED: common keys that a task reads only where its YAML lists them in `reads`.
    """

    ASKED: ClassVar[tuple[str, ...]] = (
        "snapshot",
        "out",
        "at",
        "text",
        "run",
        "a",
        "b",
        "compact",
        "trusted",
        "overwrite",
        "sign",
        "encrypt",
        "decrypt",
    )

    name: str = MISSING
    seed: int = 0
    device: str = "auto"
    dtype: str = "float32"
    threads: int | None = None
    steps: int = 32
    limit_s: float | None = None  # seconds that a job, or a point of a sweep, may take
    snapshot: str | None = None
    foreign: str | None = (
        None  # task=save: a file of another program's; `from=` on the command line
    )
    out: str | None = None
    at: int | None = None  # resume: go back to where so many tokens had been processed
    text: str | None = None
    run: str | None = None
    a: str | None = None  # task=diff: the two snapshots
    b: str | None = None
    overwrite: bool = False  # `out=` may replace a snapshot
    sign: str | None = None  # private key (PEM): snapshots, records and sweeps are signed
    trusted: list[str] = field(default_factory=list)  # task=verify, task=audit: public keys
    encrypt: str | None = None  # key file or env:NAME: snapshots are written encrypted
    decrypt: str | None = None
    compact: bool = False  # task=save snapshot=DIR: write it again without references to others
    runs_dir: str = "runs"
    called: dict[str, str] = field(default_factory=dict)  # see `aliases.py`
    restore: RestoreConfig = field(default_factory=RestoreConfig)
    report: ReportConfig = field(default_factory=ReportConfig)
    plugins: PluginsConfig = field(default_factory=PluginsConfig)
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
        if self.dtype not in DTYPES:
            near = suggestion(self.dtype, DTYPES) if self.dtype[-2:].isdigit() else ""
            there = "" if "There is" in near else f" There is: {', '.join(DTYPES)}."
            raise ConfigProblem(f"dtype={self.dtype} is not possible.{near}{there}")
        if not self.name or self.name.startswith(("/", "~")) or ".." in self.name.split("/"):
            raise ConfigProblem(
                f"name={self.name} is not a folder below runs_dir={self.runs_dir}. For records "
                "elsewhere give runs_dir=DIR."
            )
        if not -(2**63) <= self.seed < 2**63:
            raise ConfigProblem(f"seed={self.seed} does not fit: give a whole number below 2**63.")
        if self.device not in ("auto", "cpu", "cuda") and not self.device.startswith("cuda:"):
            if self.device.lower() in GPUS:
                here = "" if machine.nvidia() else " This machine has none: device=cpu."
                raise ConfigProblem(
                    f"device={self.device} is not possible. Did you mean 'cuda'?{here}"
                )
            one_of("device", self.device)
        at_least("steps", self.steps, 1)
        at_least("at", self.at, 1)
        at_least("threads", self.threads, 1)
        at_least("limit_s", self.limit_s, 1)


def _unset(cls: type) -> Any:
    """An instance without running range checks, for use as a schema node only."""
    blank: Any = object.__new__(cls)
    for f in fields(cls):
        value = f.default_factory() if callable(f.default_factory) else f.default  # type: ignore[misc]
        setattr(blank, f.name, value)
    return blank


KEYS = tuple(f.name for f in fields(Config) if f.name != "called")  # that a person may set
