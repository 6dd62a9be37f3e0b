"""A config.json of which no model can be made: the file is named, and what the library has against it."""

import json

import pytest

from harness.errors import InputProblem
from harness.model.build import ASSETS
from harness.model.configured import first_line
from harness.model.loaded import load


@pytest.fixture
def folder(place):
    """The shipped model's folder, whose config.json can be written anew; its weights are never reached."""
    (place / "mine").mkdir()
    for file in (ASSETS / "tiny").iterdir():
        if file.name != "config.json":
            (place / "mine" / file.name).symlink_to(file)
    return place / "mine"


def declare(folder, **values) -> None:
    config = json.loads((ASSETS / "tiny" / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | values))


def refused(compose, folder) -> str:
    with pytest.raises(InputProblem) as problem:
        load(compose("model=path", f"model.path={folder}").model, "float32", "cpu")
    return str(problem.value)


@pytest.mark.parametrize(
    "values, says",
    [
        ({"rms_norm_eps": "x"}, "Field 'rms_norm_eps' expected float, got str (value: 'x')."),
        ({"hidden_size": -1}, "The hidden size (-1) is not a multiple of the number"),
        ({"num_attention_heads": 0}, "ZeroDivisionError: integer modulo by zero."),
        ({"head_dim": -1}, "RuntimeError: Trying to create tensor with negative dimension"),
        ({"hidden_act": "none"}, "KeyError: 'none'."),
        ({"dtype": "float99"}, "module 'torch' has no attribute 'float99'."),
    ],
)
def test_what_the_library_has_against_a_value_is_told(compose, folder, values, says) -> None:
    declare(folder, **values)
    said = refused(compose, folder)
    assert said.startswith(f"{folder}/config.json cannot be used: ") and says in said
    assert said.endswith("Correct it, or save the model again with `save_pretrained`.")


def test_on_the_command_line_it_is_one_sentence_and_no_fault_of_the_harness(
    harness, folder
) -> None:
    declare(folder, num_hidden_layers="four")
    done = harness("task=save", "model=path", "model.path=mine", "text=let k be 5 .")
    assert done.code == 2 and "fault of the harness" not in done.out
    assert "mine/config.json cannot be used: Field 'num_hidden_layers' expected int, got str (value: 'four'). Correct" in done.out  # fmt: skip


def test_a_type_that_the_library_does_not_know_is_named_with_the_remedy(compose, folder) -> None:
    declare(folder, model_type="lama")
    said = refused(compose, folder)
    assert said.startswith(f"{folder}/config.json: its model_type is 'lama', which Transformers 5")
    assert said.endswith(
        "does not know. Did you mean 'llama'? Correct it, or upgrade the library (pip install --upgrade transformers)."
    )
    declare(folder, model_type="xyzzy99")
    assert "does not know. Correct it" in refused(compose, folder)


def test_a_long_line_of_the_library_ends_at_a_word() -> None:
    assert first_line(ValueError("one two\nthree")) == "one two."
    said = first_line(ValueError("harness " * 100))
    assert len(said) < 320 and said.endswith("harness ...")
