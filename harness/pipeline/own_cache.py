"""A cache from Python: an option, or a class that somebody has just written."""

from harness import variants
from harness.cache.base import Decoder
from harness.config import CacheConfig
from harness.config.option import schema_of
from harness.given import vouched
from harness.pipeline.argument import check_name
from harness.pipeline.reduction import class_of


def cache_of(cache: str | type) -> CacheConfig:
    """How `cache`, an option or a class below Decoder, goes on. Raises InputProblem for what is neither, ConfigProblem
    for a class that does not keep to its base."""
    if not isinstance(cache, type):
        check_name(
            "cache", cache, "auto, manual, ..., or a class of yours below harness.cache.Decoder"
        )
        return CacheConfig(name=cache)
    target = vouched(class_of("cache", cache, Decoder))
    schema = schema_of("cache", cache.__name__, {variants.TARGET: target})
    chosen: CacheConfig = schema(name=cache.__name__)
    return chosen
