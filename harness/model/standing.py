"""How a model stands, beside the numbers of its weights: everything else that its modules compute by.

A model in use can be changed between two looks at it: a hook, a switch to training, an edited config, a
scaling factor. No digest of a weight shows that, so what was derived from the model (its identity, the
float64 oracle, the twin) is derived anew when this differs. Nothing is mutated.
"""

from collections.abc import Iterator
from typing import Any

from harness.errors import InputProblem
from harness.model.identity import adapts
from harness.model.ledger import laid

_PLAIN = (bool, int, float, str, type(None))
_HOOKS = ("_forward_hooks", "_forward_pre_hooks")
# what a forward itself leaves behind: the longest context so far
_LEFT = ("max_seq_len_cached",)


def standing(model: Any) -> tuple[Any, ...]:
    """Comparable; equal as long as no module, hook, setting or config changed. Our own hooks, which
    look and are gone again, do not count. Raises InputProblem for a model in training mode, whose
    forward is not repeatable."""
    modules = tuple((path, id(m), *_settings(path, m)) for path, m in model.named_modules())
    configs = {id(c): c for m in model.modules() if (c := getattr(m, "config", None)) is not None}
    return modules, tuple(repr(c.to_dict()) for c in configs.values() if hasattr(c, "to_dict"))


def _settings(path: str, module: Any) -> Iterator[Any]:
    if module.training and _random(module):
        where = f" ({path})" if path else ""
        raise InputProblem(
            f"the model is in training mode{where}, where dropout acts: call model.eval()."
        )
    for name, value in vars(module).items():
        if isinstance(value, _PLAIN) and not name.endswith(_LEFT):
            yield name, value
    for kind in _HOOKS:
        yield from (id(h) for h in getattr(module, kind).values() if not _ours(h))
    for name, buffer in module.named_buffers(recurse=False):
        if not adapts(module, name):
            yield name, laid(buffer)
    if (forward := vars(module).get("forward")) is not None:
        yield id(forward)


def _random(module: Any) -> bool:
    """Whether `module` may draw where it trains: any rate or noise that is not zero."""
    named = ((name, value) for name, value in vars(module).items() if type(value) is float)
    return any(v > 0 and (n == "p" or "drop" in n or "noise" in n) for n, v in named)


def _ours(hook: Any) -> bool:
    return str(getattr(hook, "__module__", "")).split(".")[0] == "harness"
