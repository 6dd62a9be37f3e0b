"""How far long work is. Whoever does it counts; somebody may look, and as a rule nobody does.

Only the outermost count is shown: an evaluation of 200 prompts, not the prefill of each. Each thread has
its own, so work behind a page is not counted on the terminal.
"""

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol, TypeVar

Item = TypeVar("Item")
FEWEST = 16  # tokens; a call of fewer takes about as long, since the weights are read all the same


class Display(Protocol):
    """Shows one count at a time. close: so closely that the layers of a pass are worth counting."""

    @property
    def close(self) -> bool: ...
    def begin(self, what: str, total: float) -> None: ...
    def advance(self, by: float) -> None: ...
    def name(self, what: str, still: bool = False) -> None:
        """What goes on now, of what was begun. still: nothing of it is counted for a while."""

    def end(self) -> None: ...


class _Look(threading.local):
    display: Display | None = None
    busy = False  # a count is being shown
    whole = False  # that is made of counts


_look = _Look()


def show_on(display: Display | None) -> None:
    """Let `display` show what this thread counts from now on; None: nobody looks."""
    _look.display, _look.busy, _look.whole = display, False, False


@contextmanager
def looked_at_by(display: Display | None) -> Iterator[None]:
    """Let `display` show what this thread counts inside the block, where nobody else does."""
    before = _look.display
    if before is None:
        show_on(display)
    try:
        yield
    finally:
        if before is None:
            show_on(None)


@contextmanager
def counting(what: str, total: float, worth: float = 0.0) -> Iterator[Callable[[float], None]]:
    """Count up to `total` inside the block: the function it gives takes how much more is done. worth: how
    much that is of a `whole` around it, which is shown instead, under the name `what`."""
    display = _look.display
    if display is None or (_look.busy and not (_look.whole and worth)):
        yield lambda by: None
        return
    if _look.whole:
        _look.whole = False  # what is counted inside this one is not
        display.name(what)
        left = worth

        def share(by: float) -> None:
            nonlocal left
            part = min(by / total * worth, left)
            left -= part
            display.advance(part)

        try:
            yield share
        finally:
            display.advance(left)
            _look.whole = True
        return
    _look.busy = True
    display.begin(what, total)
    try:
        yield display.advance
    finally:
        display.end()
        _look.busy = False


@contextmanager
def whole(what: str, total: float) -> Iterator[None]:
    """The counts inside the block that are worth something are shown as one, of `total`."""
    before, shown = _look.whole, _look.display is not None and not _look.busy
    with counting(what, total):
        _look.whole = shown
        try:
            yield
        finally:
            _look.whole = before


@contextmanager
def meanwhile(what: str) -> Iterator[None]:
    """What is counted stands still inside the block, for this reason, which is shown where somebody looks."""
    display = _look.display if _look.busy else None
    if display is not None:
        display.name(what, still=True)
    try:
        yield
    finally:
        if display is not None:
            display.name("")


def over(items: Iterable[Item], what: str, total: int) -> Iterator[Item]:
    """`items`, counted one by one."""
    with counting(what, total) as done:
        for item in items:
            yield item
            done(1)


def weight(calls: Iterable[int]) -> float:
    """How many tokens' work calls of so many tokens are, one of fewer than `FEWEST` that of as many."""
    return sum(max(tokens, FEWEST) for tokens in calls)


def pieces(tokens: int, chunk: int | None) -> list[int]:
    """`tokens` in calls of `chunk` each, the rest in the last one; in one call for None."""
    size = chunk or max(tokens, 1)
    return [min(size, tokens - start) for start in range(0, tokens, size)]


@contextmanager
def passes(
    model: Any, layers: int, what: str, calls: Sequence[int], worth: float = 0.0
) -> Iterator[None]:
    """Count the forward passes of `model` (its `layers` decoder layers, and what comes after them) over
    `calls`, the tokens of each, layer by layer. Hooks are there only inside the block, and only where
    somebody looks closely; to others a pass that is `worth` something is done at its end."""
    display, last = _look.display, 0
    if display is None or (_look.busy and not (_look.whole and worth)) or not display.close:
        with counting(what, 1, worth) if _look.whole else nullcontext():
            yield
        return

    def layer(module: Any, inputs: Any, output: Any) -> None:
        nonlocal last
        last = max(_tokens(output), FEWEST)
        done(last)

    with counting(what, weight(calls) * (layers + 1), worth) as done:
        hooks = [one.register_forward_hook(layer) for one in _layers(model, layers)]
        hooks.append(model.register_forward_hook(lambda *_: done(last)))
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
