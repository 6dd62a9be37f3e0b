"""A cache from Python: an option, or a class that somebody has just written."""

from contextlib import AbstractContextManager
from functools import partial
from typing import Any

from harness import variants
from harness.cache.base import Decoder
from harness.config import CacheConfig
from harness.config.option import schema_of
from harness.errors import ConfigProblem
from harness.given import vouched
from harness.pipeline.argument import check_name
from harness.pipeline.reduction import class_of, mentions, reading

Cache = str | type | partial[Any]


def cache_of(cache: Cache) -> CacheConfig:
    """How `cache`, an option or a class below Decoder, goes on; of a `functools.partial` of a class with the keys that
    its settings have. Raises InputProblem for what is neither, ConfigProblem for a class that does not keep to its base."""
    keys: dict[str, Any] = cache.keywords if isinstance(cache, partial) else {}
    if isinstance(cache, partial):
        if cache.args or not isinstance(cache.func, type):
            raise ConfigProblem(
                "cache: a partial is of a class, with its settings by name: functools.partial(MyCache, bits=4)."
            )
        cache = cache.func
    if not isinstance(cache, type):
        check_name(
            "cache", cache, "auto, manual, ..., or a class of yours below harness.cache.Decoder"
        )
        return CacheConfig(name=cache)
    if unread := [key for key in keys if not mentions(cache, object, key)]:
        raise ConfigProblem(
            f"{cache.__name__} reads no `{unread[0]}`: nothing in it says `settings.{unread[0]}`."
        )
    target = vouched(class_of("cache", cache, Decoder))
    schema = schema_of("cache", cache.__name__, {variants.TARGET: target, **keys})
    chosen: CacheConfig = schema(name=cache.__name__)
    return chosen


def cache_reading(cache: Cache, settings: CacheConfig) -> AbstractContextManager[None]:
    """As `reduction.reading`, of a cache, whose class has its keys from a partial."""
    return reading(cache, settings, "it with the class, as functools.partial({called}, {key}=...)")
