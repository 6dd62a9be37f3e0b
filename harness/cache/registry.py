"""Build the decoder that a `cache` option names."""

from collections.abc import Sequence
from typing import Any

from harness import config, given, variants
from harness.cache import auto
from harness.cache.base import Decoder
from harness.cache.library import LibraryDecoder
from harness.snapshot.state import State


def names() -> tuple[str, ...]:
    """Every cache implementation that can be chosen, from inside and outside."""
    return tuple(variants.options("cache"))


def check(key: str, names: Sequence[str]) -> None:
    """Raise ConfigProblem when the list `key` names a cache that there is not."""
    variants.check(key, "cache", names)


def decoder(loaded: Any, state: State, settings: Any) -> Decoder:
    """A decoder continuing from `state`, which is only read. settings: an option of `cache`.

    Raises ConfigProblem for an unknown name, UnsupportedModel when model or state do not fit.
    """
    if own := given.classes.get(str(getattr(settings, variants.TARGET, None))):
        built: Decoder = own(loaded, state, settings)
        return built
    variants.check("cache", "cache", [settings.name])
    settings = config.completed("cache", settings)
    if settings.name == auto.NAME:
        return auto.Auto(decoder, loaded, state, settings)  # type: ignore[return-value]
    return variants.variant("cache", settings, Decoder)(loaded, state, settings)


def served(decoder: Any) -> dict[str, Any]:
    """Which implementation a decoder is, and why `auto` passed over faster ones."""
    name = getattr(decoder, "served", None) or type(decoder).__module__.rpartition(".")[2]
    return {"served": name, "passed_over": dict(getattr(decoder, "refused", {}))}


def others(decoder: Any) -> tuple[str, ...]:
    """Implementations of ours to hold `decoder` against, the best first: whose code is another one's from the
    past that is read to the masks that hide some of it. Last, for a model that nothing else serves, one of
    the same kind."""
    kind, name = type(getattr(decoder, "_decoder", decoder)), served(decoder)["served"]
    library = ("dynamic", "cloned")
    order = (
        ("manual", "view", *library)
        if issubclass(kind, LibraryDecoder)
        else (*library, "manual", "view")
    )
    return tuple(other for other in order if other != name)
