"""A smaller State from Python: by an option, or by a class that somebody has just written."""

import inspect
import re
from collections.abc import Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from functools import partial
from typing import Any

from harness import blame, config, variants
from harness.config.option import suited
from harness.contract import agree
from harness.errors import ConfigProblem
from harness.model.loaded import Loaded
from harness.pipeline.prune import moves, policy_of, pruned, scored, without_scores
from harness.pipeline.quantize import quantizer_of
from harness.prune.base import Policy
from harness.prune.positions import reindexed
from harness.quantize.base import Quantizer
from harness.snapshot.state import State


def pruned_by(loaded: Loaded, state: State, policy: str | type, options: dict[str, Any]) -> State:
    """What `policy`, an option or a class below Policy, leaves of `state`. Raises ConfigProblem."""
    if None not in (options.get("tokens"), options.get("ratio")):
        raise ConfigProblem("tokens and ratio are two budgets: give one of them.")
    if isinstance(policy, str):
        chosen = policy_of(config.option("prune", policy, **options))
    else:
        chosen = _own("prune", policy, Policy, config.PruneConfig, options)
        chosen.check()
    if chosen is None:
        return state
    how = moves(loaded, state) if chosen.settings.positions == "reindexed" else None
    with reading(type(chosen), chosen.settings):
        small = pruned(chosen, scored(loaded, chosen, state))
    return without_scores(small if how is None else reindexed(small, how))


def quantized_by(state: State, quantizer: str | type, options: dict[str, Any]) -> State:
    """`state` as codes of `quantizer`, an option or a class below Quantizer. Raises ConfigProblem."""
    if isinstance(quantizer, str):
        chosen = quantizer_of(config.option("quantize", quantizer, **options))
        return state if chosen is None else chosen.quantize(state)
    chosen = _own("quantize", quantizer, Quantizer, config.QuantizeConfig, options)
    with reading(type(chosen), chosen.settings):
        return chosen.quantize(state)


@contextmanager
def reading(
    kind: str | type | partial[Any], settings: Any, how: str = "{key}=... beside the class"
) -> Iterator[None]:
    """A key of its `settings` that `kind`, a caller's class, reads and nobody passed, told as one: ConfigProblem.
    how: it is given, with the names of `key` and class (`called`) to fill in."""
    try:
        yield
    except AttributeError as problem:
        if isinstance(kind, str) or type(problem.obj) is not type(settings):
            raise
        called = (kind.func if isinstance(kind, partial) else kind).__name__
        raise ConfigProblem(
            f"{called} reads `settings.{problem.name}`, which was not passed: give "
            f"{how.format(key=problem.name, called=called)}."
        ) from problem


def _own(group: str, kind: Any, base: type, schema: Any, options: dict[str, Any]) -> Any:
    """An instance of a caller's class, its settings the `schema` of the group and `options`."""
    built: Any = class_of(group, kind, base)
    shared = {k: v for k, v in options.items() if k in schema.__dataclass_fields__}
    suited(group, schema, shared)
    settings = schema(name=kind.__name__, **shared)
    for key in options.keys() - shared.keys():
        near = get_close_matches(key, schema.__dataclass_fields__, n=1, cutoff=0.75)
        if near and not mentions(kind, base, key):
            raise ConfigProblem(f"'{key}' is no key of {group}. Did you mean '{near[0]}'?")
        if not mentions(kind, object, key):
            raise ConfigProblem(
                f"{kind.__name__} reads no `{key}`: nothing in it says `settings.{key}`."
            )
        setattr(settings, key, options[key])
    return built(settings)


def mentions(kind: type, base: type, key: str) -> bool:
    """Whether the code of a caller's class names `key`, which is one of its own then; so it is taken where the code
    cannot be read."""
    own = [part for part in kind.__mro__ if part not in base.__mro__]
    try:
        return any(re.search(rf"\b{re.escape(key)}\b", inspect.getsource(part)) for part in own)
    except (OSError, TypeError):  # typed into a shell
        return True


def class_of(group: str, kind: Any, base: type) -> type:
    """`kind`, a caller's class for `group`. Raises ConfigProblem unless it keeps to its `base`."""
    if isinstance(kind, base):
        name = type(kind).__name__
        raise ConfigProblem(
            f"{group}: this is an object of {name}, built already: give the class itself, {name}, and its settings as "
            "arguments beside it."
        )
    if not (isinstance(kind, type) and issubclass(kind, base)):
        public = f"harness.{group}.{variants.BASES[group]}"
        raise ConfigProblem(
            f"{group}: give the name of an option ({', '.join(variants.options(group)[:4])}, ...) or a "
            f"class below {public}, not {kind!r}."
        )
    if kind.__name__ in variants.options(group):
        raise ConfigProblem(
            f"{group}={kind.__name__}: this class has the name of an option that there is, which would be taken, and every "
            f"record would name it: call the class otherwise, say My{kind.__name__.capitalize()}."
        )
    agree(f"{group}={kind.__name__}", f"{kind.__module__}.{kind.__name__}", kind, base)
    blame.given(kind, f"{group}={kind.__name__}")
    return kind
