"""Whatever is passed for whatever argument of the Python API: a result, or one plain sentence."""

import inspect
from dataclasses import fields

import pytest

import harness
from harness.config import SamplingConfig

SAMPLING = [f.name for f in fields(SamplingConfig) if f.name not in ("name", "seed")]
KEYS = {
    "capture_text": SAMPLING,
    "resume": SAMPLING,
    "prune_state": ["ratio", "tokens", "protect", "per_head", "budget", "positions", "at"],
    "quantize_state": ["group", "recent", "axis"],
    "save_state": ["compact", "sync"],
}
WRONG = ["x", 1.5, -3, None, [], object(), {}, ["x"], True, b"x"]
FUNCTIONS = [
    name
    for name in harness.__all__
    if inspect.isfunction(getattr(harness, name)) and name != "metric"  # a decorator
]


@pytest.fixture(scope="module")
def right(tmp_path_factory):
    """Arguments of every function that are right."""
    model, place = harness.load_model("tiny"), tmp_path_factory.mktemp("snapshots")
    state = harness.capture_text(model, "let k be 5 .")
    harness.save_state(state, place / "a")
    both, ids = {"model": model, "state": state}, state.token_ids
    return {
        "capture_text": {"model": model, "text": "a", "sampling": "sample"},
        "from_cache": {
            "model": model,
            "past_key_values": harness.to_cache(state, model),
            "input_ids": ids,
        },
        "judge": {**both, "steps": 1},
        "load_model": {"source": "tiny"},
        "load_state": {"source": place / "a", "model": model},
        "prune_state": {**both, "ratio": 0.5},
        "quantize_state": {"state": state},
        "resume": {**both, "steps": 1, "sampling": "sample"},
        "save_state": {"state": state, "out": place / "b", "overwrite": True},
        "to_cache": both,
        "wrap": {"model": model.model, "tokenizer": model.tokenizer},
    }


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_wrong_type_is_a_plain_sentence(right, name, place) -> None:
    function = getattr(harness, name)
    parameters = inspect.signature(function).parameters.values()
    names = [p.name for p in parameters if p.kind is not p.VAR_KEYWORD]
    assert right[name].keys() <= {*names, *KEYS.get(name, ())}
    refused: set[str] = set()
    for argument in [*names, *KEYS.get(name, ())]:
        for wrong in WRONG:
            try:
                list(
                    function(**right[name] | {argument: wrong})
                    if name == "resume"
                    else [function(**right[name] | {argument: wrong})]
                )
            except harness.HarnessError as problem:
                assert 10 < len(str(problem)) < 400 and "\n" not in str(problem)
                refused.add(argument)
    assert refused == {*names, *KEYS.get(name, ())}


def test_the_sentence_names_the_argument_and_what_it_takes(right) -> None:
    with pytest.raises(harness.ConfigProblem, match="top_p is 'x': give a number"):
        harness.resume(**right["resume"], top_p="x")
    with pytest.raises(harness.InputProblem, match="trusted is 3: give a list of files"):
        harness.load_state(**right["load_state"], trusted=3)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_help_says_what_is_raised_and_sends_nobody_into_the_package(name) -> None:
    assert "interop" not in getattr(harness, name).__doc__ and "Raises" in harness.wrap.__doc__
