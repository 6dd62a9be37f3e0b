"""Prove that a paused transformer, brought back, is still thinking the same thought.

The Python API, six names: `load_model`, `capture`, `save`, `load`, `resume`, `compare`; see
`harness.api` for shapes and errors. Nothing heavy is imported before one of them is used.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["capture", "compare", "load", "load_model", "resume", "save"]

_ROOMS = ("capture", "compare", "save")  # packages that can be called, see `harness.calling`


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return import_module(f"harness.{name}")
    if name in __all__:
        return getattr(import_module("harness.api"), name)
    raise AttributeError(f"module 'harness' has no attribute '{name}'")
