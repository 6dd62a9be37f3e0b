"""The typed schema of every config group. Plain dataclasses: imports no room and nothing heavy.

Types are checked by Hydra while it composes, ranges by `__post_init__` once composition is done.
"""

import os
import re
from dataclasses import dataclass, field, fields, is_dataclass
from math import prod
from pathlib import Path
from typing import Any

from harness.arguments import decode_literal, plain
from harness.errors import ConfigProblem, suggestion

MISSING = "???"  # omegaconf's marker for a value that must be given

DTYPES = ("float32", "bfloat16", "float16", "float64")
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
    only: list[str] = field(default_factory=list)  # claims: these instead of all
    turns: list[dict[str, str]] = field(default_factory=list)  # chat: `ask` and maybe `expect`
    system: str | None = None  # chat
    on_mismatch: str = "repair"  # chat: repair or refuse
    naive: bool = True  # chat: time naive re-processing as well
    verify: bool = True  # chat: resume after every turn

    def __post_init__(self) -> None:
        at_least("task.every", self.every, 1)
        at_least("task.top", self.top, 0)
        one_of("task.on_mismatch", self.on_mismatch, ("repair", "refuse"))


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
    attention: str = "sdpa"

    def __post_init__(self) -> None:
        one_of("model.attention", self.attention, ("sdpa", "eager"))
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
    protect: int | str = (
        0  # leading tokens never dropped; "prefix": BOS, template head, system text
    )
    shared: bool = False  # one choice for all layers instead of one per layer
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
        at_least("prune.sinks", self.sinks, 0)
        at_least("prune.window", self.window, 1)
        at_least("prune.pool", self.pool, 1)
        if not 0 <= self.recent <= 1:
            raise ConfigProblem(
                f"prune.recent={self.recent} is not possible: give 0 <= recent <= 1."
            )


@dataclass
class SaveConfig:
    name: str = MISSING
    level: int | None = None
    codec: str | None = None
    shuffle: str | None = None
    compact: bool = False
    sync: bool = True


@dataclass
class PromptConfig:
    name: str = MISSING
    turns: list[dict[str, str]] = field(default_factory=list)
    text: str | None = None
    path: str | None = None
    definitions: int = 4
    distance: int = 128  # recall only: tokens between the definition and the question
    seed: int = 0
    batch: int = 1
    chunk: int | None = None  # prefill in chunks of so many tokens

    def __post_init__(self) -> None:
        at_least("prompt.batch", self.batch, 1)
        at_least("prompt.chunk", self.chunk, 1)
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
    seed: int = 0


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
    runs_dir: str = "runs"
    restore: RestoreConfig = field(default_factory=RestoreConfig)
    task: TaskConfig = field(default_factory=TaskConfig)
    model: ModelConfig = field(default_factory=lambda: _unset(ModelConfig))
    tokenizer: TokenizerConfig = field(default_factory=TokenizerConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)
    save: SaveConfig = field(default_factory=SaveConfig)
    prompt: PromptConfig = field(default_factory=PromptConfig)
    sampling: SamplingConfig = field(default_factory=SamplingConfig)
    compare: CompareConfig = field(default_factory=CompareConfig)
    fault: FaultConfig = field(default_factory=FaultConfig)
    track: TrackConfig = field(default_factory=TrackConfig)

    def __post_init__(self) -> None:
        one_of("dtype", self.dtype, DTYPES)
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


def conf_dir() -> Path:
    """Where the YAML lives: inside the package in a wheel, beside it in a checkout."""
    here = Path(__file__).resolve().parent
    return here / "conf" if (here / "conf").is_dir() else here.parent / "conf"


def register(token: str | None = None) -> str:
    """Put the schema into Hydra's config store and declare the resolvers the YAML uses.

    Returns the token that makes a run directory's name unique; a sweep's workers are given it.
    """
    from hydra.core.config_store import ConfigStore
    from omegaconf import OmegaConf

    token = token or f"{os.getpid():x}{os.urandom(3).hex()}"
    OmegaConf.register_new_resolver("unique", lambda: token, replace=True)
    OmegaConf.register_new_resolver("literal", decode_literal, replace=True)
    ConfigStore.instance().store(name="schema", node=Config)
    return token


