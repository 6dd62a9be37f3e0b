"""The typed configuration: `schema` declares it, `compose` builds and checks it."""

from harness.config.choice import check_typed, chosen, unheeded
from harness.config.compose import check_keys, register, typed
from harness.config.explain import explain
from harness.config.grid import jobs, once, repeated
from harness.config.key import at_least, one_of, within
from harness.config.option import completed, option, readable, shared, sibling
from harness.config.own import check_files
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
    "check_files",
    "check_keys",
    "check_typed",
    "chosen",
    "completed",
    "composed",
    "conf_dir",
    "explain",
    "jobs",
    "once",
    "one_of",
    "option",
    "options",
    "readable",
    "recorded",
    "register",
    "repeated",
    "settled",
    "shared",
    "sibling",
    "typed",
    "unheeded",
    "values",
    "within",
    "written",
]
