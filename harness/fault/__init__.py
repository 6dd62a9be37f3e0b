"""Faults: one damage each. `Fault` is the base of your own."""

from typing import TYPE_CHECKING

from harness.variants import lazily

if TYPE_CHECKING:
    from harness.fault.base import Fault

__all__ = ["Fault"]
__getattr__ = lazily(Fault="harness.fault.base")