def points(overrides: list[str]) -> int:
    """How many jobs these sweep overrides give."""
    from hydra.core.override_parser.overrides_parser import OverridesParser

    parsed = {o.get_key_element(): o for o in OverridesParser.create().parse_overrides(overrides)}
    swept = [o for o in parsed.values() if o.is_sweep_override()]
    return prod(len(list(o.sweep_string_iterator())) for o in swept)


def recorded(path: Path) -> Config:
    """The checked `Config` of a run's `.hydra/config.yaml`. A record is data: references inside it
    and our own `literal` are resolved, nothing else (no environment, no file, no class)."""
    import yaml
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    register()
    text = path.read_text("utf-8")
    if foreign := set(re.findall(r"\$\{\s*([\w.]+)\s*:", text)) - {"literal"}:
        raise ConfigProblem(f"{path} uses {', '.join(sorted(foreign))}, which no record needs.")
    try:
        tree = OmegaConf.create(text)
        return typed(OmegaConf.merge(OmegaConf.structured(Config), tree))
    except (OmegaConfBaseException, ValueError, TypeError, yaml.YAMLError) as problem:
        raise ConfigProblem(f"{path} is no configuration: {str(problem).splitlines()[0]}") from None


def typed(cfg: Any) -> Config:
    """Turn a composed DictConfig into a checked `Config`; unknown keys are errors with a suggestion."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    _reject_unknown(OmegaConf.to_container(cfg, resolve=False), Config, "")
    try:
        checked: Any = OmegaConf.to_object(cfg)
    except OmegaConfBaseException as problem:
        key = getattr(problem, "full_key", None) or "a key"
        raise ConfigProblem(f"{key}: {str(problem).splitlines()[0]}") from problem
    checked.text, checked.prompt.text = plain(checked.text), plain(checked.prompt.text)
    return checked


def _reject_unknown(node: dict[str, Any], schema: type, prefix: str) -> None:
    known = {f.name: f.type for f in fields(schema)}
    for key, value in node.items():
        if key not in known:
            near = suggestion(key, list(known))
            raise ConfigProblem(f"'{prefix}{key}' is not a key of the configuration.{near}")
        inner = known[key]
        if isinstance(inner, type) and is_dataclass(inner) and isinstance(value, dict):
            _reject_unknown(value, inner, f"{prefix}{key}.")


def explain(problem: Exception, given: list[str]) -> str | None:
    """One plain message for a Hydra or OmegaConf composition error; None for any other exception."""
    from hydra.errors import HydraException
    from omegaconf.errors import OmegaConfBaseException

    if not isinstance(problem, HydraException | OmegaConfBaseException):
        return None
    cause = problem.__cause__ or problem
    text = str(problem).strip()
    for argument in given:
        key, equals, value = argument.partition("=")
        key = key.lstrip("+~")
        if not equals or key.startswith("hydra"):
            continue
        if (conf_dir() / key).is_dir():
            options = sorted(p.stem for p in (conf_dir() / key).glob("*.yaml"))
            for option in value.split(","):
                if f"'{key}/{option}'" in text:
                    return f"{argument}: '{option}' is not an option of {key}.{suggestion(option, options)}"
        elif (near := _unknown_key(key)) is not None:
            return f"{argument}: '{key}' is not a key of the configuration.{near}"
    first = str(cause).strip().splitlines()[0]
    line = text.splitlines()[0]
    return line if first in line else f"{line.rstrip('.')}: {first}"


def _unknown_key(key: str) -> str | None:
    """A suggestion when `key` (dotted) is no key of the schema; None when it is one."""
    schema: type = Config
    parts = key.split(".")
    for i, part in enumerate(parts):
        known = {f.name: f.type for f in fields(schema)}
        if part not in known:
            groups = [*known, "experiment"] if i == 0 else list(known)
            return suggestion(part, groups)
        inner = known[part]
        if not (isinstance(inner, type) and is_dataclass(inner)):
            return None
        schema = inner
    return None
