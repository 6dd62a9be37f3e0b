"""Rooms that can be called: `harness.save(state, out)` is the Python API's `save`, and
`harness.save.store` is still the room's own module."""

from importlib import import_module
from types import ModuleType
from typing import Any


class Room(ModuleType):
    """A package whose call is the function of the same name in `harness.api`."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        function = getattr(import_module("harness.api"), self.__name__.rpartition(".")[2])
        return function(*args, **kwargs)
