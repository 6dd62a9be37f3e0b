"""The typed configuration: `schema` declares it, `compose` builds and checks it."""

from harness.config.choice import check_typed, unheeded
from harness.config.compose import check_keys, register, typed, unread_keys
from harness.config.explain import explain
from harness.config.grid import jobs
from harness.config.key import at_least, one_of, within
from harness.config.option import completed, option, readable, shared, sibling
from harness.config.sampling import SamplingConfig
from harness.config.schema import (
    DTYPES,
    MISSING,
    VERDICTS,
    CacheConfig,
    CompareConfig,
    Config,
    EngineConfig,
    FaultConfig,
    ModelConfig,
    PluginsConfig,
    PromptConfig,
    PruneConfig,
    QuantizeConfig,
    RestoreConfig,
    SaveConfig,
    TaskConfig,
    TokenizerConfig,
)
from harness.config.stored import composed, recorded, settled, values, written
from harness.config.tracking import TrackConfig
from harness.variants import conf_dir, options

__all__ = [
    "DTYPES",
    "MISSING",
    "VERDICTS",
    "CacheConfig",
    "CompareConfig",
    "Config",
    "EngineConfig",
    "FaultConfig",
    "ModelConfig",
    "PluginsConfig",
    "PromptConfig",
    "PruneConfig",
    "QuantizeConfig",
    "RestoreConfig",
    "SamplingConfig",
    "SaveConfig",
    "TaskConfig",
    "TokenizerConfig",
    "TrackConfig",
    "at_least",
    "check_keys",
    "check_typed",
    "completed",
    "composed",
    "conf_dir",
    "explain",
    "jobs",
    "one_of",
    "option",
    "options",
    "readable",
    "recorded",
    "register",
    "settled",
    "shared",
    "sibling",
    "typed",
    "unheeded",
    "unread_keys",
    "values",
    "within",
    "written",
]
