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
    EngineConfig,
    FaultConfig,
    ModelConfig,
    PromptConfig,
    PruneConfig,
    QuantizeConfig,
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
    "EngineConfig",
    "FaultConfig",
    "ModelConfig",
    "PromptConfig",
    "PruneConfig",
    "QuantizeConfig",
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


def sibling(group, settings, name, **keys):
    from dataclasses import fields, replace

    import yaml

    given = yaml.safe_load((conf_dir() / group / f"{name}.yaml").read_text())
    known = {f.name for f in fields(settings)}
    both = {**{k: v for k, v in given.items() if k in known}, **keys, "name": name}
    if settings.name == name:
        both = {**both, **{k: v for k, v in vars(settings).items() if k not in keys}}
    return replace(settings, **both)
