"""Which sampler goes on: the one that was saved, unless another is told; and what it is, in words."""

import sys
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from harness.config import Config, SamplingConfig, option, readable
from harness.errors import ConfigProblem, SnapshotInvalid


def saved_settings(documents: Mapping[str, Any], where: str) -> SamplingConfig | None:
    """The SamplingConfig in a snapshot's documents; None where none was recorded.

    Raises SnapshotInvalid for one that no harness wrote, or a newer one.
    """
    document = (documents.get("generation") or {}).get("sampler") or {}
    name = document.get("name")
    if name is None:
        return None
    known = {f.name for f in fields(SamplingConfig)} - {"seed"}
    strange = sorted(set(document) - known)
    if name not in ("greedy", "sample") or strange:
        what = f"keys {', '.join(strange)}" if strange else f"the name '{name}'"
        raise SnapshotInvalid(where, [f"its sampler has {what[:80]}, which this harness lacks"])
    try:
        return SamplingConfig(**document)
    except (ConfigProblem, TypeError) as problem:
        raise SnapshotInvalid(where, [f"its sampler is not possible: {problem}"]) from None


def resumed(cfg: Config, documents: Mapping[str, Any], where: str) -> tuple[Config, str]:
    """`cfg` with the sampler that the snapshot was saved with, unless `sampling=` was told, and one line
    that says so. Keys that were told alone go before those that were saved."""
    asked, option_told = cfg.sampling, _option_told(cfg)
    saved = None if option_told else saved_settings(documents, where)
    if saved is None:
        return cfg, _otherwise(asked, documents, where)
    changed = asked.told()
    if asked.seed is not None:
        changed["seed"] = asked.seed
    if unread := [key for key in changed if key not in readable("sampling", saved.name)]:
        raise ConfigProblem(f"sampling.{unread[0]} is not read by the saved sampler, {saved.name}.")
    line = f"sampler: as saved ({described(saved)})"
    if changed:
        line += ", but " + _pairs(changed)
    return replace(cfg, sampling=replace(saved, **changed)), line


def sampled(
    documents: Mapping[str, Any], name: str | None, seed: int | None, keys: Mapping[str, Any]
) -> tuple[SamplingConfig, str]:
    """The sampler that Python asks for and one line about it: the option `name` with `keys`, or
    without a name the saved one with `keys` in place of what it says. Raises ConfigProblem."""
    saved = saved_settings(documents, "the state") or SamplingConfig(name="greedy")
    keys = listed(keys)
    if name is not None:
        settings = option("sampling", name, **{**keys, "seed": seed})
        return settings, _otherwise(settings, documents, "the state")
    settings = option("sampling", saved.name, **{**saved.told(), **keys, "seed": seed})
    changed = dict(keys) if seed is None else {**keys, "seed": seed}
    changes = f", but {_pairs(changed)}" if changed else ""
    return settings, f"sampler: as saved ({described(saved)}){changes}"


def listed(keys: Mapping[str, Any]) -> dict[str, Any]:
    """`keys` of the group `sampling` with one `stop` text as a list of it, as the library's `stop_strings` takes it."""
    stop = keys.get("stop")
    return {**keys, "stop": [stop]} if isinstance(stop, str) else dict(keys)


def described(settings: SamplingConfig) -> str:
    """`top_p 0.9, temperature 0.8`; `greedy` where nothing else is told."""
    pairs = _pairs(settings.told())
    return (
        settings.name if not pairs else pairs if settings.name == "sample" else f"greedy, {pairs}"
    )


def _otherwise(settings: SamplingConfig, documents: Mapping[str, Any], where: str) -> str:
    now = settings.name if settings.name == "generation_config" else described(settings)
    try:
        before = saved_settings(documents, where)
    except SnapshotInvalid:
        before = None
    if before is None:
        return f"sampler: {now}; none was saved that could go on"
    begun = "" if settings.seed is None else f", seed {settings.seed}"
    if now == described(before):
        return f"sampler: as saved ({now}){begun and ', but'}{begun[1:]}"
    return f"sampler: {now}{begun}, told otherwise; saved with {described(before)}"


def _option_told(cfg: Config) -> bool:
    """Whether the command line, a task or an experiment chose an option of `sampling`."""
    typed = any(a.lstrip("+").startswith("sampling=") for a in sys.argv[1:])
    return typed or cfg.sampling.name != "greedy"


def _pairs(values: Mapping[str, Any]) -> str:
    return ", ".join(f"{key} {value}" for key, value in sorted(values.items(), reverse=True))
