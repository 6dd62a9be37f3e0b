"""What is told of a sweep and older versions did not tell: an audit of their records derives it without."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_TOLD: ContextVar[bool] = ContextVar("told", default=True)


def told() -> bool:
    """Whether it is told now."""
    return _TOLD.get()


@contextmanager
def without() -> Iterator[None]:
    """Everything inside is derived as older versions told it."""
    before = _TOLD.set(False)
    try:
        yield
    finally:
        _TOLD.reset(before)
