"""Faults: one damage each. `Fault` is the base of your own."""

from harness.variants import lazily

__getattr__ = lazily(Fault="harness.fault.base")
