"""One message, two callers: what it says in the keys of the command line, in the arguments of Python."""

import re
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from inspect import Signature, signature
from typing import Any, ParamSpec, TypeVar

from harness import blame
from harness.errors import ConfigProblem, HarnessError, InputProblem

P = ParamSpec("P")
T = TypeVar("T")
# key of the command line -> argument of the functions in `harness.api`
ARGUMENTS = {
    "restore.strict": "strict", "restore.verify": "verify", "restore.trusted": "trusted",
    "trusted": "trusted", "overwrite": "overwrite", "sign": "sign", "encrypt": "encrypt",
    "decrypt": "decrypt", "out": "out", "snapshot": "source", "model.path": "source",
    "model.attention": "attention", "device": "device", "dtype": "dtype", "steps": "steps",
    "cache": "cache", "sampling": "sampling", "save": "format", "tokenizer": "policy", "at": "at",
    "text": "text", "prune": "policy", "quantize": "quantizer",
}  # fmt: skip
NOT_HERE = {  # what the command line says of places that Python has no argument for
    "model=path model.path=DIR": "the directory as `source`",
    "model=path model.path=": "model=",
    ", runs_dir=DIR": "",
    "or give model.tokenizer=DIR; with model.tokenizer=ids a text is its ids": "or take the model object without one, "
    "harness.wrap(model), with which a text is its ids",
    "may be all it takes": "may be all it takes (of a model object: model.to(that dtype))",
    " is not a key of the configuration": " is no argument here",
}
# Groups whose own keys are arguments by their own names.
OPTIONS = ("save", "sampling", "prune", "quantize")
_COMMAND = r"(?:python -m harness )?task=\w+(?: [\w.]+=\S*[\w\]])*"
_KEY = r"(?<![\w.=+])(?P<key>[a-z_]+(?:\.\w+)?)=(?P<value>(?:env:)?[^\s,;:()]*\w\]?(?::\d+)?)"
_WORD = rf"(?<![\w.])(?:{'|'.join(OPTIONS)})\.(?P<word>\w+)"
_SPELLED = re.compile(rf"(?P<command>{_COMMAND})|{_KEY}|{_WORD}")


def in_python(text: str) -> str:
    """`text` with every `key=value` and `group.key` that an argument stands for in the argument's place;
    whole commands of the shell stay, and look like them."""
    for said, here in NOT_HERE.items():
        text = text.replace(said, here)
    return _SPELLED.sub(_argument, text)


def _argument(match: re.Match[str]) -> str:
    if command := match["command"]:
        prefix = "" if command.startswith("python") else "python -m harness "
        return f"`{prefix}{command}`"
    if match["word"]:
        return match["word"]
    if match["key"] == "model":
        return f"load_model({_literal(match['value'])})"
    group, _, inner = match["key"].partition(".")
    name = ARGUMENTS.get(match["key"]) or (inner if group in OPTIONS else "")
    if name and match["value"].isupper():  # out=DIR: the argument itself is meant
        return f"`{name}`"
    return f"{name}={_literal(match['value'])}" if name else match[0]


def _literal(value: str) -> str:
    """`true`, `sdpa`, `[KEY.pub]` as Python has them; numbers and placeholders as they are."""
    if value in ("true", "false", "null"):
        return {"true": "True", "false": "False", "null": "None"}[value]
    if value.startswith("["):
        return f"[{', '.join(_literal(part) for part in value[1:-1].split(','))}]"
    return value if re.fullmatch(r"[\d.]+|[A-Z]+", value) else f'"{value}"'


SWAPPED = "the model comes first, then the state."


def python_says(function: Callable[P, T]) -> Callable[P, T]:
    """`function`, whose errors name the arguments that its caller can pass, and end at the caller's line:
    the way through this package says nothing of what was given."""

    form = signature(function)

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            _bound(form, function.__name__, args, kwargs)
            return function(*args, **kwargs)
        except HarnessError as problem:
            said = _meant(in_python(str(problem)), form)
            problem.args = (said + f" {_takes(form, function.__name__)}" * said.endswith(SWAPPED),)
            raise problem.with_traceback(None) from problem.__cause__
        except Exception as problem:
            if whose := blame.author(problem):  # a class that the caller passed
                kind = type(problem).__name__
                raise ConfigProblem(
                    f"unexpected {kind}: {str(problem).rstrip('.')}. It came from {whose}"
                ) from problem
            raise

    return call


def _meant(text: str, form: Signature) -> str:
    """`text` of an unknown argument with the function's own one that is written much like it, where there is one: what
    else is named there are the keys of an option."""
    match = re.search(r"'(\w+)' is no argument here", text)
    own = [p.name for p in form.parameters.values() if p.kind is not p.VAR_KEYWORD]
    near = get_close_matches(match[1], own, 1, 0.75) if match else []
    return f"{text[: match.end()]}. Did you mean '{near[0]}'?" if match and near else text


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
