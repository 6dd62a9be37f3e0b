"""How far long work is. Whoever does it counts; somebody may look, and as a rule nobody does.

Only the outermost count is shown: an evaluation of 200 prompts, not the prefill of each. Each thread has
its own, so work behind a page is not counted on the terminal.
"""

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")


class Display(Protocol):
    """Shows one count at a time. close: so closely that the layers of a pass are worth counting."""

    @property
    def close(self) -> bool: ...
    def begin(self, what: str, total: float) -> None: ...
    def advance(self, by: float) -> None: ...
    def end(self) -> None: ...


class _Look(threading.local):
    display: Display | None = None
    busy = False  # a count is being shown


_look = _Look()


def show_on(display: Display | None) -> None:
    """Let `display` show what this thread counts from now on; None: nobody looks."""
    _look.display, _look.busy = display, False


@contextmanager
def counting(what: str, total: float) -> Iterator[Callable[[float], None]]:
    """Count up to `total` inside the block: the function it gives takes how much more is done."""
    display = _look.display
    if display is None or _look.busy:
        yield lambda by: None
        return
    _look.busy = True
    display.begin(what, total)
    try:
        yield display.advance
    finally:
        display.end()
        _look.busy = False


def over(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """`items`, counted one by one."""
    with counting(what, total) as done:
        for item in items:
            yield item
            done(1)


@contextmanager
def passes(model: Any, layers: int, what: str, tokens: int) -> Iterator[None]:
    """Count the forward passes of `model` (its `layers` decoder layers) over `tokens` tokens, layer
    by layer. Hooks are there only inside the block, and only where somebody looks closely."""
    display = _look.display
    if display is None or _look.busy or not display.close:
        yield
        return
    with counting(what, tokens * layers) as done:
        hooks = [
            layer.register_forward_hook(lambda module, inputs, output: done(_tokens(output)))
            for layer in _layers(model, layers)
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()


def _layers(model: Any, layers: int) -> Iterable[Any]:
    """The first list of as many modules as the model has layers: every family keeps one."""
    lists = (m for m in model.modules() if type(m).__name__ == "ModuleList" and len(m) == layers)
    return next(lists, ())


def _tokens(output: Any) -> int:
    hidden = output[0] if isinstance(output, tuple) else output
    batch, tokens = (*getattr(hidden, "shape", ()), 0, 0)[:2]
    return int(batch * tokens)
