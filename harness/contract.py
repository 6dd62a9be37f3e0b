"""What a variant from outside owes its base: checked where it is imported, before any weights are
loaded, and at every call, so that a mistake is told by its name and its line."""

from collections.abc import Callable, Iterator
from difflib import get_close_matches
from functools import wraps
from inspect import Signature, getsourcefile, getsourcelines, isfunction, signature, unwrap
from typing import Any, ClassVar, get_args, get_origin, get_type_hints

from harness.errors import ConfigProblem

_GUARDED = "__guarded__"


def agree(what: str, target: str, built: type, base: type) -> None:
    """Raise ConfigProblem where `built`, the class that `target` names, cannot stand in for `base`:
    a method or a class attribute is missing, has other arguments, or none is overridden at all. Its
    methods are guarded from here on: what they return is checked, and what they are only to read.

    what: who asks for it (`prune=mine`), for messages.
    """
    if _GUARDED in vars(built):
        return
    public = f"{'.'.join(base.__module__.split('.')[:2])}.{base.__name__}"
    theirs = _overridden(built)
    missing = sorted(getattr(built, "__abstractmethods__", ())) or _unset(built)
    if not theirs and not missing:
        missing = [
            name
            for name in dir(built)
            if name not in vars(built) and _public(getattr(built, name, None), name)
        ]
        hint = _hint(built, missing)
        raise ConfigProblem(
            f"{what}: {target} overrides nothing of {public}, so it would do nothing.{hint} "
            f"Write one of {', '.join(missing)}.{_defined(built)}"
        )
    if missing:
        hint = _hint(built, missing)
        raise ConfigProblem(
            f"{what}: {target} has no `{missing[0]}`, which {public} needs.{hint}{_defined(built)}"
        )
    for name, (ours, method) in theirs.items():
        wanted = [p for p in signature(ours).parameters.values() if p.kind in (0, 1)]
        try:
            signature(method).bind(*wanted)
        except TypeError:
            raise ConfigProblem(
                f"{what}: `{name}` in {_line(method)} does not take what {public} gives it: "
                f"{name}({', '.join(p.name for p in wanted)})."
            ) from None
        if name != "__init__":
            setattr(built, name, _guard(what, name, ours, method, _about(built, name)))
    setattr(built, _GUARDED, True)


def _overridden(built: type) -> dict[str, tuple[Callable[..., Any], Callable[..., Any]]]:
    """Public methods (and `__init__`) that a class from outside puts in place of ours: both of them."""
    ours = [kind for kind in built.__mro__ if _ours(kind, built)]
    both = {}
    for kind in built.__mro__:
        if kind in ours or kind.__module__ == "builtins":
            continue
        for name, method in vars(kind).items():
            first = next((vars(k)[name] for k in ours if name in vars(k)), None)
            if _public(first, name) and isfunction(method) and name not in both:
                both[name] = (first, method)
    return both  # type: ignore[return-value]


def _ours(kind: type, built: type) -> bool:
    """Whether `kind`, a base of `built`, is of this package: not what lies beside `built` itself."""
    return kind.__module__.startswith("harness.") and kind.__module__ != built.__module__


def _public(method: Any, name: str) -> bool:
    return isfunction(method) and (name == "__init__" or not name.startswith("_"))


def _unset(built: type) -> list[str]:
    """Class attributes that a base declares without a value, and `built` has not got."""
    declared = (
        (name, kind)
        for base in built.__mro__
        for name, kind in vars(base).get("__annotations__", {}).items()
    )
    return [
        name
        for name, kind in declared
        if (kind is ClassVar or get_origin(kind) is ClassVar) and not hasattr(built, name)
    ]


def _hint(built: type, missing: list[str]) -> str:
    """The method of `built` that was meant to be one of `missing`, if it looks like it."""
    names = [name for name in vars(built) if not name.startswith("__")]
    for name in names:
        if near := get_close_matches(name, missing, n=1, cutoff=0.7):
            return f" It has `{name}`: is `{near[0]}` meant?"
    return ""


def _about(built: type, name: str) -> str:
    """What the bases of `built` say of their method `name`, the first paragraph."""
    said = (
        vars(kind)[name].__doc__
        for kind in built.__mro__
        if _ours(kind, built) and name in vars(kind)
    )
    return " ".join(next(filter(None, said), "").partition("\n\n")[0].split())


def _guard(
    what: str, name: str, ours: Callable[..., Any], method: Callable[..., Any], about: str
) -> Callable[..., Any]:
    """`method`, whose result and whose manners are checked at every call."""
    wanted = _result(ours)

    @wraps(method)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        read = [*args, *kwargs.values(), getattr(self, "past", None)]
        before = list(_versions(read))
        value = method(self, *args, **kwargs)
        for (part, was), (_, now) in zip(before, _versions(read)):
            if was != now:
                raise ConfigProblem(
                    f"{what}: `{name}` in {_line(method)} wrote into {part}, which is only to be read: "
                    "what was handed to it is spoiled now, capture or load it again. Make a new tensor "
                    "(`x * 2`, not `x.mul_(2)`)."
                )
        if wanted is None or (isinstance(value, wanted) and value is not None):
            return value
        said = "None" if value is None else f"a {type(value).__name__}"
        kind = f", not `{wanted.__name__}`" if wanted is not object else ""
        raise ConfigProblem(
            f"{what}: `{name}` in {_line(method)} returned {said}{kind}. What it has to give: {about}"
        )

    return call


def _result(ours: Callable[..., Any]) -> type | None:
    """The class that a method of ours says it returns; `object` for anything but None, None where
    None is a result as well."""
    try:
        hint = get_type_hints(ours).get("return")
    except NameError:
        hint = signature(ours).return_annotation
    if hint in (None, type(None), Signature.empty) or type(None) in get_args(hint):
        return None
    plain = isinstance(hint, type) and get_origin(hint) is None and hint is not Any
    return hint if plain else object


def _versions(objects: list[Any]) -> Iterator[tuple[str, int]]:
    """How often each tensor among `objects`, or in a State or a layer among them, was written to."""
    for thing in objects:
        if hasattr(thing, "_version") and not thing.is_inference():
            yield "its argument", thing._version
        elif hasattr(thing, "tensors") and not isinstance(thing, type):
            yield from (
                (f"{name} of the state", tensor._version)
                for name, tensor in thing.tensors()
                if not tensor.is_inference()
            )


def _defined(built: type) -> str:
    """` It is in file:line.`, where that can be said."""
    try:
        return f" It is in {getsourcefile(built)}:{getsourcelines(built)[1]}."
    except (OSError, TypeError):
        return ""


def _line(method: Callable[..., Any]) -> str:
    code = unwrap(method).__code__
    return f"{code.co_filename}:{code.co_firstlineno}"
