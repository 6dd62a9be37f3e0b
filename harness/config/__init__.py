"""The typed configuration: `schema` declares it, `compose` builds and checks it."""

from harness.config.choice import check_typed, chosen
from harness.config.compose import points, recorded, register, typed
from harness.config.explain import explain
from harness.config.option import completed, option
from harness.config.schema import (
    DTYPES,
    MISSING,
    VERDICTS,
    CacheConfig,
    CompareConfig,
    Config,
    FaultConfig,
    ModelConfig,
    PluginsConfig,
    PromptConfig,
    PruneConfig,
    RestoreConfig,
    SamplingConfig,
    SaveConfig,
    TaskConfig,
    TokenizerConfig,
    TrackConfig,
    at_least,
    one_of,
    within,
)
from harness.variants import conf_dir, options

__all__ = [
    "CacheConfig",
    "CompareConfig",
    "Config",
    "DTYPES",
    "FaultConfig",
    "MISSING",
    "ModelConfig",
    "PluginsConfig",
    "PromptConfig",
    "PruneConfig",
    "RestoreConfig",
    "SamplingConfig",
    "SaveConfig",
    "TaskConfig",
    "TokenizerConfig",
    "TrackConfig",
    "VERDICTS",
    "at_least",
    "check_typed",
    "chosen",
    "completed",
    "conf_dir",
    "explain",
    "one_of",
    "option",
    "options",
    "points",
    "recorded",
    "register",
    "typed",
    "within",
]
