"""What a caller from Python passed, checked where it came in: one sentence for what cannot be."""

import warnings
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from math import isfinite
from numbers import Integral
from os import PathLike
from typing import Any

import torch

from harness.api_errors import SWAPPED
from harness.capture import check_length, check_vocabulary, vocabulary
from harness.compare.identity import Difference, fits
from harness.errors import InputProblem, Misfit
from harness.machine import many
from harness.model.loaded import Loaded
from harness.snapshot import coherence
from harness.snapshot.state import State
from harness.tokenizer.policy import continuation

ROLES = ("system", "user", "assistant", "tool", "developer", "model")  # that templates know


def check_model(model: Any) -> None:
    """Raise InputProblem for a model that is not wrapped."""
    if isinstance(model, State):
        raise InputProblem(SWAPPED)
    if not isinstance(model, Loaded):
        raise InputProblem(
            f"the model is a {type(model).__name__}, as it came: give harness.wrap(model, tokenizer), or what "
            "harness.load_model gives."
        )
    check_precision(model)


def check_precision(model: Loaded) -> None:
    """Raise InputProblem inside of `torch.autocast`, where a model computes in another dtype than it is of."""
    kind = model.device.type
    if torch.is_autocast_enabled(kind):
        other = plain(torch.get_autocast_dtype(kind))
        raise InputProblem(
            f"torch.autocast is on, and computes in {other} what this model, in {plain(model.dtype)}, is to compute: no "
            "state says so, and nothing could be compared. Call this outside of its `with` block; a model that is to "
            f"run in {other} is loaded with dtype={other}."
        )


def check_state(state: Any) -> None:
    """Raise InputProblem for what is no State, and for one whose parts do not fit each other."""
    if not isinstance(state, State):
        raise InputProblem(
            f"the state is a {type(state).__name__}, no State: capture_text and from_cache give one, "
            "load_state(source, model) that of a snapshot."
        )
    if told := coherence.shapes(state):
        raise InputProblem(
            f"this state does not hold together: {told}. Where one part of it was replaced, the others have to fit."
        )


def check_provable(state: State) -> None:
    """Raise InputProblem for a state whose capture left no numbers: it can be judged, not proven."""
    proof = state.documents.get("proof", {})
    if not all(isfinite(proof.get(what, 0.0)) for what in ("logits", "kv")):
        raise InputProblem(
            "this state holds NaN or infinity, as the model left it, so nothing that is restored of it could be proven: "
            "harness.judge(model, state) says what is wrong. Load the model in another dtype, or give whole weights."
        )


def check_shapes(model: Loaded, state: State) -> None:
    """Raise Misfit for a state of a model of other shapes, whose attention would rank the tokens of nothing."""
    known = (d.get("model_config", {}) for d in (state.documents, model.documents))
    if not fits(*(one.get("config", {}) for one in known)):
        raise Misfit(
            "this state's keys and values are of a model with other layers or heads. Give the model that it was "
            "captured from."
        )


def warn_of(waived: Sequence[Difference], state: State) -> None:
    """Warn of a model that is not the one `state` was captured from, unless that was let pass before."""
    if waived and not state.documents.get("waived"):
        warnings.warn(
            f"this model is not the one that the state was captured from ({waived[0]}): what comes of it is "
            "drifted at best. Load the model it was captured from.",
            stacklevel=5,
        )


def warn_of_codes(state: State) -> None:
    """Warn that a policy leaves plain numbers of a `state` kept as codes."""
    if state.quantized:
        warnings.warn(
            "this state is kept as codes, and what pruning leaves of it is plain numbers again: prune first, then "
            "quantize.",
            stacklevel=4,
        )


def warned(made: State, quantizer: str | type) -> State:
    """`made`, with a warning where the option `quantizer` left plain numbers only in it."""
    if isinstance(quantizer, str) and quantizer != "none" and not made.quantized:
        warnings.warn(
            f"quantize={quantizer} changed nothing: it turned no key and no value into codes.",
            stacklevel=4,
        )
    return made


def check_count(name: str, value: Any, least: int) -> None:
    """Raise InputProblem unless the argument `name` is a whole number of `least` or more."""
    if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
        raise InputProblem(f"{name} is {value!r}: give a whole number, {least} or more.")


def warn_of_draws(rng: Any, sampling: str, options: Mapping[str, Any]) -> None:
    """Warn that random numbers of a `generate` go on otherwise than it would have: by the likeliest token, or from more
    tokens than the 50 that it draws from where nobody told it."""
    if rng is None or (sampling == "sample" and "top_k" in options):
        return
    asked = 'sampling="sample" is not' if sampling != "sample" else "top_k is not"
    warnings.warn(
        f"rng is given and {asked}: what goes on here is drawn by sampling={sampling!r}"
        f"{', from all tokens' * (sampling == 'sample')}. `generate(do_sample=True)` draws from 50 of them unless it is told "
        'otherwise: sampling="sample", top_k=50 (0 for all) goes on as it would.',
        stacklevel=4,
    )


def rng_of(value: Any) -> torch.Tensor | None:
    """The generator state `[bytes]` uint8 that the argument `rng` is or holds, a copy. Raises InputProblem."""
    if value is None:
        return None
    state = value.get_state() if isinstance(value, torch.Generator) else value
    like = torch.get_rng_state()
    if not torch.is_tensor(state) or (state.dtype, state.shape) != (like.dtype, like.shape):
        raise InputProblem(
            "rng is no state of a generator on the CPU: give torch.get_rng_state() right after what drew, or a "
            "torch.Generator of there. What a GPU drew cannot go on here: leave it out, and give `seed`."
        )
    return state.clone()


