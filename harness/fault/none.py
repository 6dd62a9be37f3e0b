"""The control: nothing is damaged."""

from harness.fault.base import Fault

FAULTS = (Fault(),)
