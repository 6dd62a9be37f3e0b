"""The typed configuration: `schema` declares it, `compose` builds and checks it."""

from harness.config.compose import conf_dir, options, points, recorded, register, typed
from harness.config.explain import explain
from harness.config.schema import (
    DTYPES,
    MISSING,
    VERDICTS,
    CacheConfig,
    CompareConfig,
    Config,
    FaultConfig,
    ModelConfig,
    PromptConfig,
    PruneConfig,
    RestoreConfig,
    SamplingConfig,
    SaveConfig,
    TaskConfig,
    TokenizerConfig,
    TrackConfig,
)

__all__ = [
    "DTYPES",
    "MISSING",
    "VERDICTS",
    "CacheConfig",
    "CompareConfig",
    "Config",
    "FaultConfig",
    "ModelConfig",
    "PromptConfig",
    "PruneConfig",
    "RestoreConfig",
    "SamplingConfig",
    "SaveConfig",
    "TaskConfig",
    "TokenizerConfig",
    "TrackConfig",
    "conf_dir",
    "explain",
    "options",
    "points",
    "recorded",
    "register",
    "typed",
]