def check_place(name: str, value: Any) -> None:
    """Raise InputProblem for an argument `name` that names no place."""
    if not isinstance(value, str | PathLike) or not str(value):
        raise InputProblem(f"{name} is {value!r}: give the directory of a snapshot, or its URL.")


def check_flag(name: str, value: Any) -> None:
    """Raise InputProblem unless the argument `name` is True or False."""
    if not isinstance(value, bool):
        raise InputProblem(f"{name} is {value!r}: give True or False.")


def places_of(name: str, value: Any) -> tuple[str, ...]:
    """The files that the argument `name` lists; one alone is a list of one. Raises InputProblem."""
    several = [value] if isinstance(value, str | PathLike) else value
    if not isinstance(several, list | tuple) or not all(
        isinstance(one, str | PathLike) for one in several
    ):
        raise InputProblem(f"{name} is {value!r}: give a list of files.")
    return tuple(map(str, several))


def place_of(name: str, value: Any) -> str | None:
    """The file that the argument `name` names, None for none. Raises InputProblem."""
    if value is not None and not isinstance(value, str | PathLike):
        raise InputProblem(f"{name} is {value!r}: give a key file.")
    return None if value is None else str(value)


def check_name(name: str, value: Any, such_as: str) -> None:
    """Raise InputProblem for an argument `name` that is no name of an option."""
    if not isinstance(value, str):
        raise InputProblem(f"{name} is {value!r}: give the name of one ({such_as}).")


def plain(value: Any) -> Any:
    """`float32` and `cuda:0` for torch's own dtypes and devices; the rest as it is."""
    kinds = (torch.dtype, torch.device)
    return str(value).removeprefix("torch.") if isinstance(value, kinds) else value


def _no_text(text: Any) -> str:
    several = text if isinstance(text, list | tuple) else [text]
    kind = next(type(one).__name__ for one in several if not isinstance(one, str))
    held = "holds" if isinstance(text, list | tuple) else "is"
    article = "an" if kind[0] in "aeiou" else "a"
    return f"text {held} {article} {kind}: give a str, or a list of one per row."


def texts_of(text: Any, turns: Sequence[Any] | None, policy: str) -> list[str]:
    """The text of each row; one empty one where chat `turns` are given instead. Raises InputProblem
    for what is no text, and where text or turns would be left out."""
    several = list(text) if isinstance(text, list | tuple) else [text]
    if not all(isinstance(one, str) for one in several):
        raise InputProblem(_no_text(text))
    if turns is None:
        if not several or "" in several:
            raise InputProblem("there is no text to capture: give one, or a list of one per row.")
        return several
    if any(several):
        raise InputProblem(
            "text and turns were both given, and only one can be captured: put the text into a turn, "
            '{"role": "user", "content": text}.'
        )
    if not turns:
        raise InputProblem('turns is empty: give [{"role": "user", "content": "..."}].')
    if policy in ("explicit", "raw", "library"):
        raise InputProblem(f'policy="{policy}" reads no turns: give policy="chat" with them.')
    _check_turns(turns)
    return [""]


def _check_turns(turns: Any) -> None:
    """Raise InputProblem for what is no list of turns, and for a role that is misspelt."""
    form = 'a turn is {"role": "user", "content": "..."}, and turns a list of them'
    if not isinstance(turns, list | tuple):
        raise InputProblem(f"turns is a {type(turns).__name__}: {form}.")
    for number, turn in enumerate(turns, 1):
        said = isinstance(turn, Mapping) and [turn.get(key) for key in ("role", "content")]
        if not said or not all(isinstance(text, str) for text in said):
            raise InputProblem(f"turn {number} is {turn!r}: {form}.")
        role = str(said[0])
        near = get_close_matches(role, ROLES, n=1)
        if near and role not in ROLES:
            raise InputProblem(f"turn {number} has the role '{role}'. Did you mean '{near[0]}'?")


def check_fits(model: Loaded, state: State, steps: int) -> None:
    """Raise InputProblem where `model` has no row for a token of `state`, or not the positions for `steps` more, Misfit
    where it is of other shapes."""
    rows, largest = vocabulary(model), int(state.token_ids.max())
    if largest >= rows:
        raise InputProblem(
            f"this state has read token {largest}, and this model knows {rows} tokens. Load the model it was "
            "captured from."
        )
    check_shapes(model, state)
    check_length(model, state.tokens, steps)


def rows_of(text: Any, batch: int) -> list[str]:
    """The text that each of `batch` rows goes on with; one is for all. Raises InputProblem."""
    rows = [text] * batch if isinstance(text, str) else text
    if not isinstance(rows, list | tuple) or not all(isinstance(one, str) for one in rows):
        raise InputProblem(_no_text(text))
    if len(rows) != batch:
        raise InputProblem(f"{many(len(rows), 'text')} for the {many(batch, 'row')} of this state.")
    return list(rows)


def prompt_of(model: Loaded, state: State, text: str | Sequence[str]) -> torch.Tensor | None:
    """`[batch, n]` ids of the text that goes on from each row, None for no text."""
    texts = rows_of(text, state.batch)
    rows = [continuation("explicit", model.tokenizer, one).ids for one in texts]
    for row in rows:
        check_vocabulary(model, row)
    lengths = sorted({len(row) for row in rows})
    if len(lengths) > 1:
        raise InputProblem(
            f"the texts have {lengths[0]} to {lengths[-1]} tokens, but the rows of a batch grow by the "
            "same number. Capture these as states of their own, or make the texts equally long."
        )
    return torch.tensor(rows) if lengths[0] else None
