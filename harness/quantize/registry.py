"""Build the quantizer that a `quantize` option names."""

from harness import config, variants
from harness.config import QuantizeConfig
from harness.quantize.base import Quantizer


def names() -> list[str]:
    """Every quantizer that can be chosen, from inside and outside."""
    return [name for name in variants.options("quantize") if name != "none"]


def quantizer(settings: QuantizeConfig) -> Quantizer:
    """The quantizer that `settings` (an option of `quantize`) declares. Raises ConfigProblem."""
    built = variants.variant("quantize", settings, Quantizer)
    return built(config.completed("quantize", settings))
