"""Whether the weights of a folder are those that its config.json asks for: the library draws at random what no file
holds, and leaves out what the model has no place for."""

import re
from collections.abc import Iterable
from typing import Any

from harness.errors import InputProblem
from harness.machine import many

LAYER = re.compile(
    r"(.*?)\.(\d+)\."
)  # of `transformer.h.3.ln_1.weight`: the list of layers, the number
REMEDY = "Give the config.json and the weights that belong together: none is drawn at random here."


def check(where: str, model: Any, report: dict[str, Any]) -> str | None:
    """What the files hold and `model` does not read, as the rest of a line; None where that is nothing.

    where: names the model in a message. report: what the library tells of its load; tied tensors, and those that it
    says may be missing, are not in it. Raises InputProblem for a tensor that no file holds in the shape asked for.
    """
    if differing := sorted(report["mismatched_keys"]):
        (name, held, asked), *more = differing
        others = f", and {len(more)} more do not fit" if more else ""
        raise InputProblem(
            f"{where}: {name} has shape {list(held)} in the weights and {list(asked)} by config.json{others}. {REMEDY}"
        )
    own, missing, unread = set(model.state_dict()), report["missing_keys"], report["unexpected_keys"]  # fmt: skip
    if not missing:
        return _unread(own, unread) if unread else None
    first = min(missing)
    lacking = f"{where}: the weights lack {len(missing)} of the {len(own)} tensors that config.json asks for, the first is {first}"
    before = {name.removesuffix(first) for name in unread if name.endswith(f".{first}")}
    for prefix in before:
        if all(f"{prefix}{name}" in unread for name in missing):
            raise InputProblem(
                f"{lacking}: they are there with `{prefix}` before each name. Take it off, or save the model without "
                "what was wrapped around it (`save_pretrained` of the model inside)."
            )
    counted = [f": {said}" for said in _counts(own, (own - missing) | unread)]
    raise InputProblem(f"{lacking}{''.join(counted[:1])}. {REMEDY}")


def _unread(own: set[str], unread: set[str]) -> str:
    layers = _layers(own)
    whole = {n for n in unread if (at := LAYER.match(n)) and at[1] in layers and int(at[2]) not in layers[at[1]]}  # fmt: skip
    said = [f"{told}, the others are not read" for told in _counts(own, own | whole)]
    if rest := sorted(unread - whole):
        are = "is" if len(rest) == 1 else "are"
        said.append(
            f"{many(len(rest), 'tensor')} of the weights {are} not read by this model, the first is {rest[0]}"
        )
    return "; ".join(said)


def _counts(own: Iterable[str], held: Iterable[str]) -> list[str]:
    """For each list of layers that is longer or shorter in the files than in the model, how long it is in both."""
    there = _layers(held)
    return [
        f"the weights have {many(len(there.get(name, ())), 'layer')} ({name}), config.json asks for {len(asked)}"
        for name, asked in _layers(own).items()
        if len(there.get(name, ())) != len(asked)
    ]


def _layers(names: Iterable[str]) -> dict[str, set[int]]:
    found: dict[str, set[int]] = {}
    for at in filter(None, map(LAYER.match, names)):
        found.setdefault(at[1], set()).add(int(at[2]))
    return found
