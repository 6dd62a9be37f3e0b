"""How the functions of `harness.api` fail: by their arguments, at the caller's line, with a plugin's own name and line."""

from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from inspect import Signature, signature
from typing import Any, ParamSpec, TypeVar

from harness import blame
from harness.errors import ConfigProblem, HarnessError, InputProblem

P = ParamSpec("P")
T = TypeVar("T")
SWAPPED = "the model comes first, then the state."


def as_api(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, whose errors end at the caller's line, without the way through this package."""

    form = signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            _bound(form, function.__name__, args, kwargs)
            return function(*args, **kwargs)
        except HarnessError as problem:
            if str(problem).endswith(SWAPPED):
                problem.args = (f"{problem} {_takes(form, function.__name__)}",)
            elif isinstance(problem, ConfigProblem) and (near := _misspelt(form, kwargs)):
                problem.args = ("{!r} is no argument. Did you mean {!r}?".format(*near),)
            raise problem.with_traceback(None) from problem.__cause__
        except Exception as problem:
            if whose := blame.author(problem):  # a class that the caller passed
                kind = type(problem).__name__
                raise ConfigProblem(
                    f"unexpected {kind}: {str(problem).rstrip('.')}. It came from {whose}"
                ) from problem
            raise

    return call


def _misspelt(form: Signature, kwargs: dict[str, Any]) -> tuple[str, str] | None:
    """An argument that this function passes on, with its own one that is written much like it."""
    parameters = [p.name for p in form.parameters.values() if p.kind is not p.VAR_KEYWORD]
    for name in kwargs:
        if name not in parameters and (near := get_close_matches(name, parameters, 1, 0.75)):
            return name, near[0]
    return None


def _bound(form: Signature, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise InputProblem for arguments that a function of this form does not take."""
    try:
        form.bind(*args, **kwargs)
    except TypeError as problem:
        kinds = ", ".join([*(type(a).__name__ for a in args), *(f"{k}=..." for k in kwargs)])
        raise InputProblem(f"{name}({kinds}): {problem}. {_takes(form, name)}") from None


def _takes(form: Signature, name: str) -> str:
    """How a function of this form is called."""
    every = form.parameters.values()
    takes = ", ".join(("**" if p.kind is p.VAR_KEYWORD else "") + p.name for p in every)
    return f"It takes {name}({takes})."
