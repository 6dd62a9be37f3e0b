"""Formats: written atomically, read only after verification. Callable, see `harness.api.save`."""

import sys

from harness.calling import Room

sys.modules[__name__].__class__ = Room
