"""The control: nothing is damaged."""

from harness.fault.base import Fault


class None_(Fault):
    """Overrides no hook."""
