"""Metrics, noise floor, verdict, identity. Callable, see `harness.api.compare`."""

import sys

from harness.calling import Room

sys.modules[__name__].__class__ = Room
