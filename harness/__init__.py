"""Prove that a paused transformer, brought back, is still thinking the same thought.

    import harness

    model = harness.load_model("tiny")  # or a directory; harness.wrap(model, tokenizer) for objects of yours
    state = harness.capture_text(model, "let k be 5 .")  # or harness.from_cache(model, past_key_values, ids)
    harness.save_state(state, "runs/mine")

    state = harness.load_state("runs/mine", model)  # in another process: verified, identity compared
    print("".join(harness.resume(model, state, " what is k ?", steps=4)))
    print(harness.judge(model, state))  # the same thought, or why not

The functions, all of them:

    load_model, wrap             a model, by name or directory, or the objects that you have (a tokenizer or none)
    capture_text, from_cache     a State, of a text or of a cache that was filled elsewhere
    save_state, load_state       to a directory and back, every byte verified
    resume                       go on, token by token
    judge                        is it the same thought? `.good` (no truth value of its own), and printed why
    prune_state, quantize_state  fewer tokens, fewer bytes: by an option's name or a class of yours (as `format=`, `cache=`)
    to_cache                     back to `model.generate(past_key_values=...)`
    metric                       decorates a function of logits: measured where `compare.metrics=[module.function]` names it

`help(harness.judge)` and the others say shapes and errors; `except harness.HarnessError` catches every one
of these. Nothing heavy is imported before a function is used. What is in a snapshot, how two runs differ and whether a record
is what it says are tasks of the command line: `task=inspect`, `task=diff`, `task=audit`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from harness.api import (
        Judgement,
        Loaded,
        Resumed,
        State,
        capture_text,
        from_cache,
        judge,
        load_model,
        load_state,
        prune_state,
        quantize_state,
        resume,
        save_state,
        to_cache,
        wrap,
    )
    from harness.errors import (
        ConfigProblem,
        HarnessError,
        InputProblem,
        MissingExtra,
        RestoreRefused,
        SnapshotInvalid,
        UnsupportedModel,
        Untrusted,
    )
    from harness.results.metric import metric

__version__ = "0.2.0"
__all__ = [
    "ConfigProblem",
    "HarnessError",
    "InputProblem",
    "Judgement",
    "Loaded",
    "MissingExtra",
    "RestoreRefused",
    "Resumed",
    "SnapshotInvalid",
    "State",
    "UnsupportedModel",
    "Untrusted",
    "capture_text",
    "from_cache",
    "judge",
    "load_model",
    "load_state",
    "metric",
    "prune_state",
    "quantize_state",
    "resume",
    "save_state",
    "to_cache",
    "wrap",
]


def __dir__() -> list[str]:
    return sorted([*__all__, "__version__"])


_TASKS = [
    "audit",
    "chat",
    "claims",
    "diff",
    "evaluate",
    "experiment",
    "faults",
    "inspect",
    "loop",
    "referee",
    "verify",
]


def _lacking(name: str) -> str:
    from difflib import get_close_matches

    said = f"module 'harness' has no attribute '{name}'"
    if name in _TASKS:
        return f"{said}: it is a task of the command line, python -m harness task={name} --help"
    near = get_close_matches(name, __all__, n=1)
    return f"{said}. Did you mean '{near[0]}'?" if near else said


if not TYPE_CHECKING:  # a misspelt name is the type checker's to find

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(_lacking(name))
        from harness import errors

        if hasattr(errors, name):
            return getattr(errors, name)
        if name == "metric":
            from harness.results.metric import metric

            return metric
        import random

        state = (
            random.getstate()
        )  # a package draws once as it is imported; the caller's seed is theirs
        from harness import api

        random.setstate(state)
        return getattr(api, name)
